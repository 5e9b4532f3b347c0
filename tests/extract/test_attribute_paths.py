"""trafilatura's searches by attributes, evaluated here: the very elements that lxml's XPath finds."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree, html

from pipeline.extract.attribute_paths import fast

SPACE = {"re": "http://exslt.org/regular-expressions"}


@cache
def of_trafilatura() -> list[tuple[str, etree.XPath]]:
    """(name, expression) as the library has them, read from its source: in this process they may be replaced."""
    code = (
        "from trafilatura import xpaths\n"
        "print([(f'{n}[{i}]', x.path) for n, v in vars(xpaths).items() if type(v) is list for i, x in enumerate(v)])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    return [(name, etree.XPath(path, namespaces=SPACE)) for name, path in eval(said)]


WORDS = [
    "post", "entry", "article-body", "post-content", "story", "main", "main-Content", "content", "Content", "fulltext",
    "comment", "commentary", "comments", "comment-list", "Comments", "disqus_thread", "shareX", "share-", "social",
    "nav", "Navigation", "menu", "footer", "Footer", "sidebar", "banner", "cookie", "cookie-consent", "tags", "author",
    "byline", "reply-1", "hidden", " hidden", "hide-print", "message", "akismet", "Teaser", "teaser", "caption",
    "bottom", "Padding-bottom-lg", "link", "permalink", "infinite-scroll", "mvp-post-add-box", "elementor-widget",
    "elementor-share-buttons", "respond", "ad-1", "x ad y", "grid", "",
]  # fmt: skip
VALUES = st.lists(st.sampled_from(WORDS), min_size=0, max_size=2).map(" ".join)
NAMES = ["id", "class", "style", "role", "itemprop", "aria-hidden", "data-component", "data-lp-replacement-content"]
STYLES = st.sampled_from(["display:none", "display: none", "border:1px", "hidden", "true", "articleBody", "article"])
TAGS = st.sampled_from(["div", "p", "span", "section", "article", "main", "ul", "ol", "item", "list", "aside", "h1"])


@st.composite
def trees(draw: Any) -> Any:
    """A few nested elements with attributes in any order."""
    root = etree.Element("body")
    made = [root]
    for _ in range(draw(st.integers(1, 12))):
        names = draw(st.permutations(NAMES))[: draw(st.integers(0, 3))]
        child = etree.SubElement(draw(st.sampled_from(made)), draw(TAGS))
        for name in names:
            child.set(name, draw(STYLES if name not in ("id", "class") else VALUES))
        made.append(child)
    return root


@settings(max_examples=150, deadline=None)
@given(tree=trees())
def test_the_same_elements_in_the_same_order(tree: Any) -> None:
    for name, expression in of_trafilatura():
        ours = fast(expression)
        for start in (tree, tree[0]):
            assert ours(start) == expression(start), name


def test_the_slow_ones_are_evaluated_here() -> None:
    replaced = {name for name, expression in of_trafilatura() if fast(expression) is not expression}
    assert {"OVERALL_DISCARD_XPATH[0]", "OVERALL_DISCARD_XPATH[1]", "BODY_XPATH[0]", "REMOVE_COMMENTS_XPATH[0]"} <= (
        replaced
    )


@pytest.mark.parametrize(
    "path",
    [".//header", "(.//article)[1]", ".//*[@a and @b]", ".//*[.//p]", "//div[@id]", ".//*[@a][2]", ".//*[text()='x']"],
)
def test_other_shapes_stay(path: str) -> None:
    expression = etree.XPath(path)
    assert fast(expression) is expression


def test_which_attribute_comes_first_matters() -> None:
    expression = etree.XPath(".//*[re:test(@id|@class, 'cookie')]", namespaces=SPACE)
    page = html.fromstring(
        '<div><p id="cookie" class="x">1</p><p class="x" id="cookie">2</p><p class="cookie">3</p></div>'
    )
    assert [e.text for e in fast(expression)(page)] == [e.text for e in expression(page)] == ["1", "3"]
