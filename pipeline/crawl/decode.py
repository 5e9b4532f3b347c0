"""A record as a page: HTTP taken apart, encodings undone within limits, bytes turned into text.

A page that was cut, by the crawler (WARC-Truncated) or on its way (its body is shorter than its headers or its own
format say), is rejected as `truncated`: half a page makes a document that ends mid-sentence, and what it lacks nobody
can count.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from pipeline.crawl.charset import Source, declared_in_content_type, to_text
from pipeline.crawl.http import Bytes, decoded_body, parse
from pipeline.crawl.warc import Record
from pipeline.errors import Rejected
from pipeline.recipe import Limits

HTML_TYPES = frozenset({"text/html", "application/xhtml+xml", "application/vnd.wap.xhtml+xml"})
#: Types that say nothing; the bytes then decide.
_NO_TYPES = frozenset({"", "unknown", "*/*", "unknown/unknown", "application/unknown", "no-type"})
_BINARY = (
    b"%PDF-", b"%!PS", b"PK\x03\x04", b"\x89PNG", b"GIF8", b"\xff\xd8\xff", b"RIFF", b"OggS", b"ID3", b"wOFF", b"wOF2",
    b"Rar!", b"7z\xbc\xaf", b"\x7fELF", b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"{\\rtf", b"\xd0\xcf\x11\xe0", b"fLaC",
    b"\x00\x00\x01\x00", b"\x00\x01\x00\x00\x00", b"\x1a\x45\xdf\xa3", b"FWS", b"CWS", b"II*\x00", b"MM\x00*",
)  # fmt: skip
_HTML_MARK = re.compile(
    rb"<(?:!doctype\s+html|html|head|body|title|meta|script|style|div|h1|p|a|table|br|!--)[\s>/-]", re.I
)
_FEED = re.compile(rb"<(?:rss|feed|rdf:RDF|urlset|sitemapindex|svg|opml)[\s>]")


@dataclass(frozen=True, slots=True)
class Page:
    """`html` holds no lone surrogates and no controls (the rule is charset's); with `is_text` it is ready text (WET).

    `html_bytes` is the size of the decoded body before it became text.
    """

    url: str | None
    http_status: int | None = None
    mime: str | None = None
    charset: str | None = None
    charset_source: str | None = None
    html: str = ""
    html_bytes: int | None = None
    is_text: bool = False


class PageRejected(Rejected):
    """A Rejected that also tells what was learnt of the page before its end; `page.html` is empty."""

    def __init__(self, cause: Rejected, page: Page) -> None:
        super().__init__(cause.stage, cause.reason, cause.detail)
        self.page = page


def decode(record: Record, limits: Limits | None = None) -> Page:
    """The page in `record`. Raises PageRejected at the stages read, fetch or decode."""
    limits = limits or Limits()
    seen = Page(record.url)
    try:
        if record.problem:
            raise Rejected("read", *record.problem)
        if record.truncated:
            raise Rejected("read", "truncated", f"WARC-Truncated: {record.truncated[:40]}")
        if record.warc_type == "revisit":
            raise Rejected("fetch", "revisit")
        content_type = record.content_type
        source: Source = "record"
        body: Bytes = memoryview(record.block)
        if record.http:
            response = parse(record.block)
            if response is None:
                raise Rejected("read", "bad_header", "no HTTP status line")
            content_type, source = response.fields.get("content-type"), "http"
            seen = replace(seen, http_status=response.status, mime=_mime(content_type))
            if response.status != 200:
                raise Rejected("fetch", "http_status", str(response.status))
            if seen.mime not in HTML_TYPES and seen.mime not in _NO_TYPES and seen.mime is not None:
                raise Rejected("fetch", "not_html", seen.mime)
            if not response.body:
                raise Rejected("fetch", "empty_body")
            body = decoded_body(response, limits)
        else:
            seen = replace(seen, mime=_mime(content_type))
        seen = replace(seen, html_bytes=len(body))
        if len(body) > limits.body_mib * 1024 * 1024:
            raise Rejected("read", "too_large", f"body over {limits.body_mib:g} MiB")
        if not bytes(body[:65536]).strip() and not bytes(body).strip():
            raise Rejected("fetch", "empty_body")
        is_text = record.warc_type == "conversion" and seen.mime in ("text/plain", None)
        if not is_text:
            _require_html(seen.mime, bytes(body[:4096]))
        label = declared_in_content_type(content_type) or ("utf-8" if is_text else None)
        decoded = to_text(body, label, source)
        return replace(seen, charset=decoded.charset, charset_source=decoded.source, html=decoded.text, is_text=is_text)
    except Rejected as cause:
        raise PageRejected(cause, seen) from None


def _mime(content_type: str | None) -> str | None:
    if content_type is None:
        return None
    value = content_type.partition(";")[0].partition(",")[0].strip().lower()
    return value.encode("utf-8", "replace").decode("utf-8")[:100]


def _require_html(mime: str | None, head: bytes) -> None:
    """Raises Rejected(fetch, not_html) for what is no HTML by its label or, whatever the label, by its first bytes."""
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    for magic in _BINARY:
        if start.startswith(magic) or head.startswith(magic):
            raise Rejected("fetch", "not_html", f"labelled {mime}, begins with {magic!r}")
    if head[4:8] == b"ftyp":
        raise Rejected("fetch", "not_html", f"labelled {mime}, an MP4 file")
    if start.startswith(b"<?xml") or start.startswith(b"<"):
        feed = _FEED.search(start[:512])
        if feed and not _HTML_MARK.search(start[: feed.start()]):
            raise Rejected("fetch", "not_html", f"labelled {mime}, begins with {feed[0][1:-1].decode()!r}")
    if mime in HTML_TYPES:
        return
    if mime is not None and mime not in _NO_TYPES:
        raise Rejected("fetch", "not_html", mime)
    if not (_HTML_MARK.search(head[:1024]) or head[:2] in (b"\xff\xfe", b"\xfe\xff")):
        raise Rejected("fetch", "not_html", "no type, and no HTML by its first bytes")
