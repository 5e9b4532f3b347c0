"""A file on S3 or on an HTTP server as a seekable stream.

It is read in ranges over one kept connection. When a connection drops, stalls or trickles, or the server says that it
is busy, the next request goes on at the first byte that is missing: none comes twice, none is passed over. Every answer
is checked against the file that the run was planned with (size and ETag), so a file that changes meanwhile is an error
that names it, never a mixture.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import aiohttp
import fsspec
from fsspec.asyn import sync
from fsspec.implementations.http import HTTPFileSystem

from pipeline.crawl.retry import Faulty, Refusal, Tries, Unusable, refusal_in, server_of
from pipeline.crawl.slots import place
from pipeline.recipe import Input

MIB = 1024 * 1024
#: Bytes asked for at once: the first, doubled up to the last while reading goes straight on.
FIRST_SPAN, LAST_SPAN = MIB, 8 * MIB
#: A try that brought less than this before it failed is a failed try; one that brought more counts as the first.
PROGRESS = 256 * 1024
#: An answer slower than this, over `stall_seconds`, is dropped.
SLOWEST = 4 * 1024  # bytes a second
SCHEMES = ("http", "https", "s3", "s3a")
_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")
_systems: dict[tuple[int, str], Any] = {}


@dataclass(frozen=True, slots=True)
class Known:
    """What a file was when it was first seen; `etag` as `sources.mark` gives it."""

    size: int
    etag: str


@dataclass(slots=True)
class _Answer:
    """`length` bytes from `first` on; `read` gives the next of them, none at their end."""

    first: int
    length: int
    known: Known
    read: Callable[[int], Awaitable[bytes]]
    close: Callable[[], Any]


def is_remote_file(uri: str) -> bool:
    """Whether RemoteFile reads it; other schemes are left to their own libraries."""
    return uri.partition("://")[0] in SCHEMES and "::" not in uri


class RemoteFile:
    """A seekable binary stream. `read` may return less than was asked for, and nothing at the end of the file only."""

    def __init__(
        self,
        uri: str,
        settings: Input,
        known: Known | None = None,
        *,
        span: int = FIRST_SPAN,
        planning: bool = False,
    ) -> None:
        """Without `known`, what the first answer says holds from then on. `span`: bytes of the first request.

        Reading raises SourceError, which names the file, when the server stays away or holds another file.
        """
        self._uri = uri
        self._settings = settings
        self._known = known
        self._first_span = self._span = span
        self._planning = planning
        self._at = self._base = 0
        self._block = b""

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            return b"".join(iter(lambda: self.read(LAST_SPAN), b""))
        here = self._at - self._base
        if not 0 <= here < len(self._block):
            if size == 0 or (self._known is not None and self._at >= self._known.size):
                return b""
            onward = bool(self._block) and here == len(self._block)
            self._span = min(2 * self._span, LAST_SPAN) if onward else self._first_span
            self._block, self._base, here = self._fetch(self._at, self._at + self._span), self._at, 0
        piece = self._block[here : here + size]
        self._at += len(piece)
        return piece

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.known.size}[whence] if whence else 0
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at

    @property
    def known(self) -> Known:
        """Size and change mark; the first call may ask the server."""
        if self._known is None:
            self._block, self._base = self._fetch(0, self._span), 0
        assert self._known is not None
        return self._known

    def close(self) -> None:
        self._block = b""

    def __enter__(self) -> RemoteFile:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def _fetch(self, start: int, end: int) -> bytes:
        """The bytes from `start` to `end`, or to the end of the file."""
        tries = Tries(self._uri, self._settings, planning=self._planning)
        got = bytearray()
        system = _system(self._uri)
        while True:
            if self._known is not None:
                end = min(end, self._known.size)
            if start + len(got) >= end:
                return bytes(got)
            before = len(got)
            try:
                with place(server_of(self._uri), self._settings.requests):
                    sync(system.loop, self._request, system, start + len(got), end, got)
            except Exception as error:
                tries.failed(error, progress=len(got) - before >= PROGRESS)

    async def _request(self, system: Any, start: int, end: int, got: bytearray) -> None:
        """Adds to `got` what one request brings of the bytes from `start` to `end`."""
        stall = self._settings.stall_seconds
        ask = _ask_http if isinstance(system, HTTPFileSystem) else _ask_s3
        known = self._known
        async with asyncio.timeout(2 * stall):
            answer = await ask(system, self._uri, start, end, stall)
        try:
            if known is None:
                self._known = answer.known
            elif answer.known != known:
                raise Unusable(_change(known, answer.known))
            if answer.known.size <= start:
                return  # an empty file
            if answer.first != start or answer.length < 1:
                raise Faulty(f"asked for bytes from {start} on, got {answer.length} bytes from {answer.first} on")
            wanted = min(end, answer.known.size) - start
            await _receive(answer, min(wanted, answer.length), stall, got)
            if answer.length < min(wanted, PROGRESS):
                raise Faulty(f"asked for {wanted} bytes, got {answer.length}")
        finally:
            answer.close()


async def _receive(answer: _Answer, wanted: int, stall: float, got: bytearray) -> None:
    clock = asyncio.get_running_loop().time
    since, brought, missing = clock(), 0, wanted
    while missing:
        async with asyncio.timeout(stall):
            piece = await answer.read(min(missing, MIB))
        if not piece:
            raise Faulty(f"the answer ended after {wanted - missing} of {wanted} bytes")
        got += piece
        missing -= len(piece)
        brought += len(piece)
        if missing and clock() - since > stall:
            if brought < SLOWEST * stall:
                raise Faulty(f"the server is too slow: {brought} bytes in {clock() - since:.0f} s")
            since, brought = clock(), 0


def _change(known: Known, now: Known) -> str:
    if now.size != known.size:
        return f"the file changed: {now.size} bytes now, {known.size} when it was first looked at; run again"
    return f"the file changed: its ETag is {now.etag} now, {known.etag} when it was first looked at; run again"


async def _ask_http(system: Any, uri: str, start: int, end: int, stall: float) -> _Answer:
    session = await system.set_session()
    options = dict(system.kwargs)
    headers = {
        **options.pop("headers", {}),
        "Range": f"bytes={start}-{end - 1}",
        "Accept-Encoding": "identity",  # the bytes as they lie there
    }
    options["timeout"] = aiohttp.ClientTimeout(total=None, sock_connect=stall, sock_read=stall)
    response = await session.get(system.encode_url(uri), headers=headers, **options)
    try:
        return _http_answer(response, start)
    except BaseException:
        response.close()
        raise


def _http_answer(response: Any, start: int) -> _Answer:
    status, headers = response.status, response.headers
    match = _RANGE.match(headers.get("Content-Range", ""))
    stated = headers.get("Content-Length", "")
    length = int(stated) if stated.isdigit() else None
    if status == 206:
        if match is None or match[1] is None:
            raise Faulty("a partial answer without a usable Content-Range")
        if match[3] == "*":
            raise Unusable("the server does not say how long the file is, so it cannot be read in parts")
        first, size = int(match[1]), int(match[3])
        ranged = int(match[2]) + 1 - first
        if length is not None and length != ranged:
            raise Faulty(f"the answer contradicts itself: Content-Range is {match[0]}, Content-Length {length}")
        length = ranged
    elif status == 200:
        if length is None:
            raise Unusable("the server does not say how long the file is, so it cannot be read in parts")
        if start:
            raise Unusable("the server serves whole files only, no byte ranges; copy the file first")
        first, size = 0, length
    elif status == 416 and match is not None and match[3] != "*":
        first, size, length = 0, int(match[3]), 0
    else:
        raise Refusal(status, response.reason or "", headers.get("Retry-After"))
    etag = headers.get("ETag") or f"{size}-{headers.get('Last-Modified', '')}"
    return _Answer(first, length, Known(size, tidy_etag(etag)), response.content.read, response.close)


async def _ask_s3(system: Any, uri: str, start: int, end: int, stall: float) -> _Answer:
    bucket, key, version = system.split_path(uri)
    more = {"VersionId": version} if version else {}
    try:
        answer = await system._call_s3("get_object", Bucket=bucket, Key=key, Range=f"bytes={start}-{end - 1}", **more)
    except Exception as error:
        refusal = refusal_in(error)
        if refusal is not None and str(refusal).startswith("416"):
            info = await system._info(f"{bucket}/{key}", refresh=True)
            seen = Known(int(info["size"]), tidy_etag(str(info["ETag"])))
            return _Answer(0, 0, seen, _nothing, lambda: None)
        raise
    body = answer["Body"]
    match = _RANGE.match(answer.get("ContentRange", ""))
    if match is not None and match[1] is not None:
        first, size = int(match[1]), int(match[3])
        length = int(match[2]) + 1 - first
    else:
        first, size = 0, int(answer["ContentLength"])
        length = size
    return _Answer(first, length, Known(size, tidy_etag(answer["ETag"])), body.read, body.close)


async def _nothing(_: int) -> bytes:
    return b""


def tidy_etag(etag: str) -> str:
    """Without quotes and without the mark of a weak one: servers behind one name differ in these."""
    return etag.removeprefix("W/").strip('"')


def _client_options(config: Any, scheme: str) -> dict[str, Any]:
    return dict(config.get(scheme, {}).get("client_kwargs", {}))


def _system(uri: str) -> Any:
    """The file system for `uri` with connections of this process, kept: a fork makes its own."""
    scheme = uri.partition("://")[0]
    kind = "s3" if scheme.startswith("s3") else "http"
    found = _systems.get((os.getpid(), kind))
    if found is None:
        config = fsspec.config.conf
        options: dict[str, Any] = {"skip_instance_cache": True, "use_listings_cache": False}
        if kind == "http":
            client = {name: value for s in ("http", "https") for name, value in _client_options(config, s).items()}
            # A server that labels a .gz file as an encoding must not make the client undo it.
            found = fsspec.filesystem("https", client_kwargs={**client, "auto_decompress": False}, **options)
        else:
            settings = {**config.get("s3", {}).get("config_kwargs", {}), "retries": {"total_max_attempts": 1}}
            found = fsspec.filesystem("s3", config_kwargs=settings, **options)
            found.retries = 1
        _systems[os.getpid(), kind] = found
    return found
