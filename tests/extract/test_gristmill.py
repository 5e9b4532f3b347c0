"""Our own engine beside what all engines must do (test_extract.py): structure, settings, confidence, JSON, noscript."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from random import Random

import pytest

from pipeline.extract import Extracted, extract
from pipeline.recipe import Extract
from tests.extract.test_extract import LONG, SENTENCE, body, page


def run(html: str, **settings: object) -> Extracted:
    return extract(html, None, Extract(engine="gristmill", **settings))  # type: ignore[arg-type]


ARTICLE = "".join(f"<p>{SENTENCE} {LONG} This is paragraph {i} of the article.</p>" for i in range(6))
MORE = ARTICLE.replace("paragraph", "further paragraph")
MENU = "<nav class=menu><ul>" + "".join(f"<li><a href=/{i}>Section {i}</a></li>" for i in range(12)) + "</ul></nav>"
COOKIES = "<div class='cookie-banner consent'><p>We use cookies.</p><button>Accept all</button></div>"
FOOTER = "<footer><p><a href=/terms>Terms</a> <a href=/privacy>Privacy</a> © 2024 Some Company</p></footer>"
WHOLE = body(f"{COOKIES}{MENU}<main><article><h1>A title of it</h1>{ARTICLE}</article></main>{FOOTER}")


def test_the_article_and_nothing_else() -> None:
    got = run(WHOLE)
    assert got.text.split("\n") == [
        "A title of it",
        *(f"{SENTENCE} {LONG} This is paragraph {i} of the article." for i in range(6)),
    ]
    assert got.text_source == "page"
    assert got.confidence is not None
    assert 0.8 < got.confidence <= 1
    assert got.visible_ratio is not None
    assert 0.8 < got.visible_ratio < 1


#: Consonants and vowels of scripts that put no space between words
UNSPACED = {
    "Thai": "กขคงจชซดตถทนบปผพมยรลวสหอะาเแโ",
    "Lao": "ກຂຄງຈຊດຕຖທນບປຜພມຢຣລວສຫອະາເແໂ",
    "Khmer": "កខគឃងចឆជឈញដឋឌឍណតថទធនបផពភមយរលវសហអាិីុូេ",
    "Burmese": "ကခဂဃငစဆဇညတထဒဓနပဖဗဘမယရလဝသဟအာိီုူေ",
    "Chinese": "的一是在不了有和人这中大为上个国我以要他时来用们生到作地于出",
}


@pytest.mark.parametrize("script", UNSPACED)
def test_scripts_without_spaces(script: str) -> None:
    draw = Random(script)

    def phrase(n: int) -> str:
        return "".join(draw.choices(UNSPACED[script], k=n))

    paragraphs = [" ".join(phrase(30) for _ in range(8)) for _ in range(6)]
    menu = "".join(f"<li><a href=/{i}>{phrase(6)}</a></li>" for i in range(12))
    article = "".join(f"<p>{paragraph}</p>" for paragraph in paragraphs)
    title = phrase(20)
    html = body(
        f"<nav class=menu><ul>{menu}</ul></nav><main><article><h1>{title}</h1>{article}</article></main>"
        f"<footer><p><a href=/a>{phrase(8)}</a> <a href=/b>{phrase(8)}</a></p></footer>"
    )
    got = run(html)
    assert got.text.split("\n") == [title, *paragraphs]
    assert got.confidence is not None
    assert got.confidence > 0.8


def test_structure_is_kept() -> None:
    inner = (
        f"<h2>What to bring</h2><ul><li>{LONG}</li><li>{SENTENCE}</li></ul>"
        "<pre>for x in y:\n    print(x)</pre>"
        "<table><tr><th>Length of road</th><th>Year</th></tr><tr><td>Twelve miles</td><td>1854</td></tr></table>"
    )
    text = run(body(f"<article><h1>A title of it</h1>{ARTICLE}{inner}{MORE}</article>")).text
    assert f"\nWhat to bring\n- {LONG}\n- {SENTENCE}\nfor x in y:\n    print(x)\nLength of road | Year\n" in text
    assert "\nTwelve miles | 1854\n" in text


def test_tables_can_be_left_out() -> None:
    table = f"<table><tr><td>CELLMARK {SENTENCE}</td><td>{LONG}</td></tr></table>"
    html = body(f"<article>{ARTICLE}{table}{ARTICLE}</article>")
    assert "CELLMARK" in run(html).text
    assert "CELLMARK" not in run(html, tables=False).text


def test_comments_can_be_left_out_unless_all_is_called_so() -> None:
    comments = f"<div class=comments><div class=comment><p>COMMENTMARK {LONG} {SENTENCE}</p></div></div>"
    assert "COMMENTMARK" not in run(body(f"<article>{ARTICLE}</article>{comments}"), comments=False).text
    whole = WHOLE.replace("<main>", "<main class='comments-open'>")
    assert run(whole, comments=False).text == run(whole).text


def test_precision_keeps_no_more_and_recall_no_less() -> None:
    html = page(f"<p>{LONG}</p>") + "<div class=related><p>Also read what else there is</p></div>"
    precise, balanced, complete = (
        set(run(html, favor=favor).text.split("\n")) for favor in ("precision", "balanced", "recall")
    )
    assert precise <= balanced <= complete


def test_blocks_that_come_twice_are_written_once() -> None:
    paragraphs = "".join(f"<p>Paragraph {i} says that {LONG} {SENTENCE}</p>" for i in range(12))
    note = f"<div>A note for every screen: {LONG}</div>"
    text = run(
        body(f"<article><h1>A title of it</h1>{note}{paragraphs}{note}<p>Short.</p><p>Short.</p></article>")
    ).text
    assert text.count("A note for every screen") == 1
    assert text.count("Paragraph") == 12


def test_text_out_of_json() -> None:
    state = json.dumps({"@type": "NewsArticle", "articleBody": f"{SENTENCE}\n{LONG}"})
    got = run(body(f"<div id=app></div><script type=application/ld+json>{state}</script>"))
    assert (got.text, got.text_source, got.confidence) == (f"{SENTENCE}\n{LONG}", "json", None)
    assert (
        run(WHOLE.replace("<body>", f"<body><script type=application/ld+json>{state}</script>")).text_source == "page"
    )


def test_text_out_of_noscript() -> None:
    got = run(body(f"<div id=app></div><noscript><article>{ARTICLE}</article></noscript>"))
    assert "paragraph 5" in got.text
    assert got.text_source == "page"


@pytest.mark.parametrize(
    "shape",
    [
        lambda n: "<table>" + "".join(f"<tr><td><a href=/{i}>Row {i}</a></td></tr>" for i in range(n)) + "</table>",
        lambda n: "<p>some text of it" * n,
        lambda n: "".join(f"<div>text {i} " for i in range(n)) + "</div>" * n,
        lambda n: "<p>x<li>x<td>x<b>x<a href=x>x<h1>x<dd>x<x-y>x<unknown>x" * (n // 8),
    ],
    ids=["rows", "paragraphs", "nested", "soup"],
)
def test_case_13_time_is_linear(shape: Callable[[int], str]) -> None:
    small, large = page(shape(4_000)), page(shape(32_000))
    run(small)
    base = min(seconds(small) for _ in range(3))
    assert seconds(large) < 4 * 8 * max(base, 0.002)


def seconds(html: str) -> float:
    begin = time.process_time()
    run(html)
    return time.process_time() - begin


@pytest.mark.parametrize("engine", ["trafilatura", "resiliparse"])
def test_other_engines_have_no_confidence(engine: str) -> None:
    got = extract(WHOLE, None, Extract(engine=engine))  # type: ignore[arg-type]
    assert (got.confidence, got.text_source) == (None, "page")
    assert got.visible_ratio is not None
    assert 0.8 < got.visible_ratio <= 1
