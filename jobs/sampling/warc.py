"""Captures as WARC/1.0 bytes, laid out as Common Crawl does: request, response and metadata, a gzip member each."""

from __future__ import annotations

import base64
import hashlib
import struct
import uuid
import zlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import brotli

_START = datetime(2024, 3, 1, 6, 0, 0, tzinfo=UTC)
CRAWL = "GRISTMILL-SAMPLE-2024-10"
_REASONS = {200: "OK", 301: "Moved Permanently", 302: "Found", 404: "Not Found", 410: "Gone", 500: "Server Error"}


@dataclass(frozen=True, slots=True)
class Capture:
    """One fetched page. `body` is the payload before `coding`."""

    kind: str  #: what it is in the sample's mix
    url: str
    body: bytes
    charset: str = "utf-8"  #: of `body`, whether or not anything says so
    content_type: str | None = "text/html; charset=utf-8"
    status: int = 200
    coding: str = ""  #: "", gzip, br or deflate
    chunked: bool = False
    location: str | None = None  #: a redirect's target
    revisit: bool = False  #: the server said that nothing had changed: headers only
    cut: float | None = None  #: share of the body that the crawler kept (WARC-Truncated: length)


def member(data: bytes) -> bytes:
    """`data` as one gzip member; written by hand, for Python versions differ in the header."""
    deflate = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
    body = deflate.compress(data) + deflate.flush()
    return b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff" + body + struct.pack("<II", zlib.crc32(data), len(data))


def warcinfo(name: str, namespace: uuid.UUID) -> bytes:
    fields = {
        "isPartOf": CRAWL,
        "publisher": "gristmill sample",
        "description": "Made-up pages for trying things on",
        "format": "WARC File Format 1.0",
    }
    block = "".join(f"{key}: {value}\r\n" for key, value in fields.items()).encode()
    record_id = uuid.uuid5(namespace, f"warcinfo:{name}")
    headers = {"WARC-Filename": name, "Content-Type": "application/warc-fields"}
    return _record("warcinfo", record_id, _START, headers, block)


def records(capture: Capture, number: int, namespace: uuid.UUID) -> list[bytes]:
    """The request, response (or revisit) and metadata records of `capture`, each a gzip member."""
    moment = _START + timedelta(seconds=7 * number)
    ids = {kind: uuid.uuid5(namespace, f"{kind}:{number}") for kind in ("request", "response", "metadata")}
    address = f"192.0.2.{zlib.crc32(urlsplit(capture.url).netloc.encode()) % 254 + 1}"
    common = {"WARC-Target-URI": capture.url, "WARC-IP-Address": address}
    request = _record(
        "request",
        ids["request"],
        moment,
        common | {"Content-Type": "application/http; msgtype=request", "WARC-Concurrent-To": _urn(ids["response"])},
        _request(capture.url),
    )
    head, payload = _response(capture)
    extra = dict(common) | {"Content-Type": "application/http; msgtype=response"}
    if capture.cut is not None:
        payload = payload[: int(len(payload) * capture.cut)]
        extra["WARC-Truncated"] = "length"
    extra["WARC-Payload-Digest"] = _digest(payload)
    if capture.revisit:
        extra["WARC-Profile"] = "http://netpreserve.org/warc/1.0/revisit/server-not-modified"
        response = _record("revisit", ids["response"], moment, extra, head)
    else:
        response = _record("response", ids["response"], moment, extra, head + payload)
    metadata = _record(
        "metadata",
        ids["metadata"],
        moment,
        common | {"Content-Type": "application/warc-fields", "WARC-Concurrent-To": _urn(ids["response"])},
        f"fetchTimeMs: {100 + number * 37 % 900}\r\n".encode(),
    )
    return [request, response, metadata]


def _record(kind: str, record_id: uuid.UUID, moment: datetime, headers: dict[str, str], block: bytes) -> bytes:
    lines = {
        "WARC-Type": kind,
        "WARC-Date": moment.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "WARC-Record-ID": _urn(record_id),
        "Content-Length": str(len(block)),
        **headers,
        "WARC-Block-Digest": _digest(block),
    }
    head = "WARC/1.0\r\n" + "".join(f"{key}: {value}\r\n" for key, value in lines.items()) + "\r\n"
    return member(head.encode() + block + b"\r\n\r\n")


def _request(url: str) -> bytes:
    parts = urlsplit(url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return f"GET {target} HTTP/1.1\r\nHost: {parts.netloc}\r\nAccept-Encoding: br, gzip, deflate\r\n\r\n".encode()


def _response(capture: Capture) -> tuple[bytes, bytes]:
    """The HTTP header block and the encoded payload."""
    payload = capture.body
    if capture.coding == "gzip":
        payload = member(payload)
    elif capture.coding == "deflate":
        payload = zlib.compress(payload, 6)
    elif capture.coding == "br":
        payload = brotli.compress(payload, quality=5)
    status = 304 if capture.revisit else capture.status
    lines = [f"HTTP/1.1 {status} {'Not Modified' if status == 304 else _REASONS[status]}", "Server: nginx"]
    if capture.content_type:
        lines.append(f"Content-Type: {capture.content_type}")
    if capture.coding:
        lines.append(f"Content-Encoding: {capture.coding}")
    if capture.location:
        lines.append(f"Location: {capture.location}")
    if capture.chunked:
        lines.append("Transfer-Encoding: chunked")
        pieces = [payload[i : i + 4096] for i in range(0, len(payload), 4096)]
        payload = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in [*pieces, b""])
    else:
        lines.append(f"Content-Length: {len(payload)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode(), payload


def _digest(data: bytes) -> str:
    return "sha1:" + base64.b32encode(hashlib.sha1(data).digest()).decode()


def _urn(record_id: uuid.UUID) -> str:
    return f"<urn:uuid:{record_id}>"
