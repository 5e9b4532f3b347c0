"""The scan through its public door: blocks, their owners and counts, elements and their names."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from pipeline.crawl import warc
from pipeline.extract import scan as sc
from pipeline.extract import tags
from pipeline.extract.class_words import token_hash
from pipeline.extract.emit import emit
from pipeline.extract.scan import Blocks, scan


def texts(html: str) -> list[str]:
    """Each block's text as `emit` writes it alone."""
    blocks = scan(html.encode())
    alone = np.eye(len(blocks.owner), dtype=np.bool_)
    return [emit(blocks, kept).removeprefix("- ").strip() for kept in alone]


def one(html: str) -> dict[str, int]:
    """The counts of a page's only block."""
    blocks = scan(html.encode())
    assert len(blocks.owner) == 1
    return dict(zip(COLUMNS, blocks.counts[0].tolist(), strict=True))


COLUMNS = [
    "CHARS", "WORDS", "LINK_CHARS", "LINK_WORDS", "SENTENCES", "COMMAS", "PUNCTUATION", "DIGITS", "UPPER", "CJK",
    "BOLD_CHARS", "IMAGES", "BREAKS", "TITLE_WORDS", "STARTS_UPPER", "END_KIND", "HIDDEN",
]  # fmt: skip


def owner_path(blocks: Blocks, block: int) -> list[str]:
    path, e = [], int(blocks.owner[block])
    while e > 0:
        path.append(tags.NAMES[blocks.tag[e]])
        e = int(blocks.parent[e])
    return path[::-1]


def test_columns_have_their_names() -> None:
    assert [getattr(sc, name) for name in COLUMNS] == list(range(sc.N_COUNTS))


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("", []),
        ("plain", ["plain"]),
        ("<p>a<p>b</p>c", ["a", "b", "c"]),
        ("<div>a<div>b</div>c</div>d", ["a", "b", "c", "d"]),
        ("<p><b>a</b>bc <i>d</i>\n<u> e</u></p>", ["abc d e"]),
        ("a<br>b<br>\n<br>c", ["a\nb", "c"]),
        ("a<br><br><br>b", ["a", "b"]),
        ("<my-card>a</my-card>b<unknown>c</unknown>", ["a", "bc"]),
        ("<td>a<td>b<tr><td>c", ["a", "b", "c"]),
        ("<button>x</button>y<label>z</label>", ["x", "y", "z"]),
        ("a<!-- b --> c<!-->d<!--->e<!-- f --!>g<!--!>h-->", ["a cdeg"]),
        ("a<?php b ?>c<!DOCTYPE html>d</ e>f</>g", ["acdfg"]),
        ("1 < 2 <3 and <4", ["1 < 2 <3 and <4"]),
        ("a<script>b</scrip></SCRIPT >c<style>d</style>e", ["ace"]),
        ("a<svg><title>b</title><svg>c</svg></svg>d<svg/>e", ["a d e"]),
        ("a<img>b<input>c<wbr>d", ["a b cd"]),
        ("a<template>b", ["ab"]),
        ("a<noscript>b<p>c", ["ab", "c"]),
        ("a<textarea>b</textarea>c<select><option>d</select>e", ["a c e"]),
        ('<p title="x>y">a</p><p title=\'"\'>b</p><p title=x>c', ["a", "b", "c"]),
        ('a<p title="b>c</p>d', ["a", "c", "d"]),
        ("a<p class=b", ["a"]),
        ("<pre>\n  a\n    b\n</pre>", ["a\n    b"]),
        ("<pre>a<br>b <b>c</b>\n\n<b>d</b></pre>", ["a\nb c\n\nd"]),
        ("\u00a0\u3000a\u00a0&nbsp;&#160;b", ["a b"]),
        ("Donau&shy;dampf\u00adschiff", ["Donaudampfschiff"]),
        ("<title>t</title>a<title>u</title>", ["a"]),
        ("<p>&amp;lt; &eacute;t&eacute &#8220;x&#x201D; &unknown; AT&T</p>", ["&lt; été “x” &unknown; AT&T"]),
    ],
)
def test_blocks(html: str, expected: list[str]) -> None:
    assert texts(html) == expected


def test_title_is_one_line() -> None:
    assert scan(b"<title>\n A\x1f &amp;  B </title><title>C</title>").title == "A & B"
    assert scan(b"<title></title><p>x").title is None
    assert scan(b"<svg><title>icon</title></svg><title>page</title>").title == "page"
    assert scan(b"<title>never closed<p>x").title == "never closed"


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<body><div><p>a", ["body", "div", "p"]),
        ("<ul><li><a href=x>a</a><li>b", ["ul", "li"]),
        ("<p><span><b>a", ["p"]),
        ("<div><b><p>a</b> b", ["div", "b", "p"]),
        ("<div><p>x<div>a", ["div", "div"]),
        ("<dl><dt>x<dd>a", ["dl", "dd"]),
        ("<table><tbody><tr><td>x<tr><td>y<td><p>a", ["table", "tbody", "tr", "td", "p"]),
        ("<table><tr><td><table><tr><td>x</table></div>a", ["table", "tr", "td"]),
        ("<table><tr><th>x<tbody><tr><td>a", ["table", "tbody", "tr", "td"]),
        ("<ul><li>x<ul><li>y</ul></li><li>a", ["ul", "li"]),
        ("<h1>x<h2>a", ["h2"]),
        ("<div><form><div>x</form>a", ["div", "form", "div"]),
        ("</div></p></b></td>a", []),
        ("<section>x</body></html>a", ["section"]),
    ],
)
def test_owner_of_the_last_block(html: str, expected: list[str]) -> None:
    blocks = scan(html.encode())
    assert owner_path(blocks, len(blocks.owner) - 1) == expected


def test_counts_of_a_sentence() -> None:
    counts = one("<p>The <a href=x>quick, <b>brown</b> fox</a> paid 3.50; why? Because... it <b>could</b>!</p>")
    assert counts == {
        "CHARS": len("The quick, brown fox paid 3.50; why? Because... it could!"),
        "WORDS": 11,
        "LINK_CHARS": len("quick, brown fox") + 1,  # the space before it stands in front of its first character
        "LINK_WORDS": 3,
        "SENTENCES": 3,
        "COMMAS": 1,
        "PUNCTUATION": 1,
        "DIGITS": 3,
        "UPPER": 2,
        "CJK": 0,
        "BOLD_CHARS": len(" browncould") + 1,
        "IMAGES": 0,
        "BREAKS": 0,
        "TITLE_WORDS": 0,
        "STARTS_UPPER": 1,
        "END_KIND": 1,
        "HIDDEN": 0,
    }


@pytest.mark.parametrize(
    ("html", "name", "value"),
    [
        ("<b>un</b>divided caf&eacute;s", "WORDS", 2),
        ("naïve ĞÜ Москва, κόσμε x²", "WORDS", 5),
        ("naïve ĞÜ Москва, κόσμε x²", "UPPER", 3),
        ("naïve ĞÜ Москва, κόσμε x²", "CHARS", 25),
        ("na\u00a0ïve", "WORDS", 2),
        ("na\u00adïve", "WORDS", 1),
        ("漢字かな", "WORDS", 4),
        ("漢字 abc かな", "CJK", 4),
        ("漢字abcかな", "WORDS", 5),
        ("ภาษาไทย", "WORDS", 7),
        ("ที่นี่", "WORDS", 2),  # a mark goes with its letter
        ("हिन्दी में", "WORDS", 2),
        ("a\u200db", "WORDS", 1),
        ("3.5 e.g. example.org", "SENTENCES", 1),
        ("One. Two.", "SENTENCES", 2),
        ("One!! Two?! Three...", "SENTENCES", 3),
        ("一。二！三", "SENTENCES", 2),
        ('He said "no." Then', "SENTENCES", 1),
        ("x &hellip;", "END_KIND", 4),
        ("x ...", "END_KIND", 4),
        ("x:", "END_KIND", 2),
        ("x,", "END_KIND", 3),
        ('"x."', "END_KIND", 1),
        ("x. y", "END_KIND", 0),
        ("&Auml;pfel", "STARTS_UPPER", 1),
        ("(äpfel)", "STARTS_UPPER", 0),
        ("a<br>b<br>c", "BREAKS", 2),
        ("<img>a<img>", "IMAGES", 2),
        ("<p style='color: red; DISPLAY : none'>ab", "HIDDEN", 2),
        ("<p hidden>ab", "HIDDEN", 2),
        ("<p>ab<span aria-hidden=true>cd</span>", "HIDDEN", 2),
        ("<p style='display:block' aria-hidden=false>ab", "HIDDEN", 0),
        ("<a name=x>ab</a>", "LINK_CHARS", 0),
        ("<a href=x>ab<a>cd", "LINK_CHARS", 2),
        ("<title>New York: News</title>old news of york", "TITLE_WORDS", 2),
        ("a  \n b", "CHARS", 3),
    ],
)
def test_count(html: str, name: str, value: int) -> None:
    assert one(html)[name] == value


def test_elements_and_their_names() -> None:
    html = (
        "<main id=siteContent><div class='post-12 commentList2 sr-only' role=navigation itemprop=articleBody><p>x</p>"
        "</div><div class='post-7 commentList3 sr-only'></div></main>"
    )
    blocks = scan(html.encode())
    assert [tags.NAMES[t] for t in blocks.tag] == ["", "main", "div", "p", "div"]
    assert blocks.parent.tolist() == [-1, 0, 1, 2, 1]
    assert blocks.depth.tolist() == [0, 1, 2, 3, 2]
    assert blocks.signature[2] == blocks.signature[4] != blocks.signature[3]
    names = ["site", "content", *(second := ["post", "comment", "list", "sr", "only"]), "navigation", "article", "body"]
    assert blocks.token_hash.tolist() == [token_hash(name) for name in (*names, *second)]
    assert blocks.token_element.tolist() == [1, 1] + [2] * 8 + [4] * 5
    p = dict(zip(tags.CATEGORIES, blocks.categories[blocks.owner[0]].tolist(), strict=True))
    assert (p["content"], p["comments"], p["menus"], p["main"], p["p"], p["nav"]) == (1, 1, 1, 2, 0, tags.NEVER)
    assert p["hidden"] == tags.NEVER


def test_noscript_is_read_where_there_is_nothing_else() -> None:
    shown = "<NOSCRIPT><article><p>Text for those without scripts.</p></article></NoScript >"
    assert texts(f"<title>t</title><div id=app></div>{shown}") == ["Text for those without scripts."]
    assert texts(f"<p>{'Plain words of a page. ' * 20}</p>{shown}") == [("Plain words of a page. " * 20).strip()]
    assert texts("<p>three words here</p><noscript>one word</noscript>") == ["three words here"]


@pytest.mark.parametrize("html", [b"", b"x", b"<p>x<p>y", b"<b>" * 3000 + b"<p>x"])
def test_arrays_have_one_layout(html: bytes) -> None:
    """Else kernels that read them are compiled anew for it, in the middle of a run."""
    blocks = scan(html)
    arrays = [getattr(blocks, name) for name in blocks.__slots__ if name != "title"]
    assert all(array.flags.c_contiguous for array in arrays)
    assert [array.dtype for array in arrays] == [getattr(scan(b"<p>x"), name).dtype for name in blocks.__slots__[:-1]]


def test_equal_texts_have_equal_hashes() -> None:
    blocks = scan(b"<p>Same <b>te</b>xt.</p><div>same text</div><p>other text</p>")
    assert blocks.text_hash[0] == blocks.text_hash[1] != blocks.text_hash[2]


def test_many_tokens_of_one_page_are_all_there() -> None:
    html = "<p>" + "".join(f"<i class='{' '.join(f'a{chr(97 + k % 26)}{i}x' for k in range(30))}'>" for i in range(40))
    blocks = scan(html.encode())
    assert len(blocks.token_hash) == 40 * 30


def test_real_pages_hold_together(shared_data: Path) -> None:
    """Every span of every block lies in the page, in order; every parent before its child."""
    with (shared_data / "crawl" / "pages-00002.warc.gz").open("rb") as stream:
        pages = [event.block for event in islice(warc.read(stream), 60) if isinstance(event, warc.Record)]
    for page in pages:
        blocks = scan(page)
        assert (np.diff(blocks.first_span) > 0).all()
        assert (blocks.span_start[1:] >= blocks.span_end[:-1]).all()
        assert (blocks.parent[1:] < np.arange(1, len(blocks.parent))).all()
        assert (blocks.counts[:, sc.CHARS] > 0).all()
        assert (blocks.owner < len(blocks.parent)).all()
