"""Words, lines and sentences: golden divisions (those of spaCy's blank English), odd characters, time."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import line_kernels as lk
from pipeline import text_kernels as tk
from pipeline.text import count_letters, count_words, measure


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Hello, world!", "Hello|,|world|!"),
        ("don't can't I'll we're cannot", "do|n't|ca|n't|I|'ll|we|'re|can|not"),
        ("It’s the dogs' and John's.", "It|’s|the|dogs|'|and|John|'s|."),
        ("U.S. Mr. e.g. etc. p.m. 5p.m.", "U.S.|Mr.|e.g.|etc|.|p.m.|5|p.m."),
        ("well-known end.Start a,b x/y 3-4", "well|-|known|end|.|Start|a|,|b|x|/|y|3|-|4"),
        ("(5km) $10 50% 3+4 +1 10€", "(|5|km|)|$|10|50|%|3|+|4|+1|10|€"),
        ("wait... what?! …yes", "wait|...|what|?|!|…|yes"),
        ("see example.com/a?b=c or a@b.org, ok", "see|example.com/a?b=c|or|a@b.org|,|ok"),
        ("https://ex.test:80/x-y,z http://a.b", "https://ex.test:80/x-y,z|http://a.b"),
        (":) <3 and/or C++ ©2024", ":)|<3|and/or|C++|©|2024"),
        ("今天天气。ABC中文", "今|天|天|气|。|ABC|中|文"),
        ("ที่นี่", "ที่|นี่"),
        ("", ""),
        (" \n\t ", ""),
    ],
)
def test_words(text: str, words: str) -> None:
    assert "|".join(measure(text).words()) == words


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("", 0),
        ("No end", 1),
        ("One. Two! Three?", 3),
        ("One?! (Two.) Three", 3),
        ("Mr. Smith came... and went. Bye", 2),
        ("one line\nanother line.\n\nthird.", 3),
        ("今天。明天！", 2),
    ],
)
def test_sentences(text: str, sentences: int) -> None:
    assert measure(text).count(tk.N_SENTENCES) == sentences


def test_lines_are_those_of_splitlines() -> None:
    text = "• a\r\n - b...\r\x0b* c\x85●d . . .\u2028\n\n   …\n"
    units = measure(text)
    parts = text.splitlines()
    assert units.line_count(lk.N_LINES) == len(parts)
    assert units.line_count(lk.N_VISIBLE_LINES) == sum(bool(p.strip()) for p in parts)
    assert units.line_count(lk.BULLET_LINES) == 2
    assert units.line_count(lk.REFINEDWEB_BULLET_LINES) == 4
    assert units.line_count(lk.ELLIPSIS_LINES) == 2
    assert units.line_count(lk.SPACED_ELLIPSIS_LINES) == 1


def test_paragraphs_end_at_blank_lines() -> None:
    units = measure("  a\nb\n \nc\n\n\na\nb\n\nc  ")
    assert units.feed_count(lk.N_PARAGRAPHS) == 4
    assert units.feed_count(lk.DUPLICATE_PARAGRAPHS) == 2
    assert units.feed_count(lk.DUPLICATE_PARAGRAPH_CHARS) == len("a\nb") + len("c")


def test_letters_of_addresses_do_not_count() -> None:
    assert count_letters("abc https://example.org/path (www.example.org) me@example.org 12 d") == 4
    assert count_letters("") == 0


@given(st.text(alphabet=st.characters() | st.sampled_from("\ud800\0\u200b.'-/:@ \n天ก"), max_size=80))
def test_words_are_the_text_without_white_space(text: str) -> None:
    units = measure(text)
    assert "".join(units.words()) == "".join(c for c in text if not c.isspace())
    assert all(units.words())
    assert count_words(text) == units.n_words <= len(units.words())
    assert units.line_count(lk.N_LINES) == len(text.splitlines())


@pytest.mark.parametrize(
    "text", ["x" * 5_000_000, "(" * 1_000_000, "a.b@" * 500_000, "天" * 2_000_000, "a:// " * 500_000]
)
def test_time_is_linear(text: str) -> None:
    measure("warm")
    begin = time.process_time()
    measure(text)
    assert time.process_time() - begin < 10
