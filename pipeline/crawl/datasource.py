"""Crawl files as a Spark data source, for notebooks: one row per record, damage included.

    from pipeline.crawl.datasource import WarcDataSource

    spark.dataSource.register(WarcDataSource)
    pages = spark.read.format("warc").load("crawl/")          # files, folders, patterns, s3://, https://, *.paths lists

A file is one partition, read once from start to end. The same reader as the main job's, so nothing is lost in silence:
a record that could not be read, or a stretch of bytes that is none, is a row too, with `problem` set. Nothing is
watched here: bodies are only unpacked, within the limits.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from pipeline.crawl import sources, warc
from pipeline.crawl.charset import declared_in_content_type, to_text
from pipeline.crawl.decode import HTML_TYPES
from pipeline.crawl.http import Bytes, decoded_body, parse
from pipeline.errors import Rejected, UsageError
from pipeline.recipe import Input, Limits

SCHEMA = pa.schema(
    [
        pa.field("uri", pa.string(), nullable=False),  # of the crawl file
        pa.field("ordinal", pa.int64(), nullable=False),  # place among the file's records and gaps
        pa.field("warc_offset", pa.int64(), nullable=False),
        pa.field("warc_length", pa.int64()),  # null where several records share a compressed member
        pa.field("warc_type", pa.string()),
        pa.field("warc_record_id", pa.string()),
        pa.field("warc_date", pa.string()),
        pa.field("warc_truncated", pa.string()),
        pa.field("url", pa.string()),
        pa.field("content_type", pa.string()),  # HTTP's, else the record's
        pa.field("http_status", pa.int32()),
        pa.field("http_headers", pa.map_(pa.string(), pa.string())),  # names in lower case
        pa.field("mime", pa.string()),
        pa.field("charset", pa.string()),  # of HTML and text: by declarations and bytes
        pa.field("body", pa.binary()),  # as the server meant it: chunks joined, compression undone
        pa.field("text", pa.string()),  # of HTML and text: the body as characters
        pa.field("problem", pa.string()),  # "stage/reason: detail"; null for a sound record
    ]
)
_BATCH_ROWS, _BATCH_BYTES = 256, 8 << 20
#: Options are of the recipe's sections `limits` and `input`, without case: bodyMib and body_mib are one.
_LIMITS = {name.replace("_", ""): name for name in Limits.model_fields}
_INPUT = {name.replace("_", ""): name for name in Input.model_fields}


@dataclass
class _File(InputPartition):
    uri: str


class WarcDataSource(DataSource):
    """`spark.read.format("warc")`; options: those of the recipe's `limits` and `input`, e.g. `body_mib`, `tries`."""

    @classmethod
    def name(cls) -> str:
        return "warc"

    def schema(self) -> StructType:
        return from_arrow_schema(SCHEMA)

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(dict(self.options))


class _Reader(DataSourceReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        settings = {name.lower().replace("_", ""): value for name, value in options.items()}
        given = settings.pop("paths", None)
        path = settings.pop("path", None)
        self._paths = json.loads(given) if given else [path] if path else []
        unknown = sorted(set(settings) - {*_LIMITS, *_INPUT})
        if unknown:
            raise UsageError(
                f"unknown option {unknown[0]}; there are {', '.join([*_LIMITS.values(), *_INPUT.values()])}"
            )
        self._limits = Limits.model_validate({_LIMITS[n]: v for n, v in settings.items() if n in _LIMITS})
        self._input = Input.model_validate({_INPUT[n]: v for n, v in settings.items() if n in _INPUT})

    def partitions(self) -> list[InputPartition]:
        return [_File(uri) for uri in sources.expand(self._paths, base=self._input.base, settings=self._input)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _File)
        rows: list[dict[str, Any]] = []
        size = 0
        with sources.open_at(partition.uri, settings=self._input) as stream:
            for event in warc.read(stream, limits=self._limits):
                if isinstance(event, warc.Skipped):
                    continue
                rows.append(_row(event, partition.uri, self._limits))
                size += len(rows[-1].get("body") or b"") + 2 * len(rows[-1].get("text") or "")
                if len(rows) >= _BATCH_ROWS or size >= _BATCH_BYTES:
                    yield pa.RecordBatch.from_pylist(rows, SCHEMA)
                    rows, size = [], 0
        if rows:
            yield pa.RecordBatch.from_pylist(rows, SCHEMA)


def _row(event: warc.Record | warc.Gap, uri: str, limits: Limits) -> dict[str, Any]:
    row: dict[str, Any] = {
        "uri": uri,
        "ordinal": event.ordinal,
        "warc_offset": event.offset,
        "warc_length": event.length,
    }
    if isinstance(event, warc.Gap):
        return row | {"problem": f"read/{event.reason}: {event.cause}"}
    row |= {
        "warc_type": event.warc_type,
        "warc_record_id": event.warc_record_id,
        "warc_date": event.warc_date,
        "warc_truncated": event.truncated,
        "url": event.url,
        "content_type": event.content_type,
    }
    try:
        if event.problem:
            raise Rejected("read", *event.problem)
        _add_body(row, event, limits)
    except Rejected as cause:
        row["problem"] = f"{cause.stage}/{cause.reason}" + (f": {cause.detail}" if cause.detail else "")
    return row


def _add_body(row: dict[str, Any], record: warc.Record, limits: Limits) -> None:
    body: Bytes = record.block
    if record.http:
        response = parse(record.block)
        if response is None:
            raise Rejected("read", "bad_header", "no HTTP status line")
        row["http_status"] = response.status
        row["http_headers"] = list(response.fields.items())
        row["content_type"] = response.fields.get("content-type")
        body = decoded_body(response, limits)
    row["body"] = bytes(body)
    if record.truncated:
        row["problem"] = f"read/truncated: WARC-Truncated: {record.truncated[:40]}"
    label = row["content_type"]
    mime = (label or "").partition(";")[0].strip().lower() or None
    row["mime"] = mime
    if body and mime and (mime in HTML_TYPES or mime.startswith("text/")):
        declared = declared_in_content_type(label) or ("utf-8" if record.warc_type == "conversion" else None)
        decoded = to_text(body, declared, "http" if record.http else "record")
        row["charset"], row["text"] = decoded.charset, decoded.text
