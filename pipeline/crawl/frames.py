"""Bytes of a crawl file as frames: a gzip member, a zstd frame, or a run of plain bytes, each with a cursor.

A frame never raises for what the file holds. When its bytes end early or do not inflate, `error` says so and the cursor
sees the end; the record parser decides what that means. Memory is bounded by the largest piece asked for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, BinaryIO, Protocol

import zstandard
from zlib_ng import zlib_ng

#: Compressed bytes fed to the inflater at once. Deflate expands 1032 times at most, so a piece is 33 MiB at most.
PIECE = 32 * 1024
WINDOW = 1024 * 1024
_ZLIB_ERROR: Any = zlib_ng.error
GZIP_MAGIC = b"\x1f\x8b\x08"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
LZ4_MAGIC = b"\x04\x22\x4d\x18"


class Raw:
    """Random access to a seekable stream through one window; a forward reader never seeks."""

    def __init__(self, stream: BinaryIO, position: int = 0, window: int = WINDOW) -> None:
        """`position` is the file offset the stream stands at now."""
        self._stream = stream
        self._window = window
        self._base = position
        self._buffer = b""

    def at(self, offset: int) -> memoryview:
        """The bytes in hand from `offset` on: at least one, or none at the end of the file."""
        here = offset - self._base
        if not 0 <= here < len(self._buffer):
            if here != len(self._buffer):
                self._stream.seek(offset)
            self._base, here = offset, 0
            self._buffer = self._stream.read(self._window)
        return memoryview(self._buffer)[here:]

    def peek(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes at `offset`; fewer only at the end of the file."""
        view = self.at(offset)
        if len(view) < size:
            parts = [bytes(view)]
            have = len(view)
            while have < size and (more := self._stream.read(self._window)):
                parts.append(more)
                have += len(more)
            self._base, self._buffer = offset, b"".join(parts)
        return self._buffer[offset - self._base : offset - self._base + size]

    def find(self, needles: tuple[bytes, ...], start: int, stop: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Offsets (< stop) at which one of `needles` stands, in order, from `start` on."""
        overlap = max(map(len, needles)) - 1
        offset = start
        while stop is None or offset < stop:
            chunk = self.peek(offset, WINDOW)
            last = len(chunk) < WINDOW
            limit = len(chunk) if last else len(chunk) - overlap
            hits = sorted((i, n) for n in needles for i in _occurrences(chunk, n) if i < limit)
            for i, needle in hits:
                if stop is not None and offset + i >= stop:
                    return
                yield offset + i, needle
            if last:
                return
            offset += limit


def _occurrences(chunk: bytes, needle: bytes) -> Iterator[int]:
    i = chunk.find(needle)
    while i >= 0:
        yield i
        i = chunk.find(needle, i + 1)


class Inflater(Protocol):
    """What zlib's and zstandard's decompression objects have in common."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: Any, /) -> bytes: ...


class Frame:
    """A cursor over one frame's content. `position` counts content bytes; for plain bytes it is the file offset."""

    compressed = False
    error: str | None = None
    produced = True  #: whether any content came out

    def __init__(self, raw: Raw, start: int) -> None:
        self.raw = raw
        self.start = start
        self.end = start  #: file offset after the frame, once its end was seen
        self.position = start
        self._chunk = b""
        self._at = 0

    def _fill(self) -> bytes:
        """The next content bytes, empty at the end of the frame."""
        view = self.raw.at(self.end)
        self.end += len(view)
        return bytes(view)

    def _need(self) -> bool:
        if self._at < len(self._chunk):
            return True
        self._chunk, self._at = self._fill(), 0
        return bool(self._chunk)

    def take(self, size: int) -> bytes:
        """The next `size` bytes, fewer at the end of the frame."""
        here = self._at
        block = self._chunk[here : here + size]
        self._at = here + len(block)
        have = len(block)
        if have < size:
            parts = [block]
            while have < size and self._need():
                part = self._chunk[self._at : self._at + size - have]
                self._at += len(part)
                have += len(part)
                parts.append(part)
            block = b"".join(parts)
        self.position += have
        return block

    def skip(self, size: int) -> int:
        """Like take, without keeping the bytes; returns how many there were."""
        have = 0
        while have < size and self._need():
            step = min(size - have, len(self._chunk) - self._at)
            self._at += step
            have += step
        self.position += have
        return have

    def peek(self, size: int) -> bytes:
        """The next `size` bytes without moving, fewer at the end of the frame."""
        while len(self._chunk) - self._at < size:
            more = self._fill()
            if not more:
                break
            self._chunk, self._at = self._chunk[self._at :] + more, 0
        return self._chunk[self._at : self._at + size]

    def until_blank_line(self, limit: int) -> bytes | None:
        """Everything up to and with the first empty line; None when there is none within `limit` bytes."""
        while True:
            found = _blank_line(self._chunk, self._at)
            if found >= 0:
                return self.take(found - self._at) if found - self._at <= limit else None
            if len(self._chunk) - self._at > limit:
                return None
            more = self._fill()
            if not more:
                return None
            self._chunk, self._at = self._chunk[self._at :] + more, 0

    def seek(self, position: int) -> None:
        """Back or forth to a content position that was seen before."""
        if position >= self.position:
            self.skip(position - self.position)
            return
        back = self.position - position
        if back <= self._at:
            self._at -= back
        else:
            self._restart(position)
        self.position = position

    def _restart(self, position: int) -> None:
        self.end = position
        self._chunk, self._at = b"", 0


def _blank_line(chunk: bytes, start: int) -> int:
    strict = chunk.find(b"\r\n\r\n", start)
    loose = chunk.find(b"\n\n", start, strict + 1 if strict >= 0 else len(chunk))
    if loose >= 0:
        return loose + 2
    return strict + 4 if strict >= 0 else -1


class GzipFrame(Frame):
    """One gzip member. `error`: `truncated` at the end of the file, `bomb` over the limit, else zlib's message."""

    compressed = True
    _piece = PIECE
    _errors: tuple[Any, ...] = (zlib_ng.error, OSError, EOFError)

    def __init__(self, raw: Raw, start: int, *, free: int, ratio: float) -> None:
        """Beyond `free` inflated bytes the frame ends as a `bomb` once it has expanded more than `ratio` times."""
        super().__init__(raw, start)
        self.position = 0
        self._free = free
        self._ratio = ratio
        self._inflated = 0
        self._inflater = self._new()
        self.produced = False

    def _new(self) -> Inflater:
        return zlib_ng.decompressobj(wbits=31)

    def _fill(self) -> bytes:
        while not self._inflater.eof and self.error is None:
            view = self.raw.at(self.end)[: self._piece]
            if not view:
                self.error = "truncated"
                break
            try:
                out = self._inflater.decompress(view)
            except self._errors as error:
                self.error = str(error) or type(error).__name__
                out = self._before_error(self.end)
                self.produced = self.produced or bool(out)
                return out
            self.end += len(view)
            if self._inflater.eof:
                self.end -= len(self._inflater.unused_data)
            self._inflated += len(out)
            if self._inflated > self._free and self._inflated > self._ratio * (self.end - self.start):
                self.error = "bomb"
                break
            if out:
                self.produced = True
                return out
        return b""

    def _before_error(self, offset: int) -> bytes:
        """What the piece at `offset` still held: a failing call gives nothing, so it is fed again in small steps."""
        inflater = self._new()
        at = self.start
        out: list[bytes] = []
        with contextlib.suppress(*self._errors):
            while view := self.raw.at(at)[: min(self._piece, offset - at) if at < offset else 64]:
                part = inflater.decompress(view)
                at += len(view)
                if at > offset:
                    out.append(part)
        return b"".join(out)

    def _restart(self, position: int) -> None:
        self.end = self.start
        self.position = self._inflated = 0
        self._chunk, self._at = b"", 0
        self.error = None
        self._inflater = self._new()
        self.skip(position)


class ZstdFrame(GzipFrame):
    """One zstd frame."""

    _piece = 1024  # four bytes can hold a block of 128 KiB
    _errors = (zstandard.ZstdError,)

    def _new(self) -> Inflater:
        return zstandard.ZstdDecompressor().decompressobj()


def salvage(raw: Raw, start: int, size: int) -> bytes:
    """The first `size` content bytes of a gzip member that does not inflate to its end, as far as they come."""
    inflater = zlib_ng.decompressobj(wbits=31)
    out = b""
    offset = start
    while len(out) < size and not inflater.eof:
        view = raw.at(offset)[:256]
        if not view:
            break
        try:
            out += inflater.decompress(view)
        except _ZLIB_ERROR:
            break
        offset += len(view)
    return out[:size]
