"""A crawl file as a sequence of events: records that could hold a page, records that could not, damaged gaps.

Every event takes an ordinal, and what the events cover tiles the file: nothing is read twice, nothing is passed over in
silence. Damage ends at the next place where a record begins; no record holds bytes of another. Where the reader
stands depends on the file from that offset on and on nothing before it, so a file can be read in parts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from pipeline.crawl.frames import GZIP_MAGIC, LZ4_MAGIC, ZSTD_MAGIC, Frame, GzipFrame, Raw, ZstdFrame, salvage
from pipeline.crawl.headers import MAX_HEADER, Header, looks_like_record, parse_arc, parse_warc
from pipeline.recipe import Limits

MIB = 1024 * 1024
#: Types that could hold a page; the others are counted and passed over.
PAGE_TYPES = frozenset({"response", "resource", "revisit", "conversion"})
#: Each place in a compressed frame that might begin a record is looked at by inflating anew; a page may hold many.
_MAX_TRIES = 64
_TRAILER = b"\r\n\r\n"
LZ4_REFUSED = "LZ4 is not read: unpack the file first (lz4 -d)"
_ODD_VERSION = re.compile(rb"[\x21-\x7e][\x20-\x7e]{0,40}\r?\n(?:WARC|Content)-[A-Z]")
_PLAIN_START = re.compile(rb"WARC/\d+\.\d+[ \t]*\r?\n")
_ARC_START = re.compile(rb"(?<=\n)[a-z][a-z0-9+.-]*:\S[^\n]{0,4000} \d{1,12}\r?\n")


@dataclass(frozen=True, slots=True)
class Record:
    """One record that could hold a page. `problem` = (reason, detail) of the stage `read`; its `block` is then empty.

    `offset` and `length` are of the compressed member (of the record itself in a plain file); where several records
    share a member, `offset` and `first_ordinal` repeat, `length` is None, and the last of them has all of `covered`.
    """

    ordinal: int
    offset: int
    length: int | None
    covered: int
    first_ordinal: int  #: ordinal of the first event at `offset`: where a restart begins
    warc_type: str
    url: str | None
    warc_record_id: str | None
    warc_date: str | None
    truncated: str | None
    content_type: str | None
    block: bytes
    http: bool
    problem: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Gap:
    """Bytes that are no readable record. `reason` is of the stage `read`."""

    ordinal: int
    offset: int
    length: int
    cause: str
    reason: str
    first_ordinal: int

    @property
    def covered(self) -> int:
        return self.length


@dataclass(frozen=True, slots=True)
class Skipped:
    """A sound record of a type that holds no page."""

    ordinal: int
    offset: int
    length: int | None
    covered: int
    first_ordinal: int
    warc_type: str


Event = Record | Gap | Skipped


@dataclass(slots=True)
class _Parsed:
    header: Header
    block: bytes
    problem: tuple[str, str] | None
    whole: bool = True  #: all its bytes came out of the frame


def read(
    stream: BinaryIO,
    *,
    start_offset: int = 0,
    start_ordinal: int = 0,
    end_offset: int | None = None,
    limits: Limits | None = None,
    bodies: bool = True,
) -> Iterator[Event]:
    """The events of the seekable `stream`, which stands at `start_offset`, up to those that begin at `end_offset`.

    `start_offset` is 0 or some event's `offset`, `start_ordinal` its `first_ordinal`. `bodies=False` leaves blocks
    empty, for counting. Raises what the stream raises, and nothing for what the file holds.
    """
    reader = _Reader(Raw(stream, start_offset), limits or Limits(), bodies)
    offset, ordinal = start_offset, start_ordinal
    while end_offset is None or offset < end_offset:
        head = reader.raw.peek(offset, 512)
        if not head:
            return
        for event in reader.events(offset, ordinal, head):
            yield event
            offset += event.covered
            ordinal += 1


class _Reader:
    def __init__(self, raw: Raw, limits: Limits, bodies: bool) -> None:
        self.raw = raw
        self.bodies = bodies
        #: A record may be this much longer than a body: headers, chunk marks.
        self.max_block = int(limits.body_mib * MIB) + MIB
        self.ratio = limits.inflation_ratio

    def events(self, offset: int, ordinal: int, head: bytes) -> Iterator[Event]:
        """The events of the one frame, record or gap at `offset`."""
        if head.startswith(GZIP_MAGIC):
            frame: Frame = GzipFrame(self.raw, offset, free=self.max_block, ratio=self.ratio)
            return self._compressed(frame, ordinal)
        if head.startswith(ZSTD_MAGIC):
            return self._compressed(ZstdFrame(self.raw, offset, free=self.max_block, ratio=self.ratio), ordinal)
        if looks_like_record(head) or _ODD_VERSION.match(head):
            return self._plain(offset, ordinal)
        if offset == 0 and head.startswith(LZ4_MAGIC):
            # Its literals look like records here and there; none of them is whole.
            return iter([Gap(ordinal, 0, self._end_of_file(0), LZ4_REFUSED, "damaged", ordinal)])
        return self._garbage(offset, ordinal)

    # -- one record at the frame's cursor

    def _parse(self, frame: Frame) -> _Parsed | None:
        """The record at the cursor and the cursor behind it; None when there is no header to parse."""
        header = self._header(frame)
        if header is None:
            return None
        body_start = frame.position
        problem = ("bad_header", header.problem) if header.problem else None
        block = b""
        if header.length is None:
            self._to_next_record(frame, body_start, header.is_arc)
            return _Parsed(header, b"", problem or ("length_mismatch", "no usable Content-Length"))
        if header.length > self.max_block:
            problem = problem or ("too_large", f"record of {header.length} bytes")
        wanted = self.bodies and (header.kind in PAGE_TYPES or header.kind == "warcinfo") and problem is None
        if wanted:
            block = frame.take(header.length)
            have = len(block)
        else:
            have = frame.skip(header.length)
        if have < header.length:
            if frame.error is None:
                found = self._to_next_record(frame, body_start, header.is_arc)
                if frame.compressed or found:
                    short = ("length_mismatch", f"Content-Length {header.length}, {have} bytes there")
                else:
                    short = ("truncated", f"{have} of {header.length} bytes before the end of the file")
                problem = problem or short
            return _Parsed(header, b"", problem, whole=False)
        if not self._trailer(frame, block, header):
            self._to_next_record(frame, body_start, header.is_arc)
            if frame.error is None:
                problem = problem or ("length_mismatch", f"no record end after Content-Length {header.length}")
        return _Parsed(header, b"" if problem else block, problem)

    def _header(self, frame: Frame) -> Header | None:
        head = frame.peek(5)
        if head != b"WARC/":
            line = frame.peek(MAX_HEADER).partition(b"\n")[0] if frame.error is None else b""
            arc = parse_arc(line)
            if arc is not None:
                frame.take(len(line) + 1)
                return arc
        block = frame.until_blank_line(MAX_HEADER)
        return parse_warc(block) if block is not None else None

    def _trailer(self, frame: Frame, block: bytes, header: Header) -> bool:
        """Passes over what closes a record; False when something else stands there."""
        rest = frame.peek(12)
        line = rest[: len(rest) - len(rest.lstrip(b"\r\n"))]
        after = rest[len(line) :]
        if header.is_arc:
            frame.take(len(line))
            return not after or frame.compressed or looks_like_record(frame.peek(512))
        if header.kind not in PAGE_TYPES:  # holds no page, so its exact end is nobody's matter
            line = b"".join(iter(lambda: frame.take(1) if frame.peek(1) in (b"\r", b"\n") else b"", b""))
            after = frame.peek(5)
            return not after or after.startswith((b"WARC/", GZIP_MAGIC))
        if line != _TRAILER and (
            # Some writers leave out a line; but where the block itself ends in what is missing, its length is wrong.
            line not in (b"", b"\r\n", b"\n", b"\n\n") or (block[-4:] + line).endswith(_TRAILER)
        ):
            return False
        if after and not after.startswith((b"WARC/", GZIP_MAGIC)) and not frame.compressed and len(line) < 4:
            return False
        if after and frame.compressed and not after.startswith(b"WARC/"):
            return False
        frame.take(len(line))
        return True

    def _to_next_record(self, frame: Frame, start: int, arc: bool) -> bool:
        """Moves the cursor to the next record that begins in this frame after `start`, else to its end."""
        pattern, before, sound = (_ARC_START, 4200, self._sound_arc) if arc else (_PLAIN_START, 64, self._sound)
        frame.seek(start)
        tries = _MAX_TRIES
        carry = b""
        position = start
        while True:
            chunk = frame.take(MIB)
            text = carry + chunk
            base = position - len(carry)
            for match in pattern.finditer(text):
                at = base + match.start()
                if tries == 0 or text[max(0, match.start() - 1) : match.start()] not in (b"\n", b""):
                    continue
                if sound(frame, at, text[max(0, match.start() - 4) : match.start()]):
                    frame.seek(at)
                    return True
                tries -= frame.compressed or arc
                frame.seek(position + len(chunk))
            if not chunk:
                return False
            position += len(chunk)
            carry = text[-before:]

    def _sound(self, frame: Frame, at: int, before: bytes) -> bool:
        """Whether a whole record with a sensible header and end stands at `at`, behind the bytes `before`."""
        frame.seek(at)
        block = frame.until_blank_line(MAX_HEADER)
        if block is None:
            return False
        header = parse_warc(block)
        if header.problem or header.length is None:
            return False
        if header.record_id is None and not before.endswith((b"\r\n\r\n", b"\n\n")):
            return False  # some writers give no ids, but a page that quotes a header rarely sets it apart
        if not frame.compressed:
            return True
        return frame.skip(header.length) == header.length and self._trailer(frame, b"", header)

    def _sound_arc(self, frame: Frame, at: int, before: bytes) -> bool:
        """The same of an ARC record: its line parses, and where its length ends a line, the frame or the file ends."""
        frame.seek(at)
        line = frame.peek(MAX_HEADER).partition(b"\n")[0]
        header = parse_arc(line)
        if header is None or header.problem or header.length is None:
            return False
        frame.take(len(line) + 1)
        return frame.skip(header.length) == header.length and frame.peek(1) in (b"\n", b"\r", b"")

    # -- frames

    def _compressed(self, frame: Frame, ordinal: int) -> Iterator[Event]:
        first = ordinal
        while True:
            parsed = self._parse(frame)
            more = bool(frame.peek(1))
            if parsed is None and more:
                # No header at the cursor: what follows in this frame is lost, unless a record begins in it.
                more = self._to_next_record(frame, frame.position, arc=False)
            cause = frame.error
            if not more:
                end = self._end_of(frame)
                covered = end - frame.start
            else:
                covered = 0
            length = covered if not more and ordinal == first else None
            if cause is not None and (more or ordinal != first) and parsed is not None and parsed.whole:
                # Of several records in a broken frame those before the break are sound.
                yield self._event(parsed, ordinal, frame.start, None, 0, first)
                if not more:
                    reason = "truncated" if cause == "truncated" else "damaged"
                    yield Gap(ordinal + 1, frame.start, covered, f"the member ends badly: {cause}", reason, first)
            elif cause is not None:
                yield self._broken(frame, ordinal, first, parsed, cause, length, covered)
            elif parsed is None:
                empty = frame.position == 0
                cause = "empty member" if empty else "no record header"
                yield Gap(ordinal, frame.start, covered, cause, "damaged", first)
            else:
                yield self._event(parsed, ordinal, frame.start, length, covered, first)
            if not more:
                return
            ordinal += 1

    def _end_of(self, frame: Frame) -> int:
        """File offset after the frame; after a broken one, where the next sound member begins."""
        if frame.error is None:
            return frame.end
        magics: tuple[bytes, ...] = (ZSTD_MAGIC,) if isinstance(frame, ZstdFrame) else (GZIP_MAGIC,)
        if frame.error != "bomb" and not frame.produced:  # it merely began like one
            magics = (b"WARC/", GZIP_MAGIC, ZSTD_MAGIC)
        return self._next_start(frame.start + 1, magics)

    def _broken(
        self,
        frame: Frame,
        ordinal: int,
        first: int,
        parsed: _Parsed | None,
        cause: str,
        length: int | None,
        covered: int,
    ) -> Event:
        header = parsed.header if parsed else None
        at_end = not self.raw.peek(frame.start + covered, 1) if covered else True
        if cause == "bomb":
            problem = ("too_large", "the member inflates beyond the limit")
        elif cause == "truncated" and at_end:
            problem = ("truncated", "the file ends inside this member")
        else:
            problem = ("damaged", "the member is cut" if cause == "truncated" else cause)
        if header is None or header.kind not in PAGE_TYPES:
            kind = f"{header.kind} record: " if header and header.kind else ""
            return Gap(ordinal, frame.start, covered, kind + problem[1], problem[0], first)
        return self._event(_Parsed(header, b"", problem), ordinal, frame.start, length, covered, first)

    def _plain(self, offset: int, ordinal: int) -> Iterator[Event]:
        frame = Frame(self.raw, offset)
        parsed = self._parse(frame)
        if parsed is None:
            end = self._next_start(offset + 1, (b"WARC/", GZIP_MAGIC))
            cut = not self.raw.peek(end, 1)
            yield Gap(ordinal, offset, end - offset, "no whole record header", "truncated" if cut else "bad_header",
                      ordinal)  # fmt: skip
            return
        covered = frame.position - offset
        yield self._event(parsed, ordinal, offset, covered, covered, ordinal)

    def _garbage(self, offset: int, ordinal: int) -> Iterator[Event]:
        end = self._next_start(offset + 1, (b"WARC/", GZIP_MAGIC, ZSTD_MAGIC))
        cut = any(magic.startswith(self.raw.peek(offset, 16)) for magic in (b"WARC/", GZIP_MAGIC, ZSTD_MAGIC))
        reason, cause = ("truncated", "the file ends here") if cut else ("damaged", "bytes between records")
        yield Gap(ordinal, offset, end - offset, cause, reason, ordinal)

    def _next_start(self, offset: int, magics: tuple[bytes, ...]) -> int:
        """File offset of the next place, from `offset` on, where a record begins; the file's end when there is none."""
        for at, magic in self.raw.find(magics, offset):
            if magic == GZIP_MAGIC:
                if looks_like_record(salvage(self.raw, at, 512)):
                    return at
            elif magic == ZSTD_MAGIC:
                if looks_like_record(ZstdFrame(self.raw, at, free=MIB, ratio=self.ratio).peek(512)):
                    return at
            elif _PLAIN_START.match(self.raw.peek(at, 32)) and self._sound(
                Frame(self.raw, at), at, self.raw.peek(max(0, at - 4), 4)
            ):
                return at
        return self._end_of_file(offset)

    def _end_of_file(self, offset: int) -> int:
        while view := self.raw.at(offset):
            offset += len(view)
        return offset

    def _event(self, parsed: _Parsed, ordinal: int, offset: int, length: int | None, covered: int, first: int) -> Event:
        header = parsed.header
        if not (header.kind or header.url or header.record_id):
            return Gap(ordinal, offset, covered, "no record header", "damaged", first)
        if header.kind not in PAGE_TYPES and (parsed.problem is None or header.kind):
            if parsed.problem is None or parsed.problem[0] == "too_large":
                return Skipped(ordinal, offset, length, covered, first, header.kind)
            return Gap(ordinal, offset, covered, f"{header.kind} record: {parsed.problem[1]}", parsed.problem[0], first)
        mime = (header.content_type or "").partition(";")[0].strip().lower()
        return Record(
            ordinal,
            offset,
            length,
            covered,
            first,
            header.kind,
            header.url,
            header.record_id,
            header.date,
            header.truncated,
            header.content_type,
            parsed.block,
            mime == "application/http" or parsed.block.startswith(b"HTTP/"),
            parsed.problem,
        )


def split_points(stream: BinaryIO, every_bytes: int, limits: Limits | None = None) -> list[tuple[int, int]]:
    """(offset, ordinal) of the parts, about `every_bytes` each, in which the file can be read apart; [(0, 0)] at least.

    Part i is `read(start_offset=points[i][0], start_ordinal=points[i][1], end_offset=points[i + 1][0])`.
    """
    points = [(0, 0)]
    for event in read(stream, limits=limits, bodies=False):
        if event.ordinal == event.first_ordinal and event.offset - points[-1][0] >= every_bytes:
            points.append((event.offset, event.ordinal))
    return points


def crawl_name(stream: BinaryIO) -> str | None:
    """`isPartOf` of the file's warcinfo record, which is its first; None where there is none."""
    raw = Raw(stream)
    head = raw.peek(0, 8)
    frame = GzipFrame(raw, 0, free=MIB, ratio=200) if head.startswith(GZIP_MAGIC) else Frame(raw, 0)
    header = frame.until_blank_line(MAX_HEADER)
    if header is None or not header.startswith(b"WARC/"):
        return None
    parsed = parse_warc(header)
    if parsed.kind != "warcinfo":
        return None
    for line in frame.take(min(parsed.length or 0, MIB)).splitlines():
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"ispartof":
            return value.strip().decode("utf-8", "replace") or None
    return None
