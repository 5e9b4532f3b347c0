"""Pages made to hurt: time stays linear in their bytes, and no text is lost."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import numpy as np
import pytest

from pipeline.extract import scan as sc
from pipeline.extract.emit import emit
from pipeline.extract.page_json import json_text
from pipeline.extract.scan import scan

SHAPES: dict[str, Callable[[int], str]] = {
    "nested with text": lambda n: "".join(f"<div>x{i} " for i in range(n)) + "</div>" * n,
    "nested inline": lambda n: "<b><i><font>x" * n,
    "nested and closed inline": lambda n: "<b>" * n + "x" + "</b>" * n,
    "nested definitions": lambda n: "<dl><dd>x" * n,
    "nested tables": lambda n: "<table><tr><td>x" * n,
    "nested lists": lambda n: "<ul><li>x" * n + "</ul>" * n,
    "nested forms": lambda n: "<form>x" * n + "</form>y" * n,
    "nested links": lambda n: "<a href=x>x" * n,
    "unclosed everything": lambda n: "<p>x<li>x<td>x<b>x<a href=x>x<h1>x<dd>x<x-y>x<unknown>x" * n,
    "paragraphs": lambda n: "<p>x y z." * n,
    "stray end tags": lambda n: "<div><b>" * 100 + "x</p></table></i>" * n,
    "rows of links": lambda n: "<table>" + "<tr><td><a href=x>x</a><td>y</tr>" * n + "</table>",
    "breaks": lambda n: "<span>x</span><br>" * n,
    "attributes": lambda n: "<p " + "x=y z='w' " * n + ">x",
    "one class value": lambda n: f"<p class='{'ab-cd ' * n}'>x",
    "one style value": lambda n: f"<p style='{'display:' * n}'>x",
    "quotes never closed": lambda n: "<a href=\"x><b title='>x" * n,
    "comments never closed": lambda n: "<!-- x" * n,
    "comments of nothing": lambda n: "<!></ ><?>x" * n,
    "skipped, never closed": lambda n: "<svg>x<template>x<iframe>x<noscript>x<title>" * n,
    "skipped, half closed": lambda n: "<svg><svg>x</svg><object>x" * n,
    "scripts": lambda n: "<script>x</script>" * n,
    "one script": lambda n: "<script>" + "</scrip <" * n,
    "less-than signs": lambda n: "<" * n + " x",
    "ampersands": lambda n: "&" * n + "&#" * n + "&ampx" * n + "&#" + "9" * n,
    "preformatted": lambda n: "<pre>\n x<br></pre>" * n + "<pre>" + "\n" * n + "x",
    "one word": lambda n: "x" * n + "漢" * n,
    "full stops": lambda n: "x" + "." * n,
    "white space": lambda n: "x" + " " * n + "y" + "&nbsp;" * n,
    "NULs": lambda n: "x" + "\0" * n + "<\0p>" * n,
    "headings of the title": lambda n: "<title>a b</title>" + "<h1>a b c</h1><h2>a b</h2>" * n,
}


#: Where a browser shows less than what stands between the tags
NOT_ALL_SHOWN = {
    "comments never closed", "comments of nothing", "scripts", "one script", "skipped, half closed",
    "quotes never closed", "headings of the title", "NULs",
}  # fmt: skip
TAG = re.compile("</?[a-z][^<>]*>")


def seconds(page: bytes, work: Callable[[bytes], object]) -> float:
    begin = time.process_time()
    work(page)
    return time.process_time() - begin


def all_text(page: bytes) -> str:
    blocks = scan(page)
    return emit(blocks, np.ones(len(blocks.owner), np.bool_))


@pytest.mark.parametrize("name", SHAPES)
def test_time_is_linear(name: str) -> None:
    small, large = (SHAPES[name](n).encode() for n in (2_000, 32_000))
    all_text(small)
    factor = len(large) / len(small)
    base = min(seconds(small, all_text) for _ in range(3))
    assert seconds(large, all_text) < 4 * factor * max(base, 0.001)


@pytest.mark.parametrize("name", sorted(SHAPES.keys() - NOT_ALL_SHOWN))
def test_no_text_is_lost(name: str) -> None:
    html = SHAPES[name](3_000)
    shown = TAG.sub("", html).count("x")
    assert shown > 0
    assert all_text(html.encode()).count("x") == shown


def test_a_hundred_thousand_levels_with_a_text_in_each() -> None:
    n = 100_000
    blocks = scan(("<div>" * n + "deepest").encode())
    assert len(blocks.owner) == 1
    page = "".join(f"<div>w{i} " for i in range(n)) + "</div>end" * n
    words = all_text(page.encode()).split()
    assert words[:n] == [f"w{i}" for i in range(n)]
    assert words[n:] == ["end"] * n


def test_more_blocks_than_there_may_be_are_in_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sc, "MAX_BLOCKS", 10)
    monkeypatch.setattr(sc, "MAX_ELEMENTS", 12)
    page = "".join(f"<p>w{i}</p>" for i in range(100)) + "<ul><li>end"
    blocks = scan(page.encode())
    assert len(blocks.owner) == 10
    assert len(blocks.parent) == 12
    assert emit(blocks, np.ones(10, np.bool_)).split() == [f"w{i}" for i in range(100)] + ["end"]


def test_fifty_megabytes_of_attributes() -> None:
    page = b"<p>before</p>" + b"<p data-x='yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy' class='ab cd'></p>" * 800_000 + b"after"
    assert len(page) > 50_000_000
    begin = time.process_time()
    assert all_text(page) == "before\nafter"
    assert time.process_time() - begin < 5


def test_json_of_any_depth_and_size() -> None:
    for state in (
        "[" * 200_000,
        '{"body":' * 200_000,
        '{"body":[' + '{"text":"a b"},' * 300_000 + "1]}",
        '"' * 100_000,
    ):
        html = (
            f"<script type=application/json>{state}</script>" * 3 + f"<script>window.__STATE__ = {state}</script>" * 3
        )
        begin = time.process_time()
        json_text(html)
        assert time.process_time() - begin < 5
