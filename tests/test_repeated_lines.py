"""Lines that many documents hold: what is one, who keeps it, what the edit leaves."""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from pipeline.recipe import RepeatedLines
from pipeline.repeated_lines import NOTHING, Table, cut, pieces, rank

Documents = Mapping[str, str]

TEXTS = st.lists(st.sampled_from(["one", "One ", "two 2", "two 7", "", "  ", "three", "four"]), max_size=6).map(
    "\n".join
)
PROSE = st.lists(
    st.sampled_from(["A a. ", "B b! ", "C c?\n", "D d。E e。", "F f.\n\n", "G 3.5 g. ", "h"]), max_size=9
).map("".join)
CHOICES = st.builds(
    RepeatedLines,
    min_documents=st.integers(2, 3),
    remove=st.booleans(),
    keep_first=st.booleans(),
    normalise=st.sampled_from(["c4", "ccnet"]),
)


def ids(n: int) -> list[str]:
    return [xxhash.xxh3_128_hexdigest(str(i).encode()) for i in range(n)]


def table(documents: Documents, settings: RepeatedLines) -> Table:
    """Counted with dictionaries, document by document."""
    holders: dict[int, set[str]] = {}
    for record_id, text in documents.items():
        for line in pieces(text, settings).hashes.tolist():
            holders.setdefault(line, set()).add(record_id)
    repeated = sorted(line for line, found in holders.items() if len(found) >= settings.min_documents)
    first = [min(rank(record_id) for record_id in holders[line]) for line in repeated]
    return Table(np.array(repeated, np.uint64), np.array(first, np.uint64))


def cut_all(documents: Documents, settings: RepeatedLines) -> dict[str, str]:
    known = table(documents, settings)
    return {record_id: cut(text, known, record_id, settings).text for record_id, text in documents.items()}


def brute_force(documents: Documents, settings: RepeatedLines) -> dict[str, list[str]]:
    """The lines left of each document, blank ones aside, by the definition: strings compared with strings."""

    def normal(line: str) -> str:
        line = line.strip().lower()
        return "".join("0" if c.isdigit() else c for c in line) if settings.normalise == "ccnet" else line

    holders: dict[str, set[str]] = {}
    for record_id, text in documents.items():
        for line in filter(None, map(normal, text.split("\n"))):
            holders.setdefault(line, set()).add(record_id)
    left: dict[str, list[str]] = {}
    for record_id, text in documents.items():
        left[record_id], seen = [], set()
        for line in text.split("\n"):
            key = normal(line)
            if not key:
                continue
            repeated = len(holders[key]) >= settings.min_documents
            keeps = settings.keep_first and min(holders[key]) == record_id and key not in seen
            seen.add(key)
            if not (settings.remove and repeated) or keeps:
                left[record_id].append(line.strip())
    return left


@given(st.lists(TEXTS, max_size=5), CHOICES)
def test_lines_are_those_of_the_definition(texts: list[str], settings: RepeatedLines) -> None:
    documents = dict(zip(ids(len(texts)), texts, strict=True))
    left = cut_all(documents, settings)
    for record_id, lines in brute_force(documents, settings).items():
        assert [line.strip() for line in left[record_id].split("\n") if line.strip()] == lines


@given(st.lists(PROSE, max_size=5), CHOICES)
def test_spans_that_stay_stand_once_and_own_ones_are_not_touched(texts: list[str], settings: RepeatedLines) -> None:
    settings = settings.model_copy(update={"unit": "sentences"})
    documents = dict(zip(ids(len(texts)), texts, strict=True))
    known = table(documents, settings)
    repeated = set(known.hashes.tolist())
    for record_id, text in documents.items():
        done = cut(text, known, record_id, settings)
        here = set(pieces(text, settings).hashes.tolist())
        if not here & repeated or not settings.remove:
            assert done.text == text
            assert (done.ratio > 0) == bool(here & repeated)
        if settings.remove and not settings.keep_first and here and here <= repeated:
            assert done.text == ""
        assert 0 <= done.ratio <= 1
        assert done.chars == len(text) - len(done.text)


def test_three_sentences_in_a_row_are_a_span_and_two_are_none() -> None:
    settings = RepeatedLines(unit="sentences")
    one, two = sorted(ids(2))
    shared = "The brick works was built in 1921. It had three kilns! Who worked there?"
    short = "The brick works was built in 1921. It had three kilns!"
    for common, goes in ((shared, True), (short, False)):
        documents = {
            one: f"This is the town's own story. {common} All of it is true.",
            two: f"Another page.\nIt begins in its own way. {common}\nAnd ends so.",
        }
        left = cut_all(documents, settings)
        assert left[one] == documents[one]
        expected = "Another page.\nIt begins in its own way.\nAnd ends so." if goes else documents[two]
        assert left[two] == expected


@pytest.mark.parametrize(
    ("line", "like", "normalise", "same"),
    [
        ("Share this page", " share THIS page\t", "c4", True),
        ("3 replies", "4 replies", "c4", False),
        ("3 replies", "4 replies", "ccnet", True),
        ("“Quoted”", "quoted", "ccnet", True),
        ("x", "X", "c4", True),
        ("", "   ", "c4", False),
        ("…", "»", "ccnet", False),
    ],
)
def test_what_counts_as_one_line(line: str, like: str, normalise: str, same: bool) -> None:
    settings = RepeatedLines.model_validate({"normalise": normalise, "keep_first": False})
    one, two = sorted(ids(2))
    documents = {one: f"own\n{line}\nmy text", two: f"{like}\nyour text"}
    left = cut_all(documents, settings)
    expected = {one: "own\nmy text", two: "your text"} if same else documents
    assert left == expected


def test_blank_lines_do_not_pile_up_and_unchanged_texts_stay_as_they_are() -> None:
    settings = RepeatedLines(keep_first=False)
    one, two, three = sorted(ids(3))
    documents = {one: "a\n\nmenu\n\nb\n", two: "menu\n\nc", three: "  d \n\n\n\ne "}
    assert cut_all(documents, settings) == {one: "a\n\nb", two: "c", three: documents[three]}
    assert cut(documents[three], NOTHING, three, settings).text is documents[three]


def test_the_first_document_keeps_the_first_of_its_copies() -> None:
    one, two = sorted(ids(2))
    documents = {two: "menu\nx", one: "menu\ny\nMenu"}
    assert cut_all(documents, RepeatedLines()) == {two: "x", one: "menu\ny"}


def test_ratio_is_the_share_of_characters_in_repeated_lines() -> None:
    one, two = sorted(ids(2))
    documents = {one: "12345\n\n678", two: "12345"}
    known = table(documents, RepeatedLines(remove=False))
    assert cut(documents[one], known, one, RepeatedLines(remove=False)).ratio == 5 / 8
    assert cut(documents[two], known, two, RepeatedLines()).ratio == 1


@pytest.mark.parametrize(
    "text", ["." * 400_000 + "x", ".)" * 200_000, ".\"'" * 100_000, "。" * 300_000, "a\n" * 200_000]
)
@pytest.mark.parametrize("unit", ["line", "sentences"])
def test_time_is_linear(text: str, unit: str) -> None:
    begin = time.process_time()
    pieces(text, RepeatedLines.model_validate({"unit": unit}))
    assert time.process_time() - begin < 3
