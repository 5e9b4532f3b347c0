"""The engine `resiliparse` (Bevendorff et al. 2018, ECIR): an HTML5 tree and block rules in native code; fast.

Texts of images are left out, as in DCLM; list bullets stay. The tree has no depth limit, but extraction takes time
quadratic in depth (20,000 nested elements: 20 s), so deeper pages than MAX_DEPTH are rejected as `too_deep`.
"""

from __future__ import annotations

from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.html import DOMContext, HTMLTree, traverse_dom

from pipeline import recipe
from pipeline.errors import Rejected
from pipeline.extract import Found
from pipeline.extract.nesting import open_tags
from pipeline.extract.tidy import encoded

MAX_DEPTH = 1024  #: elements from `body` down


def extract(html: str, settings: recipe.Extract) -> Found:
    """Title and text of a page."""
    data = encoded(html)
    tree = HTMLTree.parse_from_bytes(data, "utf-8")
    if open_tags(data) > MAX_DEPTH:
        _check_depth(tree)
    del data  # the tree has its own copy: a page of 50 MB counts
    text: str = extract_plain_text(tree, main_content=True, alt_texts=False, comments=settings.comments)
    return Found(tree.title, text)


def _check_depth(tree: HTMLTree) -> None:
    """Raises Rejected("extract", "too_deep") where elements nest deeper than MAX_DEPTH; linear, no recursion."""

    def visit(context: DOMContext) -> None:
        if context.depth > MAX_DEPTH:
            raise Rejected("extract", "too_deep", f"elements nest deeper than {MAX_DEPTH} levels")

    if tree.body is not None:
        traverse_dom(tree.body, visit, elements_only=True)
