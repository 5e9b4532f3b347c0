"""Small crawl files for the tests, built record by record."""

from __future__ import annotations

import gzip
import io
import random
from collections.abc import Sequence

from pipeline.crawl.warc import Event, Gap, Record, read
from pipeline.recipe import Limits


def http(body: bytes, status: str = "200 OK", content_type: str | None = "text/html", **fields: str) -> bytes:
    lines = [f"HTTP/1.1 {status}"]
    if content_type is not None:
        lines.append(f"Content-Type: {content_type}")
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in fields.items()]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def record(
    block: bytes,
    url: str = "http://ex.test/0",
    kind: str = "response",
    content_type: str = "application/http; msgtype=response",
    length: int | str | None = 0,
    version: str = "WARC/1.0",
    extra: Sequence[str] = (),
) -> bytes:
    """One WARC record; an int `length` is added to the true one, a str stands as it is, None leaves the line out."""
    lines = [
        version,
        f"WARC-Type: {kind}",
        f"WARC-Target-URI: {url}",
        "WARC-Date: 2024-05-01T00:00:00Z",
        f"WARC-Record-ID: <urn:uuid:{random.Random(url + kind).getrandbits(128):032x}>",
        f"Content-Type: {content_type}",
        *extra,
    ]
    if length is not None:
        lines.append(f"Content-Length: {len(block) + length if isinstance(length, int) else length}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + block + b"\r\n\r\n"


def page(number: int) -> bytes:
    """The words `doc N` and 60 words that stand in no other page."""
    rng = random.Random(number)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=9)) for _ in range(60)]
    return f"<html><body><p>doc {number} {' '.join(words)}</p></body></html>".encode()


def ten() -> list[bytes]:
    """WARC10 of the acceptance cases, as plain records."""
    return [record(http(page(i)), f"http://ex.test/{i}") for i in range(10)]


def members(records: Sequence[bytes]) -> bytes:
    return b"".join(gzip.compress(r, mtime=0) for r in records)


def events(data: bytes, limits: Limits | None = None, **where: int) -> list[Event]:
    """All events of a file, after checking that they tile it and count up."""
    stream = io.BytesIO(data)
    stream.seek(where.get("start_offset", 0))
    found = list(read(stream, limits=limits, **where))
    at, ordinal = where.get("start_offset", 0), where.get("start_ordinal", 0)
    for event in found:
        assert (event.ordinal, event.offset) == (ordinal, at)
        ordinal += 1
        at += event.covered
    assert at == where.get("end_offset", len(data))
    return found


def documents(found: Sequence[Event]) -> list[str]:
    """URLs of the sound records."""
    return [str(e.url) for e in found if isinstance(e, Record) and e.problem is None]


def problems(found: Sequence[Event]) -> list[tuple[int, str]]:
    """(ordinal, reason) of what is not sound."""
    return [
        (e.ordinal, e.reason if isinstance(e, Gap) else e.problem[0])
        for e in found
        if isinstance(e, Gap) or (isinstance(e, Record) and e.problem)
        if isinstance(e, Gap) or e.problem
    ]
