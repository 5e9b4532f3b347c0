"""Record headers: WARC 0.17 to 1.1 and ARC 1 and 2, from bytes to the few fields that are used."""

from __future__ import annotations

import re
from dataclasses import dataclass

#: Longer header blocks are taken for damage.
MAX_HEADER = 64 * 1024

_VERSION = re.compile(rb"WARC/\d+\.\d+[ \t]*$")
#: `URL IP date type [status checksum location offset file] length`; some writers leave spaces in the URL.
_ARC_LINE = re.compile(rb"(\S.*?) (\d{1,3}(?:\.\d{1,3}){3}|-|\S*:\S*) (\d{8,14}) (\S*)(?: (.*))? (\d+)$")
_BAD_URL_BYTES = re.compile(rb"[\x00-\x20\x7f]")


@dataclass(slots=True)
class Header:
    """`length` is None where it is absent or no number; `problem` says why the header cannot be trusted."""

    kind: str = ""
    url: str | None = None
    record_id: str | None = None
    date: str | None = None
    content_type: str | None = None
    truncated: str | None = None
    length: int | None = None
    is_arc: bool = False
    problem: str | None = None


def looks_like_record(head: bytes) -> bool:
    """Whether `head`, the first bytes at some place, begins a WARC or ARC record."""
    return head.startswith(b"WARC/") or _ARC_LINE.match(head.partition(b"\n")[0].rstrip(b"\r")) is not None


def parse_warc(block: bytes) -> Header:
    """`block` reaches from the version line to the empty line."""
    lines = block.split(b"\n")
    header = Header()
    problem = None
    if not _VERSION.match(lines[0].rstrip(b"\r")):
        problem = f"version line {_shown(lines[0])}"
    fields: dict[bytes, bytes] = {}
    name = b""
    for line in lines[1:]:
        if line[:1] in (b" ", b"\t") and name:
            fields[name] += b" " + line.strip()
            continue
        if line in (b"\r", b""):
            continue
        name, colon, value = line.partition(b":")
        name = name.strip().lower()
        if not colon:
            problem = problem or f"header line without a colon: {_shown(line)}"
            name = b""
            continue
        fields.setdefault(name, value.strip())
    header.kind = _text(fields.get(b"warc-type")).lower()
    uri = fields.get(b"warc-target-uri")
    if uri:
        header.url, odd = read_url(uri[1:-1] if uri[:1] == b"<" and uri[-1:] == b">" else uri)
        if odd:
            problem = problem or "raw control or non-UTF-8 bytes in WARC-Target-URI"
    header.record_id = _text(fields.get(b"warc-record-id")).strip("<>") or None
    header.date = _text(fields.get(b"warc-date")) or None
    header.content_type = _text(fields.get(b"content-type")) or None
    header.truncated = _text(fields.get(b"warc-truncated")) or None
    length = fields.get(b"content-length", b"")
    if length.isdigit() and len(length) < 19:
        header.length = int(length)
    if not header.kind:
        problem = problem or "no WARC-Type"
    elif header.date is None:
        problem = problem or "no WARC-Date"
    header.problem = problem
    return header


def parse_arc(line: bytes) -> Header | None:
    """One ARC record line, without its newline; None when it is none."""
    match = _ARC_LINE.match(line.rstrip(b"\r"))
    if match is None:
        return None
    uri, _ip, date, mime, _rest, length = match.groups()
    header = Header(is_arc=True, length=int(length), content_type=_text(mime) or None)
    header.kind = "warcinfo" if uri.startswith(b"filedesc:") else "response"
    header.url, odd = read_url(uri)
    stamp = date.decode("ascii").ljust(14, "0")
    header.date = f"{stamp[:4]}-{stamp[4:6]}-{stamp[6:8]}T{stamp[8:10]}:{stamp[10:12]}:{stamp[12:14]}Z"
    if odd:
        header.problem = "raw control or non-UTF-8 bytes in the URL"
    return header


def read_url(raw: bytes) -> tuple[str, bool]:
    """The URL as text, and whether bytes that no URL holds had to be escaped as %XX (so that none is lost)."""
    if raw.isascii() and raw.isalnum():
        return raw.decode("ascii"), False
    inner = _BAD_URL_BYTES.sub(lambda m: b"%%%02X" % m[0][0], raw.replace(b" ", b"%20"))
    odd = _BAD_URL_BYTES.search(raw.replace(b" ", b"")) is not None
    try:
        return inner.decode("utf-8"), odd
    except UnicodeDecodeError:
        text = inner.decode("utf-8", "surrogateescape")
        return "".join(f"%{ord(c) - 0xDC00:02X}" if "\udc80" <= c <= "\udcff" else c for c in text), True


def _text(value: bytes | None) -> str:
    return value.decode("utf-8", "replace").replace("\x00", "\ufffd") if value else ""


def _shown(line: bytes) -> str:
    return repr(line[:40].decode("latin-1").rstrip())
