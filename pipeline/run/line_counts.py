"""Which lines stand in how many documents of the run: every hash counted once, each part given back its own.

    part -> (hash, documents, smallest id), one row per hash bucket -> buckets summed -> rows per part -> lines/

A part's hashes are combined before they are shuffled, as packed arrays: Spark moves two rows per part and bucket, no
row per line. A bucket is one range of hashes, summed in one task. Memory: a part's distinct lines when counting and
when writing, a bucket's entries (about _BUCKET_BYTES of parts) when summing, at some 60 bytes each; nothing but file
names and counts reaches the driver.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash
from pyspark.sql import SparkSession

from pipeline.datasets import LINES
from pipeline.quality.edits import edit
from pipeline.recipe import Edit, Recipe
from pipeline.repeated_lines import Hashes, Table, pieces, rank
from pipeline.run.documents import part_rows
from pipeline.spark import map_in_arrow
from pipeline.storage import Part, PartWriter, RowReader, Storage, stem_of

#: File bytes of `records/` whose lines one bucket sums, about, and the most buckets that a run is divided into.
_BUCKET_BYTES = 128 << 20
_MOST_BUCKETS = 1 << 14
_ROWS_PER_WRITE = 1 << 16

Counts = npt.NDArray[np.uint32]

#: `hashes`, `first`: packed uint64; `documents`: packed uint32; `read`, `distinct`, `repeated`: for the summary.
_PACKED = pa.schema(
    [
        ("bucket", pa.int32()),
        ("part", pa.string()),
        ("hashes", pa.binary()),
        ("documents", pa.binary()),
        ("first", pa.binary()),
        ("read", pa.int64()),
        ("distinct", pa.int64()),
        ("repeated", pa.int64()),
    ]
)
_TOLD = pa.schema([("records", pa.string()), ("told", pa.string())])
_SUMMARY = ""  #: in place of a part's name


@dataclass(frozen=True)
class Counted:
    """`parts`: a part of `records/` -> its file of `lines/`, if it holds a repeated line. `counts`: for people."""

    parts: dict[str, Part]
    counts: dict[str, int]


def count(spark: SparkSession, storage: Storage, recipe: Recipe, parts: Sequence[Part]) -> Counted:
    """Write a file of `lines/` for each part that holds repeated lines; nothing is committed."""
    settings = recipe.edit.repeated_lines
    assert settings is not None
    buckets = 1
    while buckets < _MOST_BUCKETS and buckets * _BUCKET_BYTES < sum(part.file_bytes for part in parts):
        buckets *= 2
    tasks = max(1, min(len(parts), max(200, spark.sparkContext.defaultParallelism)))
    minimum, keep_first = settings.min_documents, settings.remove and settings.keep_first
    mark = settings.model_dump_json(exclude={"min_documents"})

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for path in batch.column("part").to_pylist():
                documents, entries = count_part(storage, path, recipe)
                for bucket, (start, stop) in enumerate(_slices(entries.hashes, buckets)):
                    if stop > start or bucket == 0:
                        told = {"read": documents if bucket == 0 else 0}
                        yield _packed(bucket, path, entries.slice(start, stop), told)

    def add_up(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for bucket, rows in _groups(batches, "bucket"):
            yield from _sum_bucket(bucket, rows, minimum)

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for path, rows in _groups(batches, "part"):
            told = _summed(rows) if path == _SUMMARY else _write_part(storage, path, rows, keep_first, mark).to_json()
            yield pa.RecordBatch.from_pylist([{"records": path, "told": json.dumps(told)}], schema=_TOLD)

    counted = map_in_arrow(part_rows(spark, parts), read, _PACKED)
    together = counted.repartition(buckets, "bucket").sortWithinPartitions("bucket", "part")
    apart = map_in_arrow(together, add_up, _PACKED)
    by_part = apart.repartition(tasks, "part").sortWithinPartitions("part", "bucket")
    told = {row["records"]: json.loads(row["told"]) for row in map_in_arrow(by_part, write, _TOLD).collect()}
    counts = told.pop(_SUMMARY, {"documents": 0, "distinct": 0, "repeated": 0})
    return Counted({path: Part.from_json(tree) for path, tree in told.items()}, counts)


@dataclass(frozen=True, slots=True)
class Entries:
    """Distinct hashes, ascending; how many documents hold each; the smallest of their ranks."""

    hashes: Hashes
    documents: Counts
    first: Hashes

    def slice(self, start: int, stop: int) -> Entries:
        return Entries(self.hashes[start:stop], self.documents[start:stop], self.first[start:stop])


def count_part(storage: Storage, path: str, recipe: Recipe) -> tuple[int, Entries]:
    """(documents with a text, their lines) of a part. Rejected ones count: what is repeated depends on no threshold."""

    def texts() -> Iterator[tuple[str, str]]:
        with RowReader(storage, path, ["record_id", "text"]) as reader:
            for _, table in reader.read(range(reader.num_rows)):
                for record_id, text in zip(table["record_id"].to_pylist(), table["text"].to_pylist(), strict=True):
                    if text is not None:
                        yield record_id, text

    return count_texts(texts(), recipe.edit)


def count_texts(texts: Iterable[tuple[str, str]], edits: Edit) -> tuple[int, Entries]:
    """(how many, their lines) of pairs of record_id and text."""
    settings = edits.repeated_lines
    assert settings is not None
    hashes: list[Hashes] = []
    ranks: list[int] = []
    for record_id, text in texts:
        hashes.append(np.unique(pieces(edit(text, edits), settings).hashes))
        ranks.append(rank(record_id))
    lengths = np.array([len(one) for one in hashes], np.int64)
    ids = np.repeat(np.array(ranks, np.uint64), lengths)
    flat = np.concatenate([np.zeros(0, np.uint64), *hashes])
    return len(ranks), _combined(flat, np.ones(len(flat), np.uint32), ids)


def _combined(hashes: Hashes, documents: Counts, first: Hashes) -> Entries:
    """One entry per hash."""
    if not len(hashes):
        return Entries(hashes, documents, first)
    order = np.argsort(hashes, kind="stable")
    hashes, documents, first = hashes[order], documents[order], first[order]
    starts = np.flatnonzero(np.concatenate([[True], hashes[1:] != hashes[:-1]]))
    totals = np.add.reduceat(documents, starts, dtype=np.uint32)
    return Entries(hashes[starts], totals, np.minimum.reduceat(first, starts))


def _slices(hashes: Hashes, buckets: int) -> list[tuple[int, int]]:
    """Where each bucket, an equal range of hashes, begins and ends; `buckets` is a power of two."""
    width = (1 << 64) // buckets
    edges = np.array([i * width for i in range(1, buckets)], np.uint64)
    cuts = [0, *np.searchsorted(hashes, edges).tolist(), len(hashes)]
    return list(pairwise(cuts))


def _sum_bucket(bucket: int, rows: list[dict[str, Any]], minimum: int) -> Iterator[pa.RecordBatch]:
    """The repeated lines of one range of hashes, apart again by the part that holds them; and the summary's share."""
    entries = [_unpacked(row) for row in rows]
    whole = _combined(
        np.concatenate([one.hashes for one in entries]),
        np.concatenate([one.documents for one in entries]),
        np.concatenate([one.first for one in entries]),
    )
    repeated = whole.documents >= minimum
    told = {"read": sum(row["read"] for row in rows), "distinct": len(repeated), "repeated": int(repeated.sum())}
    nothing = whole.slice(0, 0)
    yield _packed(bucket, _SUMMARY, nothing, told)
    if not repeated.any():
        return
    for row, own in zip(rows, entries, strict=True):
        slots = np.searchsorted(whole.hashes, own.hashes)
        here = repeated[slots]
        if here.any():
            slots, smallest = slots[here], own.first[here]
            first = np.where(whole.first[slots] == smallest, smallest, np.uint64(0))
            yield _packed(bucket, row["part"], Entries(whole.hashes[slots], whole.documents[slots], first), {})


def _write_part(storage: Storage, path: str, rows: list[dict[str, Any]], keep_first: bool, mark: str) -> Part:
    """A part's file of `lines/`. `meta["state"]` names what these lines make of the part's texts."""
    state = xxhash.xxh3_128(mark.encode())
    with PartWriter(storage, "lines", stem_of(path), LINES) as writer:
        for row in rows:
            one = _unpacked(row)
            first = one.first if keep_first else np.zeros(len(one.first), np.uint64)
            state.update(np.stack([one.hashes, first]).tobytes())
            for start in range(0, len(first), _ROWS_PER_WRITE):
                stop = start + _ROWS_PER_WRITE
                ids = first[start:stop]
                columns = [
                    pa.array(one.hashes[start:stop]),
                    pa.array(one.documents[start:stop].astype(np.int64)),
                    pa.array(ids, mask=ids == 0),
                ]
                writer.write(pa.RecordBatch.from_arrays(columns, schema=LINES))
        part = writer.close()
    return replace(part, meta={**part.meta, "state": state.hexdigest()})


def read_table(storage: Storage, part: Part) -> Table:
    """A file of `lines/`, to look lines up in."""
    hashes: list[Hashes] = []
    first: list[Hashes] = []
    with RowReader(storage, part.path, ["hash", "first"]) as reader:
        for _, table in reader.read(range(reader.num_rows)):
            hashes.append(table["hash"].combine_chunks().to_numpy(zero_copy_only=False))
            first.append(table["first"].combine_chunks().fill_null(0).to_numpy(zero_copy_only=False))
    return Table(np.concatenate(hashes), np.concatenate(first))


def _packed(bucket: int, part: str, entries: Entries, told: dict[str, int]) -> pa.RecordBatch:
    row = {
        "bucket": bucket,
        "part": part,
        "hashes": entries.hashes.tobytes(),
        "documents": entries.documents.tobytes(),
        "first": entries.first.tobytes(),
    }
    return pa.RecordBatch.from_pylist([{"read": 0, "distinct": 0, "repeated": 0, **row, **told}], schema=_PACKED)


def _unpacked(row: dict[str, Any]) -> Entries:
    return Entries(
        np.frombuffer(row["hashes"], np.uint64),
        np.frombuffer(row["documents"], np.uint32),
        np.frombuffer(row["first"], np.uint64),
    )


def _groups(batches: Iterator[pa.RecordBatch], column: str) -> Iterator[tuple[Any, list[dict[str, Any]]]]:
    """Rows with equal values in `column`, of a stream sorted by it."""
    rows: list[dict[str, Any]] = []
    for batch in batches:
        for row in batch.to_pylist():
            if rows and rows[0][column] != row[column]:
                yield rows[0][column], rows
                rows = []
            rows.append(row)
    if rows:
        yield rows[0][column], rows


def _summed(rows: list[dict[str, Any]]) -> dict[str, int]:
    names = {"documents": "read", "distinct": "distinct", "repeated": "repeated"}
    return {name: sum(row[column] for row in rows) for name, column in names.items()}
