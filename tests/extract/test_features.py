"""The features of small pages, by name."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.extract.container_features import layout
from pipeline.extract.context_features import CONTEXT, context
from pipeline.extract.features import FEATURES, features, token_scores
from pipeline.extract.scan import scan

NO_TOKENS = token_scores(np.empty(0, np.uint32), np.empty(0, np.float32))
SENTENCE = "The river has run low since the spring, and the people walk to the wells in the hills."  # 18 words
PAGE = f"""<html><head><title>The river has run low</title></head><body>
<nav class="main-menu"><ul><li><a href=1>Home</a></li><li><a href=2>News</a></li><li><a href=3>About us</a></li></ul></nav>
<main><article class="story"><h1>The river has run low</h1>
<p>{SENTENCE} {SENTENCE}</p><p>{SENTENCE}</p><p>{SENTENCE}</p></article></main>
<footer><p>All rights reserved 2024</p></footer></body></html>"""  # noqa: E501 - a page
HOME, NEWS, ABOUT, TITLE, FIRST, SECOND, THIRD, FOOTER = range(8)


def table(html: str) -> dict[str, list[float]]:
    found = features(scan(html.encode()), NO_TOKENS)
    return {name: found[:, i].round(4).tolist() for i, name in enumerate(FEATURES)}


def test_a_small_page() -> None:
    of = table(PAGE)
    assert of["words"] == [1, 1, 2, 5, 36, 18, 18, 4]
    assert of["link_density"] == [1, 1, 1, 0, 0, 0, 0, 0]
    assert of["sentences"] == [0, 0, 0, 0, 2, 1, 1, 0]
    assert of["title"][TITLE] == 1
    assert of["title"][FOOTER] == 0
    assert of["page_words"] == [85] * 8
    assert of["page_longest"] == [36] * 8
    assert of["page_articles"] == [1] * 8
    assert of["nav"] == [2, 2, 2, 99, 99, 99, 99, 99]
    assert of["article"][HOME] == 99
    assert of["main"][TITLE:FOOTER] == [2] * 4
    assert of["footer"][FOOTER] == 1


def test_blocks_of_the_same_make() -> None:
    of = table(PAGE)
    assert of["group_blocks"] == [3, 3, 3, 1, 3, 3, 3, 1]
    assert of["group_words"] == [4, 4, 4, 5, 72, 72, 72, 4]
    assert of["group_link_density"][:4] == [1, 1, 1, 0]
    assert of["copies"] == [1, 1, 1, 1, 1, 2, 2, 1]
    assert of["run"] == [3, 3, 3, 1, 3, 3, 3, 1]
    assert of["at+1_same"] == [1, 1, 0, 0, 1, 1, 0, 0]


def test_the_best_container_is_the_article() -> None:
    of = table(PAGE)
    assert of["top_up"] == [3, 3, 3, 1, 1, 1, 1, 2]
    assert of["top_down"] == [2, 2, 2, 0, 0, 0, 0, 2]
    assert of["top_place"] == [-3, -2, -1, 0, 0, 0, 0, 1]
    assert of["top_share"][0] == pytest.approx(77 / 85, abs=1e-3)


def test_before_and_after() -> None:
    of = table(PAGE)
    assert of["from_h1"] == [-3, -2, -1, 0, 1, 2, 3, 4]
    assert of["from_heading"] == [999, 999, 999, 999, 1, 2, 3, 4]
    assert of["to_long"] == [4, 3, 2, 1, 1, 1, 999, 999]
    assert of["from_long"] == [999, 999, 999, 999, 999, 1, 1, 1]
    assert of["at-1_words"] == [-1, 1, 1, 2, 5, 36, 18, 18]
    assert of["words_before"] == [0, 1, 2, 4, 9, 45, 63, 81]
    assert of["words_after"] == [84, 83, 81, 76, 40, 22, 4, 0]


def test_learned_scores_reach_down_the_tree() -> None:
    blocks = scan(PAGE.encode())
    menu, story = fnv("menu"), fnv("story")
    assert {menu, story} <= set(blocks.token_hash.tolist())
    known = token_scores(np.array([menu, story], np.uint32), np.array([-2, 1.5], np.float32))
    found = features(blocks, known)
    assert found[:, FEATURES.index("chain_score")].tolist() == [-2, -2, -2, 1.5, 1.5, 1.5, 1.5, 0]
    assert found[:, FEATURES.index("parent_score")].tolist() == [0, 0, 0, 1.5, 1.5, 1.5, 1.5, 0]
    assert found[:, FEATURES.index("chain_lowest")].tolist() == [-2, -2, -2, 0, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ภาษาไทย", 5),  # five letters, two with a mark
        ("ພາສາລາວ", 7),
        ("ភាសាខ្មែរ", 5),
        ("မြန်မာစာ", 5),
        ("日本語です", 5),
    ],
)
def test_in_scripts_without_spaces_letters_are_words(text: str, words: int) -> None:
    of = table(f"<p>{text} {text}</p>")
    assert 2 * len(text) / 2.5 <= of["words"][0] <= 2 * len(text)


def test_probabilities_of_the_neighbourhood() -> None:
    blocks = scan(PAGE.encode())
    p = np.array([0.1, 0.1, 0.1, 0.5, 0.9, 0.9, 0.9, 0.2], np.float32)
    of = {name: row.tolist() for name, row in zip(CONTEXT, context(blocks, layout(blocks), p), strict=True)}
    assert of["p"] == p.tolist()
    assert of["p+1"] == [*p[1:].tolist(), -1]
    assert of["p-3"][3] == p[0]
    assert of["mean2"][FIRST] == pytest.approx((0.1 * 2 + 0.5 * 5 + 0.9 * 72) / 79)
    assert of["group_mean"][:3] == pytest.approx([0.1] * 3)
    assert of["from_first"] == [-3, -2, -1, 0, 1, 2, 3, 4]
    assert of["from_last"] == [-6, -5, -4, -3, -2, -1, 0, 1]
    assert of["kept_total"] == [77] * 8
    assert of["core_down"] == [2, 2, 2, 0, 0, 0, 0, 2]
    assert of["kept_gap_before"] == [999, 999, 999, 999, 1, 1, 1, 1]
    assert of["highest"] == pytest.approx([0.9] * 8)


tags = st.sampled_from(
    ["div", "p", "li", "ul", "table", "tr", "td", "a", "b", "h1", "h2", "article", "nav", "span", "br", "pre", "x-y"]
)
pieces = st.one_of(
    st.builds("<{} class='{}'>".format, tags, st.sampled_from(["a b", "menu", "Story2", ""])),
    st.builds("</{}>".format, tags),
    st.text(max_size=12),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(pieces, max_size=60).map("".join))
def test_any_page_has_finite_features(html: str) -> None:
    blocks = scan(html.encode("utf-8", "replace"))
    found = features(blocks, NO_TOKENS)
    assert found.shape == (len(blocks.owner), len(FEATURES))
    assert np.isfinite(found).all()
    if len(found):
        p = (np.arange(len(found), dtype=np.float32) % 7) / 7
        assert np.isfinite(context(blocks, layout(blocks), p)).all()


def fnv(word: str) -> int:
    value = 2166136261
    for byte in word.encode():
        value = (value ^ byte) * 16777619 & 0xFFFFFFFF
    return value
