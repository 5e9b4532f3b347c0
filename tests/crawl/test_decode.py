"""A record is a page or has one reason why not; encodings are undone within limits, whatever the labels say."""

from __future__ import annotations

import gzip
import zlib
from typing import Any

import brotli
import pytest
import zstandard

from pipeline.crawl.decode import Page, PageRejected, decode
from pipeline.crawl.warc import Record
from pipeline.recipe import Limits
from tests.crawl.archives import events, http, record
from tests.memory import forget_peak, peak_kib

HTML = b"<html><body><p>Some words on a page, and then some more of them.</p></body></html>"


def one(data: bytes) -> Record:
    (event,) = events(data)
    assert isinstance(event, Record)
    return event


def got(block: bytes, limits: Limits | None = None, **keywords: Any) -> Page:
    return decode(one(record(block, **keywords)), limits)


def rejected(block: bytes, limits: Limits | None = None, **keywords: Any) -> tuple[str, str]:
    with pytest.raises(PageRejected) as caught:
        got(block, limits, **keywords)
    assert caught.value.page.html == ""
    return caught.value.stage, caught.value.reason


def chunked(body: bytes, size: int = 20, last: bytes = b"0\r\n\r\n") -> bytes:
    parts = [body[i : i + size] for i in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in parts) + last


def raw_deflate(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(body) + packer.flush()


PACKERS = {
    "gzip": gzip.compress, "x-gzip": gzip.compress, "deflate": zlib.compress, "Deflate": raw_deflate,
    "br": brotli.compress, "zstd": zstandard.compress, "identity": bytes, "utf-8": bytes,
}  # fmt: skip


def test_a_plain_page() -> None:
    page = got(http(HTML, content_type="Text/HTML; charset=UTF-8", Content_Length=str(len(HTML))))
    assert page == Page("http://ex.test/0", 200, "text/html", "utf-8", "http", HTML.decode(), len(HTML))


@pytest.mark.parametrize("name", PACKERS)
def test_content_encodings(name: str) -> None:
    packed = PACKERS[name](HTML)
    assert got(http(packed, Content_Encoding=name, Content_Length=str(len(packed)))).html == HTML.decode()
    assert got(http(chunked(packed), Content_Encoding=name, Transfer_Encoding="chunked")).html == HTML.decode()
    assert got(http(HTML, Content_Encoding=name)).html == HTML.decode(), "stored decoded, still labelled"


def test_stacked_and_unlabelled_encodings() -> None:
    twice = brotli.compress(gzip.compress(HTML))
    assert got(http(twice, Content_Encoding="gzip, br")).html == HTML.decode()
    assert got(http(gzip.compress(HTML))).html == HTML.decode()
    assert got(http(gzip.compress(gzip.compress(HTML)), Content_Encoding="gzip")).html == HTML.decode()
    assert got(http(gzip.compress(HTML) + gzip.compress(HTML), Content_Encoding="gzip")).html == HTML.decode() * 2
    assert got(http(gzip.compress(HTML) + b"\0" * 9, Content_Encoding="gzip")).html == HTML.decode()


def test_chunks_under_wrong_labels() -> None:
    assert got(http(chunked(HTML))).html == HTML.decode()
    assert got(http(HTML, Transfer_Encoding="chunked")).html == HTML.decode()
    assert got(http(chunked(HTML, last=b"0\r\nTrailer: x\r\n\r\n"), Transfer_Encoding="chunked")).html == HTML.decode()
    number = b"12\r\n<p>a page that begins with a number</p>"
    assert got(http(number)).html == number.decode()


@pytest.mark.parametrize(
    ("block", "keywords", "verdict"),
    [
        (http(HTML), {"extra": ["WARC-Truncated: length"]}, ("read", "truncated")),
        (http(HTML, Content_Length=str(2 * len(HTML))), {}, ("read", "truncated")),
        (http(chunked(HTML)[:-30], Transfer_Encoding="chunked"), {}, ("read", "truncated")),
        (http(chunked(HTML, last=b""), Transfer_Encoding="chunked"), {}, ("read", "truncated")),
        (http(gzip.compress(HTML)[:-20], Content_Encoding="gzip"), {}, ("read", "truncated")),
        (http(brotli.compress(HTML)[:-9], Content_Encoding="br"), {}, ("read", "truncated")),
        (http(zstandard.compress(HTML)[:-9], Content_Encoding="zstd"), {}, ("read", "truncated")),
        (http(b"", "204 No Content"), {}, ("fetch", "http_status")),
        (http(HTML, "301 Moved"), {}, ("fetch", "http_status")),
        (http(HTML, "404 Not Found", Content_Length="9999"), {}, ("fetch", "http_status")),
        (http(HTML, "206 Partial"), {}, ("fetch", "http_status")),
        (http(HTML), {"kind": "revisit"}, ("fetch", "revisit")),
        (http(b""), {}, ("fetch", "empty_body")),
        (http(b" \r\n\t"), {}, ("fetch", "empty_body")),
        (http(gzip.compress(b"", mtime=0), Content_Encoding="gzip"), {}, ("fetch", "empty_body")),
        (http(HTML, content_type="application/json"), {}, ("fetch", "not_html")),
        (http(b"%PDF-1.4 " + bytes(range(256))), {}, ("fetch", "not_html")),
        (http(b"\n\n%PDF-1.4 " + bytes(range(256))), {}, ("fetch", "not_html")),
        (http(b"\x89PNG\r\n\x1a\n" + bytes(64)), {}, ("fetch", "not_html")),
        (http(b'<?xml version="1.0"?>\n<rss version="2.0"><channel>'), {}, ("fetch", "not_html")),
        (http(b"just words", content_type=None), {}, ("fetch", "not_html")),
        (http(b"x" + HTML, Content_Encoding="compress"), {}, ("decode", "content_encoding")),
        (
            http(b"\x1f\x8b\x08\0\0\0\0\0\0\3" + b"\xff" * 99, Content_Encoding="gzip"),
            {},
            ("decode", "content_encoding"),
        ),
        (http(bytes(range(128, 256)) * 9, Content_Encoding="br"), {}, ("decode", "content_encoding")),
        (http(bytes(b * 37 % 128 + 128 for b in range(999))), {}, ("decode", "undecodable")),
        (b"no status line at all", {}, ("read", "bad_header")),
        (HTML, {"kind": "resource", "content_type": "image/png"}, ("fetch", "not_html")),
        (b"", {"kind": "conversion", "content_type": "text/plain"}, ("fetch", "empty_body")),
    ],
)
def test_each_cause_has_its_reason(block: bytes, keywords: Any, verdict: tuple[str, str]) -> None:  # case 8
    assert rejected(block, **keywords) == verdict


def test_what_was_learnt_of_a_rejected_page_is_told() -> None:
    with pytest.raises(PageRejected) as caught:
        got(http(HTML, "404 Not Found"))
    assert (caught.value.page.http_status, caught.value.page.mime) == (404, "text/html")


def test_pages_without_http() -> None:
    page = got(HTML, kind="resource", content_type="text/html; charset=utf-8")
    assert (page.html, page.http_status, page.charset_source) == (HTML.decode(), None, "record")
    wet = got("Ein Text über Öl.\n".encode(), kind="conversion", content_type="text/plain")
    assert (wet.html, wet.is_text, wet.charset) == ("Ein Text über Öl.\n", True, "utf-8")
    assert got(http(HTML, content_type=None)).html == HTML.decode()


@pytest.mark.parametrize("name", ["gzip", "deflate", "br", "zstd"])
def test_bombs_stop_at_the_limit(name: str) -> None:  # case 7
    packed = PACKERS[name](b" " * (256 << 20))
    forget_peak()
    before = peak_kib()
    assert rejected(http(packed, Content_Encoding=name)) == ("read", "too_large")
    assert rejected(http(gzip.compress(packed), Content_Encoding=f"{name}, gzip")) == ("read", "too_large")
    assert peak_kib() - before < 200 * 1024


def test_limits_are_on_size_and_on_ratio() -> None:
    body = b"<p>" + b"a" * (3 << 20)
    packed = gzip.compress(body)
    assert rejected(http(packed, Content_Encoding="gzip")) == ("read", "too_large")
    loose = Limits(inflation_ratio=1e6)
    assert got(http(packed, Content_Encoding="gzip"), loose).html_bytes == len(body)
    assert rejected(http(packed, Content_Encoding="gzip"), Limits(inflation_ratio=1e6, body_mib=2)) == (
        "read", "too_large")  # fmt: skip
    assert rejected(http(body), Limits(body_mib=2.5)) == ("read", "too_large")
    small = b"<p>" + b"a" * (900 << 10)
    assert got(http(gzip.compress(small), Content_Encoding="gzip")).html_bytes == len(small)
