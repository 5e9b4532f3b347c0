"""Line rules, in the order of rules.md 3.3 and 3.5."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.quality import signals
from pipeline.quality.edits import edit
from pipeline.recipe import C4Lines, Edit, RefinedWebLines

FINEWEB = Edit(c4=C4Lines(end_mark=False))
C4 = Edit(c4=C4Lines(min_words=5, count_after_citations=True, end_marks='.?!"'))
REFINED = Edit(refinedweb=RefinedWebLines())


@pytest.mark.parametrize(
    ("edits", "line", "left"),
    [
        (Edit(), "  as it is  ", "  as it is  "),
        (FINEWEB, "  two words  ", ""),
        (FINEWEB, "  three words here  ", "three words here"),
        (FINEWEB, "one [1] [22]", "one  "),  # words are counted before citations go
        (FINEWEB, "a fact[citation needed] here [edit]", "a fact here "),
        (FINEWEB, "three words " + "x" * 1001, ""),
        (FINEWEB, "three words " + "x" * 1000, "three words " + "x" * 1000),
        (FINEWEB, "please enable JavaScript to see", ""),
        (FINEWEB, "read our Privacy Policy now", ""),
        (C4, "one two three four five", ""),
        (C4, "one two three four five.", "one two three four five."),
        (C4, "one two three four five...", ""),
        (C4, "one two three four 'five'", ""),
        (C4, "one two three [5] four.", ""),  # four words once the citation is out
        (REFINED, "ALL OF it", ""),
        (REFINED, "ALL of itt", "ALL of itt"),
        (REFINED, "12345", ""),
        (REFINED, "word", ""),
        (REFINED, "3 likes", ""),
        (REFINED, "1,234.5k followers!", ""),
        (REFINED, "3 likes and more", "3 likes and more"),
        (REFINED, "2 items in cart now", "2 now"),
        (REFINED, "the story Read more...", "the story"),
        (REFINED, "Sign-in to the site", "to the site"),
        (REFINED, "see https://ex.test/a?b=c for it", "see for it"),
        (REFINED, "one two\n\n\n\nthree four", "one two\n\nthree four"),
    ],
)
def test_line_rules(edits: Edit, line: str, left: str) -> None:
    assert edit(line, edits) == left.strip() if edits != Edit() else left


def test_page_rules_ask_surviving_lines_only() -> None:
    """A line goes by its words before its bracket is seen, by its bracket before its policy words."""
    for text, curly in (("{ x", 0), ("javascript { in a line", 0), ("use cookies { in a line", 1), ("a { b c", 1)):
        assert signals(text, edit(text, FINEWEB), "en", FINEWEB)["c4_curly_bracket"] == curly
    for text, lorem in (("lorem ipsum", 0), ("lorem ipsum javascript here", 1)):
        assert signals(text, edit(text, FINEWEB), "en", FINEWEB)["c4_lorem_ipsum"] == lorem
    assert signals("{", "{", "en")["c4_curly_bracket"] == 1


@given(st.text(alphabet="aB1 .[]\n\r\u2028{", max_size=100), st.sampled_from([FINEWEB, C4, REFINED]))
def test_edits_only_take_away_and_settle(text: str, edits: Edit) -> None:
    once = edit(text, edits)
    assert len(once) <= len(text)
    assert set(once) <= set(text) | {"\n"}
