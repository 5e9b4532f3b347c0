"""Texts against an index, beside a plain reading of the definition: 13 words in a row in common."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as options
from hypothesis import strategies as st

from pipeline.decontaminate import Index, match, ngrams, overlaps
from pipeline.shingles import UNSPACED
from tests.decontaminate import made

BEFORE = "Some lines about the river and its mills stood here. "
AFTER = " And other lines, on bridges, follow it."


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    folder = tmp_path_factory.mktemp("index")
    return made.index(folder, made.settings(made.write(folder / "millers.jsonl")))


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


def plain_units(text: str) -> list[str]:
    """The definition, character by character."""
    units = []
    for word in re.findall(r"\w+", unicodedata.normalize("NFKC", text.lower())):
        run = ""
        for char in word:
            if any(first <= ord(char) <= last for first, last in UNSPACED):
                units += [run, char]
                run = ""
            else:
                run += char
        units.append(run)
    return [unit for unit in units if unit]


def split(text: str) -> list[str]:
    found = ngrams.split(text)
    text = found.stream.tobytes().decode("utf-32-le")
    return [text[a : b - 1] for a, b in zip(found.begins[:-1], found.begins[1:], strict=True)]


ODD = st.text(st.sampled_from("aB é́Σσ1½㍿ﬁ人工かが゙กำ한ᄒ ,.\n_Ǆ"), max_size=60)


@options(deadline=None, max_examples=60)
@given(ODD | st.text(max_size=40))
def test_units_are_words_and_single_characters_of_scripts_without_spaces(text: str) -> None:
    clean = "".join(c for c in text if not 0xD800 <= ord(c) < 0xE000)
    assert split(clean) == plain_units(clean)
    assert len(ngrams.split(clean).hashes) == len(plain_units(clean))


@options(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from(["a", "b", "人", "word"]), max_size=30), st.integers(1, 6))
def test_equal_ngrams_have_equal_hashes_and_others_do_not(row: list[str], n: int) -> None:
    hashes = ngrams.ngram_hashes(ngrams.split(" ".join(row)).hashes, n).tolist()
    grams = [tuple(row[i : i + n]) for i in range(len(row) - n + 1)]
    assert len(hashes) == len(grams)
    assert len(set(hashes)) == len(set(grams))
    assert len(set(zip(hashes, grams, strict=True))) == len(set(grams))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("exact", made.QUESTION),
        ("case", made.QUESTION.upper()),
        ("punctuation", made.QUESTION.replace(" ", " -- ").replace(".", "…")),
        ("line breaks", made.QUESTION.replace(" ", "\n\n")),
        ("wide characters", "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in made.QUESTION)),
        ("thirteen words only", " ".join(words(made.QUESTION)[4:17])),
        ("the answer", made.ANSWER),
        ("another script", made.CHINESE),
        ("another script, its lines broken", "\n".join(made.CHINESE)),
    ],
)
def test_words_in_common_are_found_whatever_they_wear(name: str, told: str, index: Index) -> None:
    text = BEFORE + told + AFTER
    (found,) = overlaps(text, index)
    assert (found.benchmark, found.file) == ("millers", "millers.jsonl")
    assert found.entry == (2 if "script" in name else 1)
    assert found.field == ("answer" if name == "the answer" else "question")
    span = text[found.start : found.end]
    assert plain_units(span) == plain_units(told)
    assert span == told.rstrip(" -.?？\n")
    assert found.ngrams == len(plain_units(told)) - 12


@pytest.mark.parametrize(
    "told",
    [
        " ".join(words(made.QUESTION)[4:16]),  # twelve words
        " ".join(words(made.QUESTION)[4:16]) + " else " + " ".join(words(made.QUESTION)[17:25]),
        " ".join(made.ENTRIES[0].values()) + " " + made.QUESTION[:30],  # across fields and entries
        " ".join(words(made.QUESTION)[::-1]),
        made.CHINESE[:12],
        "",
        "?!",
    ],
)
def test_less_than_thirteen_words_in_a_row_are_not(told: str, index: Index) -> None:
    assert overlaps(BEFORE + told + AFTER, index) == []


@options(deadline=None, max_examples=60)
@given(ODD, ODD)
def test_the_span_is_the_entrys_words_in_any_surroundings(index: Index, before: str, after: str) -> None:
    text = f"{before} {made.QUESTION} {after}"
    (found,) = overlaps(text, index)
    assert text[found.start : found.end] == made.QUESTION.rstrip("?")


def test_letters_and_accents_apart_are_those_in_one(tmp_path: Path) -> None:
    told = "Le père de Zoé a mangé à midi un gâteau très salé, puis à côté une pâte brûlée au café"
    index = made.index(tmp_path, made.settings(made.write(tmp_path / "b.jsonl", [{"t": told}]), fields=["t"]))
    text = unicodedata.normalize("NFD", f"Été. {told}. Élan")
    (found,) = overlaps(text, index)
    assert text[found.start : found.end] == unicodedata.normalize("NFD", told)


def test_what_stands_around_a_passage_does_not_matter(index: Index) -> None:
    """Shingles take a text by its characters where most are Chinese; here an English question in it is still found."""
    text = "河流与磨坊的故事。" * 50 + made.QUESTION + "河流与磨坊的故事。" * 50
    assert [(o.entry, o.ngrams) for o in overlaps(text, index)] == [(1, len(words(made.QUESTION)) - 12)]
    text = BEFORE * 20 + made.CHINESE + AFTER * 20
    assert [o.entry for o in overlaps(text, index)] == [2]


@options(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 3), min_size=14, max_size=60), st.lists(st.integers(0, 3), min_size=5, max_size=60))
def test_it_finds_what_a_plain_search_finds(
    tmp_path_factory: pytest.TempPathFactory, a: list[int], b: list[int]
) -> None:
    """Few words and many repeats, n = 5; the first match, of the first entry that has it, and the number of matches."""
    folder = tmp_path_factory.mktemp("plain")
    entries = [{"t": " ".join(f"w{x}" for x in half)} for half in (a[: len(a) // 2], a[len(a) // 2 :])]
    settings = made.settings(made.write(folder / "b.jsonl", entries), fields=["t"], ngram=5)
    grams = [{tuple(e["t"].split()[i : i + 5]) for i in range(len(e["t"].split()) - 4)} for e in entries]
    text = " ".join(f"W{x}." for x in b)
    mine = [tuple(f"w{x}" for x in b[i : i + 5]) for i in range(len(b) - 4)]
    hits = [i for i, gram in enumerate(mine) if gram in grams[0] | grams[1]]
    found = overlaps(text, made.index(folder, settings))
    if not hits:
        assert found == []
        return
    (one,) = found
    assert one.ngrams == len(hits)
    assert one.entry == (0 if mine[hits[0]] in grams[0] else 1)
    assert one.start == 4 * hits[0]
    assert one.end >= one.start + 5 * 4 - 2
    assert f" {text[one.start : one.end].lower().replace('.', '')} " in f" {entries[one.entry]['t']} "


def test_a_collision_of_hashes_rejects_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With hashes of two bits every n-gram collides with many: what matches is still what has the same words."""
    real = ngrams.ngram_hashes
    monkeypatch.setattr(ngrams, "ngram_hashes", lambda units, n: real(units, n) & np.uint64(3))
    index = made.index(tmp_path, made.settings(made.write(tmp_path / "millers.jsonl")))
    assert len(set(index.keys.tolist())) <= 4
    assert len(index.keys) > 40
    assert overlaps(BEFORE * 40 + AFTER * 40, index) == []
    assert overlaps(" ".join(words(made.QUESTION)[::-1]), index) == []
    (found,) = overlaps(BEFORE + made.QUESTION + AFTER, index)
    assert found.ngrams == len(words(made.QUESTION)) - 12


def test_benchmarks_come_in_the_order_of_the_recipe_and_each_once(tmp_path: Path) -> None:
    first, second = made.write(tmp_path / "zz.jsonl"), made.write(tmp_path / "aa.jsonl", made.ENTRIES[1:])
    index = made.index(tmp_path, made.settings(first, second))
    found = overlaps(made.ANSWER + "\n" + made.QUESTION, index)
    assert [(o.benchmark, o.entry, o.field) for o in found] == [("zz", 1, "answer"), ("aa", 0, "answer")]
    assert index.counts["zz"] == {"entries": 3, "too_short": 1, "ngrams": len(index.keys) // 2}
    assert index.counts["aa"]["too_short"] == 0


@pytest.mark.parametrize("window", [200, 333, 1000])
def test_windows_lose_and_double_nothing(window: int, index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (BEFORE * 3 + made.QUESTION + AFTER + made.CHINESE * 2 + AFTER) * 4
    whole = overlaps(text, index)
    monkeypatch.setattr(match, "WINDOW", window)
    monkeypatch.setattr(match, "_NEAR", 50)
    (cut,) = overlaps(text, index)
    assert (cut.ngrams, cut.start, cut.entry) == (whole[0].ngrams, whole[0].start, whole[0].entry)
