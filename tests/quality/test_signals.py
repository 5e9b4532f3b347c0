"""Golden numbers, cases 28, 30 and 33, and the slow definitions of rules.md beside the compiled ones."""

from __future__ import annotations

import json
import math
import time
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.quality import signals
from pipeline.quality.edits import edit
from pipeline.recipe import C4Lines, Edit, RefinedWebLines, load
from pipeline.signals import SIGNALS
from pipeline.text import measure
from tests.quality.documents import lines, words

TEXTS = st.text(alphabet=st.sampled_from("ab .#-…\n\r\u2028'\"{天กA1!?\ud800\0"), max_size=200)
ALL_EDITS = Edit(c4=C4Lines(), refinedweb=RefinedWebLines())


def test_every_signal_is_measured_but_the_score() -> None:
    elsewhere = ("quality_score", "repeated_line_ratio", "repeated_line_chars")
    here = [s.name for s in SIGNALS if s.basis != "page" and s.name not in elsewhere]
    assert sorted(signals("", "", "en")) == sorted(here)


def test_golden_numbers() -> None:
    text = "The cat, that sat.\n- It's # a test...\nThe cat, that sat.\n\nEnd of 12 lines"
    found = signals(text, text, "en")
    # The cat , that sat . | - It 's # a test ... | The cat , that sat . | End of 12 lines
    expected = {
        "gopher_words": 16,
        "gopher_mean_word_length": ((3 + 3 + 4 + 3) * 2 + (2 + 2 + 1 + 4) + (3 + 2 + 2 + 5)) / 16,
        "gopher_hash_ratio": 1 / 23,
        "gopher_ellipsis_ratio": 1 / 23,
        "gopher_bullet_lines_frac": 1 / 5,
        "gopher_ellipsis_lines_frac": 1 / 5,
        "gopher_alpha_words_frac": 15 / 23,
        "gopher_stop_words": 2,  # that, of; "The" is not "the"
        "gopher_rep_dup_line_frac": 1 / 4,
        "gopher_rep_dup_line_char_frac": 18 / len(text),
        "gopher_rep_dup_para_frac": 0.0,
        "gopher_rep_top_2_gram_char_frac": 2 * len("The cat") / len(text),
        "gopher_rep_dup_5_gram_char_frac": len("Thecat,thatsat") / len(text),
        "gopher_rep_dup_10_gram_char_frac": 0.0,
        "fineweb_lines": 4,
        "fineweb_line_punct_ratio": 3 / 4,
        "fineweb_short_line_ratio": 1.0,
        "fineweb_char_dup_ratio": 18 / (len(text) - 4),
        "fineweb_list_ratio": 4 / 23,
        "c4_sentences": 4,
        "c4_page_chars": len(text),
        "refinedweb_stop_words": 5,
    }
    visible = text.split()
    expected["refinedweb_mean_word_length"] = sum(map(len, visible)) / len(visible)
    expected["refinedweb_symbol_ratio"] = 2 / len(visible)
    expected["refinedweb_non_alpha_words_frac"] = 3 / len(visible)
    assert {k: found[k] for k in expected} == pytest.approx(expected)


def test_case_28_blank_lines_are_no_duplicates() -> None:
    paragraphs = [words(14, 14 * i) + "." for i in range(12)]
    spaced = [signals(t, t, "en") for t in ("\n".join(paragraphs), "\n\n".join(paragraphs), "\n \n".join(paragraphs))]
    for name in ("gopher_rep_dup_line_frac", "gopher_rep_dup_line_char_frac", "gopher_rep_dup_para_frac"):
        assert [s[name] for s in spaced] == [0, 0, 0]
    assert [s["fineweb_char_dup_ratio"] for s in spaced] == [0, 0, 0]
    repetitive = "\n \n".join([paragraphs[0]] * 6 + paragraphs[:6])
    assert signals(repetitive, repetitive, "en")["gopher_rep_dup_para_frac"] == 6 / 12
    assert signals(repetitive, repetitive, "en")["gopher_rep_dup_line_frac"] == 6 / 12


@pytest.mark.parametrize("text", ["", " ", "!", "\u200b\u0301", "\n\n", "x" * 5_000_000], ids=lambda t: repr(t[:5]))
def test_case_30_degenerate_texts_have_finite_or_null_signals(text: str) -> None:
    begin = time.process_time()
    for edits in (Edit(), ALL_EDITS):
        for value in signals(text, edit(text, edits), "en", edits).values():
            assert value is None or math.isfinite(value)
    assert time.process_time() - begin < 20


@given(TEXTS, st.sampled_from(["en", "de", "zh", "ja", "th", "und", None]))
def test_any_text_has_finite_or_null_signals(text: str, lang: str | None) -> None:
    found = signals(text, edit(text, ALL_EDITS), lang, ALL_EDITS)
    assert all(v is None or math.isfinite(v) for v in found.values())
    assert all(0 <= v <= 1 for k, v in found.items() if v is not None and k.endswith("_frac") and "gram" not in k)


@given(st.text(alphabet="ab c.\n", max_size=120))
def test_n_grams_are_those_of_the_reference(text: str) -> None:
    """shared/rules.md 3.2 in plain Python, on our words."""
    units, found = measure(text), signals(text, text, "en")
    tokens = units.words()
    for n in (2, 3, 4):
        grams = [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]
        best = max(Counter(grams).items(), key=lambda g: g[1], default=((), 0))
        expected = len(" ".join(best[0])) * best[1]
        assert (found[f"gopher_rep_top_{n}_gram_char_frac"] or 0) * len(text) == pytest.approx(expected)
    for n in (5, 8, 10):
        seen, chars, i = set(), 0, 0
        while i < len(tokens) - n + 1:
            gram = tuple(tokens[i : i + n])
            chars, i = (chars + len("".join(gram)), i + n) if gram in seen else (chars, i + 1)
            seen.add(gram)
        assert (found[f"gopher_rep_dup_{n}_gram_char_frac"] or 0) * len(text) == pytest.approx(chars)


@given(st.lists(st.sampled_from(["a b.", "c", "", " ", "x" * 31]), max_size=12))
def test_line_counts_are_those_of_the_reference(parts: list[str]) -> None:
    text = "\n".join(parts)
    full = [line for line in text.split("\n") if line.strip()]
    again = [line for i, line in enumerate(full) if line in full[:i]]
    found = signals(text, text, "en")
    assert found["fineweb_lines"] == len(full)
    if full:
        assert found["fineweb_line_punct_ratio"] == sum(line.endswith(".") for line in full) / len(full)
        assert found["fineweb_short_line_ratio"] == sum(len(line) <= 30 for line in full) / len(full)
        assert found["gopher_rep_dup_line_frac"] == len(again) / len(full)
        assert found["gopher_rep_dup_line_char_frac"] == sum(map(len, again)) / len(text)


def test_case_33_signals_see_the_whole_text() -> None:
    good = "\n".join(lines(60, "."))[:4000]
    noise = "7# 8% 9& " * 33_000
    for text in (good + noise, noise + good):
        assert (signals(text, text, "en")["gopher_alpha_words_frac"] or 0) < 0.8


def test_stop_and_bad_words_are_of_the_documents_language() -> None:
    german = "Das ist die Geschichte von dem Mann und der Frau in der Stadt."
    assert signals(german, german, "de")["gopher_stop_words"] == 7
    assert signals(german, german, "en")["gopher_stop_words"] == 0
    chinese = "我们在这里，因为他们没有来。"
    assert (signals(chinese, chinese, "zh")["gopher_stop_words"] or 0) >= 2
    for unlisted in ("is", "und", "lo"):
        found = signals(german, german, unlisted)
        assert (found["gopher_stop_words"], found["stop_word_frac"], found["c4_bad_words"]) == (None, None, None)
    rude = "What a Bullshit. Scunthorpe is a town, ass."
    assert signals(rude, rude, "en")["c4_bad_words"] == 2


def test_scripts_without_spaces_have_letters_as_words_and_no_word_length() -> None:
    chinese = "今天天气很好。我们去公园玩。" * 10
    found = signals(chinese, chinese, "zh")
    assert (found["gopher_words"], found["gopher_mean_word_length"]) == (120, None)
    assert found["c4_sentences"] == 20


def test_presets_say_the_values_of_the_rules_document() -> None:
    rules = load("fineweb").quality.rules
    bounds = json.loads(json.dumps({k: (v.min, v.max) for k, v in rules.items()}))
    assert bounds["gopher_rep_dup_10_gram_char_frac"] == [None, 0.1]
    assert bounds["fineweb_char_dup_ratio"] == [None, 0.01]
    assert next(iter(rules)) == "gopher_rep_dup_para_frac"
    assert load("c4").edit.c4 == C4Lines(min_words=5, count_after_citations=True, end_marks='.?!"')
