"""Which buckets hold more than one document, and the rows of some buckets, on packed numbers.

Nearly all buckets of a corpus hold one document. Sorting a row of key and sketch for each of them in Spark costs most
of the search for candidates; their bare numbers, sorted in pieces by numpy, cost a tenth of it, and what then has to
meet is a fraction.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pipeline.dedup.candidates import Integers
from pipeline.dedup.frames import hold
from pipeline.spark import map_in_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Buckets (8 bytes each) that are gathered and sent whole to every task; more are joined by a shuffle.
MOST_BUCKETS = 8 << 20
#: Numbers sorted at once, about, and numbers that a task gathers before it sends them on.
_PIECE = 4 << 20
_GATHERED = 2 << 20

_PACKED = pa.schema([("piece", pa.int64()), ("buckets", pa.binary())])
_ROWS = pa.schema([("key", pa.binary()), ("sketch", pa.binary()), ("bucket", pa.int64())])


def shared_buckets(
    documents: DataFrame, numbers: int, held: list[DataFrame], most: int = MOST_BUCKETS
) -> Integers | None:
    """The buckets with more than one of `documents` (`numbers` = documents x bands), sorted; None: more than `most`."""
    pieces = 1 + numbers // _PIECE
    packed = map_in_arrow(documents.where("buckets is not null").select("buckets"), partial(_pack, pieces), _PACKED)
    together = packed.repartition("piece").sortWithinPartitions("piece") if pieces > 1 else packed.repartition(1)
    repeated = hold(map_in_arrow(together, _repeated, _PACKED), held)
    total = repeated.selectExpr("coalesce(sum(length(buckets)), 0)").head()
    assert total is not None
    if total[0] > 8 * most:
        return None
    found = [np.frombuffer(row[0], np.int64) for row in repeated.select("buckets").collect()]
    return np.sort(np.concatenate(found)) if found else np.empty(0, np.int64)


def rows_in(documents: DataFrame, buckets: Integers) -> DataFrame:
    """(key, sketch, bucket) of `documents` for each of their buckets that is among the sorted `buckets`."""
    with_buckets = documents.where("buckets is not null").select("key", "sketch", "buckets")
    return map_in_arrow(with_buckets, partial(_rows_in, buckets.tobytes()), _ROWS)


def _pack(pieces: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    waiting: list[Integers] = []
    for batch in batches:
        waiting.append(batch.column("buckets").flatten().to_numpy(zero_copy_only=False))
        if sum(map(len, waiting)) >= _GATHERED:
            yield _packed(np.concatenate(waiting), pieces)
            waiting.clear()
    if waiting:
        yield _packed(np.concatenate(waiting), pieces)


def _packed(numbers: Integers, pieces: int) -> pa.RecordBatch:
    piece = (numbers.view(np.uint64) >> np.uint64(32)) % np.uint64(pieces)
    order = np.argsort(piece, kind="stable")
    ends = np.cumsum(np.bincount(piece.astype(np.int64), minlength=pieces))
    parts = np.split(numbers[order], ends[:-1])
    return pa.RecordBatch.from_arrays(
        [pa.array(range(pieces), pa.int64()), pa.array([part.tobytes() for part in parts], pa.binary())], schema=_PACKED
    )


def _repeated(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Per piece, the numbers that it holds more than once; its rows come together."""
    here = -1
    waiting: list[Integers] = []
    for batch in batches:
        for piece, raw in zip(batch.column("piece").to_pylist(), batch.column("buckets").to_pylist(), strict=True):
            if piece != here and waiting:
                yield _twice(here, waiting)
                waiting = []
            here = piece
            waiting.append(np.frombuffer(raw, np.int64))
    if waiting:
        yield _twice(here, waiting)


def _twice(piece: int, parts: list[Integers]) -> pa.RecordBatch:
    numbers = np.concatenate(parts)
    numbers.sort()
    again = numbers[1:][numbers[1:] == numbers[:-1]]
    first = np.ones(len(again), np.bool_)
    first[1:] = again[1:] != again[:-1]
    return pa.RecordBatch.from_arrays(
        [pa.array([piece], pa.int64()), pa.array([again[first].tobytes()], pa.binary())], schema=_PACKED
    )


def _rows_in(raw: bytes, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    wanted = np.frombuffer(raw, np.int64)
    if not len(wanted):
        return
    for batch in batches:
        lists = batch.column("buckets")
        flat = lists.flatten().to_numpy(zero_copy_only=False)
        hit = wanted[np.minimum(np.searchsorted(wanted, flat), len(wanted) - 1)] == flat
        if not hit.any():
            continue
        rows = np.repeat(np.arange(batch.num_rows), lists.value_lengths().to_numpy(zero_copy_only=False))[hit]
        at = pa.array(rows)
        yield pa.RecordBatch.from_arrays(
            [batch.column("key").take(at), batch.column("sketch").take(at), pa.array(flat[hit])], schema=_ROWS
        )
