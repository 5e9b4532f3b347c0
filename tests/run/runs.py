"""What the tests of whole runs share: a small crawl, the command in this process, and a run's datasets as tables."""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from fastwarc.warc import ArchiveIterator, WarcRecordType

from jobs.cli import main

PAGE_TYPES = WarcRecordType.response | WarcRecordType.resource | WarcRecordType.revisit | WarcRecordType.conversion


def curate(inputs: Sequence[Path | str], out: Path | str, *extra: str, recipe: str = "minimal") -> int:
    """`gristmill curate` in this process, in the shared Spark session."""
    return main(["curate", *map(str, inputs), "--out", str(out), "--recipe", recipe, *extra])


def table(run: Path, dataset: str, columns: list[str] | None = None) -> pa.Table:
    """A dataset as any Parquet reader sees it: every Parquet file in the folder."""
    files = sorted(map(str, (run / dataset).glob("*.parquet")))
    return ds.dataset(files, format="parquet").to_table(columns=columns)


def rows(run: Path, dataset: str, columns: list[str] | None = None) -> list[dict[str, Any]]:
    return table(run, dataset, columns).to_pylist()


def shard_hashes(run: Path) -> list[tuple[str, str]]:
    """(name, sha256) of every shard, by the manifest."""
    manifest = json.loads((run / "shards" / "manifest.json").read_text())
    return [(file["path"], file["sha256"]) for file in manifest["files"]]


def verdict_rows(run: Path) -> list[tuple[Any, ...]]:
    return sorted(
        (row["record_id"], row["kept"], row["stage"], row["reason"], tuple(row["failed_rules"] or ()))
        for row in rows(run, "verdicts")
    )


def response(url: str, body: bytes, *headers: str, status: str = "200 OK", mime: str = "text/html") -> bytes:
    """One WARC response record as bytes."""
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {mime}", f"Content-Length: {len(body)}", *headers]
    block = "\r\n".join(lines).encode() + b"\r\n\r\n" + body
    head = (
        f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: {url}\r\nWARC-Date: 2024-01-01T00:00:00Z\r\n"
        f"WARC-Record-ID: <urn:uuid:{zlib.crc32(repr(url).encode()):012d}>\r\n"
        f"Content-Type: application/http; msgtype=response\r\nContent-Length: {len(block)}\r\n\r\n"
    )
    return head.encode("utf-8", "surrogateescape") + block + b"\r\n\r\n"


def independent_count(path: Path) -> int:
    """Records that could hold a page, by fastwarc's own iterator."""
    data = path.read_bytes()
    return sum(1 for _ in ArchiveIterator(io.BytesIO(data), record_types=PAGE_TYPES, parse_http=False))
