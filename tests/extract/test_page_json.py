"""Text out of a page's JSON: where it stands on the web, and nothing that is no text."""

from __future__ import annotations

import html
import json

import pytest

from pipeline.extract.page_json import json_text

FIRST = (
    "The old road over the pass was closed for the winter, and nobody in the village thought much of it at the time."
)
SECOND = (
    "In spring, when the snow had gone, they found that the bridge at its upper end had fallen into the gorge below."
)
BODY = f"{FIRST}\n{SECOND}"
MARKUP = f"<p>{FIRST}</p><p>{SECOND.replace('the', '<b>the</b>', 1)}</p>"


def script(content: str, attributes: str = "") -> str:
    return f"<html><body><div id=app></div><script {attributes}>{content}</script></body></html>"


NEXT = {"props": {"pageProps": {"post": {"slug": "old-road", "body": {"html": MARKUP}}}}}
PORTABLE = {
    "content": [{"_type": "block", "children": [{"text": FIRST}]}, {"_type": "block", "children": [{"text": SECOND}]}]
}
THREAD = {
    "topic_1": json.dumps({"posts": [{"id": 1, "cooked": f"<p>{FIRST}</p>"}, {"id": 2, "cooked": f"<p>{SECOND}</p>"}]})
}
LD = {
    "@context": "https://schema.org",
    "@graph": [{"@type": "WebSite", "name": "x"}, {"@type": "NewsArticle", "articleBody": BODY}],
}


@pytest.mark.parametrize(
    "page",
    [
        script(json.dumps(LD), "type='application/ld+json'"),
        script(json.dumps(NEXT), 'id="__NEXT_DATA__" type="application/json"'),
        script(f"window.__INITIAL_STATE__ = {json.dumps(NEXT)}; start();"),
        script(f'window["__APOLLO_STATE__"]={json.dumps({"Post:1": {"content": MARKUP}})}'),
        script(f"var pageData = {json.dumps(PORTABLE)};"),
        script(json.dumps(LD).replace("{", '{"n": %s,' % ("9" * 5000), 1), "type='application/ld+json'"),
        f'<div id="data-preloaded" data-preloaded="{html.escape(json.dumps(THREAD))}"></div>',
        f"<div data-page='{html.escape(json.dumps(NEXT))}'></div>",
        script(
            json.dumps({"body": BODY, "content": "x" * 5000, "text": "a { color: red } " * 100}),
            "type=application/json",
        ),
    ],
)
def test_where_it_is_found(page: str) -> None:
    assert json_text(page) == BODY


@pytest.mark.parametrize(
    "page",
    [
        "",
        "<p>" + BODY,
        script("{", "type=application/json"),
        script(json.dumps({"body": FIRST}), "type=application/json"),  # too short
        script(json.dumps({"caption": BODY}), "type=application/json"),  # no such key
        script(json.dumps({"body": "https://ex.test/" + "a" * 300}), "type=application/json"),
        script(json.dumps({"text": "if (x) { y = z[0]; } else { w(); } " * 30}), "type=application/json"),
        script(f"render('{BODY}')"),
    ],
)
def test_where_there_is_none(page: str) -> None:
    assert json_text(page) is None


def test_a_damaged_state_does_not_hide_the_next() -> None:
    assert json_text(script("{]", "type=application/json") + script(json.dumps(LD), "type=application/ld+json")) == BODY


def test_more_than_the_bound_is_not_read() -> None:
    large = script(json.dumps({"filler": "x" * 5_000_000, "body": BODY}), "type=application/json")
    assert json_text(large) is None
