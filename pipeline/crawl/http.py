"""An HTTP response as a crawler stored it: status, headers, and the body with its encodings undone.

Labels lie, so bytes decide: a body labelled chunked or compressed that is not comes out as it is, and one that is but
is not labelled so is undone as well. Decoding stops at the limits, whatever the headers promise.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import brotli
import zstandard
from zlib_ng import zlib_ng

from pipeline.errors import Rejected
from pipeline.recipe import Limits

MIB = 1024 * 1024
Bytes = bytes | memoryview
_STATUS = re.compile(rb"HTTP/\d(?:\.\d)?[ \t]+(\d{3})")
_CHUNK_SIZE = re.compile(rb"[ \t]*([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]{0,256})?\r?\n")
#: Seen in Content-Encoding fields, and saying nothing about an encoding.
_NO_ENCODING = frozenset({"", "identity", "none", "binary", "8bit", "7bit", "text", "utf-8", "utf8", "iso-8859-1"})
_MAX_LAYERS = 5
_ERRORS: tuple[Any, ...] = (zlib_ng.error, brotli.error, zstandard.ZstdError, ValueError)


@dataclass(frozen=True, slots=True)
class Response:
    """Field names are lower case; of repeated fields all values stand, joined by commas, as HTTP has it."""

    status: int
    fields: dict[str, str]
    body: memoryview


def parse(block: bytes) -> Response | None:
    """The response in a record's block; None when it does not begin with an HTTP status line."""
    match = _STATUS.match(block)
    if match is None:
        return None
    end = _headers_end(block)
    fields: dict[str, str] = {}
    name = ""
    for line in block[:end].split(b"\n")[1:]:
        text = line.decode("latin-1").rstrip("\r")
        if text[:1] in (" ", "\t") and name:
            fields[name] += " " + text.strip()
            continue
        name, colon, value = text.partition(":")
        name = name.strip().lower() if colon else ""
        if name:
            fields[name] = f"{fields[name]}, {value.strip()}" if name in fields else value.strip()
    return Response(int(match[1]), fields, memoryview(block)[end:])


def _headers_end(block: bytes) -> int:
    strict = block.find(b"\r\n\r\n")
    loose = block.find(b"\n\n", 0, strict + 1 if strict >= 0 else len(block))
    if loose >= 0:
        return loose + 2
    return strict + 4 if strict >= 0 else len(block)


def decoded_body(response: Response, limits: Limits) -> Bytes:
    """The body as the server meant it.

    Raises Rejected: (read, truncated) for a body shorter than its headers or its own format say, (read, too_large)
    beyond the limits, (decode, content_encoding) for what cannot be undone.
    """
    body: Bytes = response.body
    chunked = "chunked" in response.fields.get("transfer-encoding", "").lower()
    raw = _dechunk(response.body, labelled=chunked)
    if raw is not None:
        body = raw
    elif not chunked or _CHUNK_SIZE.match(response.body[:300]) is None:
        promised = response.fields.get("content-length", "").partition(",")[0].strip()
        if promised.isdigit() and len(promised) < 19 and len(body) < int(promised) and not chunked:
            raise Rejected("read", "truncated", f"{len(body)} of {promised} bytes of the HTTP body")
    budget = _Budget(limits, len(body))
    budget.check(len(body))
    layers = [e.strip().lower() for e in response.fields.get("content-encoding", "").split(",")]
    layers = [e for e in layers if e not in _NO_ENCODING]
    if len(layers) > _MAX_LAYERS:
        raise Rejected("decode", "content_encoding", f"{len(layers)} layers")
    for name in reversed(layers):
        body = _undo(name, body, budget)
    for _ in range(_MAX_LAYERS):  # compressed once more than the label says
        if bytes(body[:3]) != b"\x1f\x8b\x08":
            break
        body = _undo("gzip", body, budget)
    return body


class _Budget:
    """How large a body may become: absolute, and relative to its stored size."""

    def __init__(self, limits: Limits, stored: int) -> None:
        self.body = int(limits.body_mib * MIB)
        self.relative = max(int(limits.inflation_free_mib * MIB), int(limits.inflation_ratio * stored))
        self.ratio = limits.inflation_ratio

    def check(self, size: int) -> None:
        if size > self.body:
            raise Rejected("read", "too_large", f"body over {self.body // MIB} MiB")
        if size > self.relative:
            raise Rejected("read", "too_large", f"body expands more than {self.ratio:g} times")


def _dechunk(body: memoryview, *, labelled: bool) -> bytes | None:
    """The chunks' data; None when the body is not chunked. An unlabelled body is so only if it is so to its end."""
    if _CHUNK_SIZE.match(body[:300]) is None:
        return None
    parts: list[memoryview] = []
    at = 0
    while True:
        match = _CHUNK_SIZE.match(body[at : at + 300])
        if match is None:
            if not labelled or not parts:
                return None
            if at >= len(body):
                raise Rejected("read", "truncated", "the body ends without its last chunk")
            raise Rejected("decode", "content_encoding", f"no chunk size at byte {at} of the body")
        size = int(match[1], 16)
        at += match.end()
        if size == 0:
            if not labelled and (len(body) - at > 4 or not parts):
                return None
            return b"".join(parts)
        if at + size > len(body):
            if not labelled or (not parts and size > 64 * len(body)):
                return None
            raise Rejected("read", "truncated", "the body ends inside a chunk")
        parts.append(body[at : at + size])
        at += size
        end = bytes(body[at : at + 2])
        at += 2 if end == b"\r\n" else 1 if end[:1] == b"\n" else 0


def _undo(name: str, body: Bytes, budget: _Budget) -> Bytes:
    name = name.removeprefix("x-")
    decoder = _DECODERS.get(name)
    if decoder is None:
        raise Rejected("decode", "content_encoding", f"unknown content encoding {name[:40]!r}")
    if name == "gzip" and bytes(body[:2]) != b"\x1f\x8b":
        return body
    if name == "zstd" and bytes(body[:4]) != b"\x28\xb5\x2f\xfd":
        return body
    parts: list[bytes] = []
    size = 0
    try:
        for part in decoder(body):
            size += len(part)
            budget.check(size)
            parts.append(part)
    except _ERRORS as error:
        if name in ("br", "deflate") and _is_textual(bytes(body[:512])):
            return body
        raise Rejected("decode", "content_encoding", f"{name}: {error}") from None
    return b"".join(parts)


def _is_textual(head: bytes) -> bool:
    return b"<" in head and not any(c < 9 or 13 < c < 27 for c in head)


def _cut(name: str) -> Rejected:
    return Rejected("read", "truncated", f"the {name} body ends early")


def _gzip(body: Bytes) -> Iterator[bytes]:
    view = memoryview(body)
    at = 0
    while at < len(view):
        inflater = zlib_ng.decompressobj(wbits=31)
        for part, after in _inflate(inflater, view, at):
            at = after
            yield part
        if not inflater.eof:
            raise _cut("gzip")
        if bytes(view[at : at + 3]) != b"\x1f\x8b\x08":  # padding, or rubbish behind the last member
            return


def _deflate(body: Bytes) -> Iterator[bytes]:
    view = memoryview(body)
    head = bytes(view[:2])
    wrapped = len(head) == 2 and head[0] & 0x0F == 8 and int.from_bytes(head, "big") % 31 == 0
    inflater = zlib_ng.decompressobj(wbits=15 if wrapped else -15)
    for part, _ in _inflate(inflater, view, 0):
        yield part
    if not inflater.eof:
        raise _cut("deflate")


def _inflate(inflater: Any, view: memoryview, at: int) -> Iterator[tuple[bytes, int]]:
    """(inflated piece, place in `view` behind it); a piece is 33 MiB at most, as deflate expands 1032 times."""
    while at < len(view) and not inflater.eof:
        piece = view[at : at + 32768]
        out = inflater.decompress(piece)
        at += len(piece) - len(inflater.unused_data)
        yield out, at


def _brotli(body: Bytes) -> Iterator[bytes]:
    view = memoryview(body)
    decoder = brotli.Decompressor()
    at = 0
    while not decoder.is_finished():
        if decoder.can_accept_more_data():
            if at >= len(view):
                raise _cut("br")
            piece = bytes(view[at : at + 32768])
            at += len(piece)
        else:
            piece = b""
        yield decoder.process(piece, output_buffer_limit=MIB)


def _zstd(body: Bytes) -> Iterator[bytes]:
    view = memoryview(body)
    at = 0
    while at < len(view):
        decoder = zstandard.ZstdDecompressor(max_window_size=128 * MIB).decompressobj()
        while at < len(view) and not decoder.eof:
            piece = view[at : at + 1024]  # a block of four bytes can hold 128 KiB
            out = decoder.decompress(piece)
            at += len(piece) - len(decoder.unused_data)
            yield out
        if not decoder.eof:
            raise _cut("zstd")
        if bytes(view[at : at + 4]) != b"\x28\xb5\x2f\xfd":
            return


_DECODERS = {"gzip": _gzip, "deflate": _deflate, "br": _brotli, "zstd": _zstd}
