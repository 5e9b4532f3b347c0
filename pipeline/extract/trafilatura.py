"""The engine `trafilatura` (Barbaresi 2021, ACL demo); its own output but for pages that its parser would cut short.

- `deduplicate` stays off: it remembers text between calls, so a page's text would depend on the pages before it. The
  library's other caches hold pure functions of their arguments.
- The parser makes elements in C rather than through lxml's Python look-up: 9 % faster, identical output. So are its
  searches by attributes in pipeline/extract/attribute_paths.py: 1.1 to 1.4 times.
- Its parser (libxml2) drops the rest of a page from 256 levels on, or after a token of 10 MB, without an error. The
  parser's log tells, so such a page is parsed again without these limits, or rejected as `too_deep`. It also ends at a
  lone surrogate, so there is none when it starts.
- Vertical tab and form feed are white space to a browser; the library would delete them and glue two words.
"""

from __future__ import annotations

import logging

import trafilatura
from lxml import etree
from lxml import html as lxml_html
from trafilatura import utils, xpaths

from pipeline import recipe
from pipeline.errors import Rejected
from pipeline.extract import Found
from pipeline.extract.attribute_paths import fast
from pipeline.extract.tidy import without_surrogates

#: libxml2's own limit, kept for large pages too: beyond it the library's recursive parts could meet Python's limit.
MAX_DEPTH = 256
_TOO_DEEP = etree.XPath(f"boolean(/descendant::*[count(ancestor::*) >= {MAX_DEPTH}])")
_LARGE_PAGE = 1_000_000  #: characters

for _paths in vars(xpaths).values():
    if isinstance(_paths, list):  # the library's modules share these lists
        _paths[:] = map(fast, _paths)

logging.getLogger("trafilatura").setLevel(logging.CRITICAL)  # an empty page is a verdict here, not a warning


def _native_elements(parser: lxml_html.HTMLParser) -> lxml_html.HTMLParser:
    parser.set_element_class_lookup(
        etree.ElementDefaultClassLookup(
            element=lxml_html.HtmlElement,
            comment=lxml_html.HtmlComment,
            pi=lxml_html.HtmlProcessingInstruction,
            entity=lxml_html.HtmlEntity,
        )
    )
    return parser


_PARSER = _native_elements(utils.HTML_PARSER)
_LARGE_PARSER = _native_elements(
    lxml_html.HTMLParser(
        collect_ids=False,
        default_doctype=False,
        encoding="utf-8",
        remove_comments=True,
        remove_pis=True,
        huge_tree=True,
    )
)


def extract(html: str, settings: recipe.Extract) -> Found:
    """Title and text of a page; the text is None where trafilatura finds none."""
    html = without_surrogates(html)
    if "\x0b" in html or "\x0c" in html:
        html = html.replace("\x0b", " ").replace("\x0c", " ")
    tree = _parse(html)
    if tree is None:
        return Found(None, None)
    title = tree.find(".//title")
    text: str | None = trafilatura.extract(
        tree,
        favor_precision=settings.favor == "precision",
        favor_recall=settings.favor == "recall",
        include_comments=settings.comments,
        include_tables=settings.tables,
        deduplicate=False,
    )
    if len(html) > _LARGE_PAGE:  # two of the library's caches keep whole lines: a large page's must not stay
        utils.line_processing.cache_clear()
        utils.trim.cache_clear()
    return Found(title.text if title is not None else None, text)


def _parse(html: str) -> lxml_html.HtmlElement | None:
    """The whole page's tree, None where trafilatura sees no HTML. Raises Rejected("extract", "too_deep")."""
    try:
        tree = utils.load_html(html)
        if not _limit_met(utils.HTML_PARSER):
            return tree
        utils.HTML_PARSER = _LARGE_PARSER
        tree = utils.load_html(html)
        if _limit_met(utils.HTML_PARSER) or (tree is not None and _TOO_DEEP(tree)):
            raise Rejected("extract", "too_deep", f"elements nest deeper than {MAX_DEPTH} levels")
        return tree
    finally:
        utils.HTML_PARSER = _PARSER


def _limit_met(parser: lxml_html.HTMLParser) -> bool:
    """Whether the parser's last run ended before the page did."""
    kinds = {entry.type for entry in parser.error_log if entry.level == etree.ErrorLevels.FATAL}
    if etree.ErrorTypes.ERR_NO_MEMORY in kinds:
        raise MemoryError("libxml2 ran out of memory")
    return etree.ErrorTypes.ERR_RESOURCE_LIMIT in kinds
