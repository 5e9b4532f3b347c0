"""Buckets to candidate pairs, at a cost linear in the size of a bucket.

Each bucket streams past in priority order. A document is compared, by sketch, with the bucket's *leaders*; one that is
like a leader becomes a pair with it and is absorbed, any other becomes a leader. Leaders are bounded: where the list
is full, the documents left over go to smaller buckets, split by further rows of the signature, and what no split
brings under the bound stays uncompared in that bucket, which is counted.

Documents of earlier runs come first in their bucket and are not compared with each other: each of them is a leader. A
bucket without a document of this run is of no interest.

Two documents absorbed by one leader have not met. Should the leader itself be dropped, they may both survive, so the
caller reruns the leaders over the survivors, skipping pairs that are known, until no pair is new.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.compiled import njit
from pipeline.dedup.documents import IS_NEW, THIS_RUN
from pipeline.dedup.signature import SKETCH
from pipeline.recipe import Dedup
from pipeline.spark import map_in_arrow

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, GroupedData

#: Leaders of a bucket, pairs of one document in one bucket, and how often an overfull bucket is split.
MAX_LEADERS = 256
MAX_PAIRS = 8
SPLITS = 4
_SPLIT_ROWS = 4

Sketches = npt.NDArray[np.uint8]
Integers = npt.NDArray[np.int64]

_FOUND = pa.schema([("key", pa.binary()), ("leader", pa.binary()), ("absorbed", pa.bool_()), ("bucket", pa.int64())])


@dataclass(frozen=True, slots=True)
class Bounds:
    """Equal sketch bytes from which two documents are a candidate pair (`pair`) and from which the later of them
    counts as absorbed (`absorb`): three standard errors under the threshold, and the threshold."""

    pair: int
    absorb: int
    max_leaders: int = MAX_LEADERS


def bounds(settings: Dedup, max_leaders: int = MAX_LEADERS) -> Bounds:
    width = min(SKETCH, settings.permutations)
    t = settings.threshold
    low = t - 3 * math.sqrt(t * (1 - t) / width)
    # two unequal minima share their low byte once in 256
    pair, absorb = (max(0, math.ceil((j + (1 - j) / 256) * width - 1e-9)) for j in (low, t))
    return Bounds(pair, absorb, max_leaders)


def explode(documents: DataFrame, *others: str) -> DataFrame:
    """One row per document and band: key, sketch, bucket and `others`."""
    from pyspark.sql import functions as F  # noqa: N812

    return documents.where(F.col("buckets").isNotNull()).select(
        "key", "sketch", *others, F.explode("buckets").alias("bucket")
    )


def pairs(rows: DataFrame, limits: Bounds, split: int = 0) -> DataFrame:
    """Candidates among `rows` (key, sketch, bucket and, in a rerun, known: the pairs that each document has).

    Gives (key, leaders: keys of higher priority, sorted; absorbed; left_over: buckets of the next split).
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    sorted_bucket = Window.partitionBy("bucket").orderBy("key")
    whole = sorted_bucket.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    shared = (
        rows.withColumn("members", F.count("*").over(whole))
        .withColumn("new", F.expr(f"count_if({IS_NEW})").over(whole))
        .where("members > 1 and new > 0")
    )
    known: Column = (
        F.transform("known", lambda key: F.xxhash64(key))
        if "known" in rows.columns
        else F.lit(None).cast("array<bigint>")
    )
    sketched = shared.select("bucket", "key", "sketch", F.xxhash64("key").alias("hash"), known.alias("known"))
    found = map_in_arrow(sketched, partial(_stream, limits, split), _FOUND)
    return _gather(found.groupBy("key"), "collect_set(leader)", "collect_list(bucket)")


def merge(tables: list[DataFrame]) -> DataFrame:
    """One table of candidates out of several."""
    whole = tables[0]
    for table in tables[1:]:
        whole = whole.unionByName(table)
    return _gather(
        whole.groupBy("key"), "array_distinct(flatten(collect_list(leaders)))", "flatten(collect_list(left_over))"
    )


def _gather(groups: GroupedData, leaders: str, left_over: str) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    return groups.agg(
        F.array_sort(F.expr(leaders)).alias("leaders"),
        F.expr("coalesce(max(absorbed), false)").alias("absorbed"),
        F.expr(left_over).alias("left_over"),
    )


def _stream(limits: Bounds, split: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches sorted by (bucket, key), buckets whole within the task, to found pairs and left-over rows."""
    state: _State | None = None
    for batch in batches:
        if batch.num_rows == 0:
            continue
        rows = _Rows.of(batch)
        if state is None:
            state = _State.empty(limits.max_leaders, rows.sketches.shape[1])
        result = state.advance(rows, limits, split)
        if result.num_rows:
            yield result


@dataclass(frozen=True, slots=True)
class _Rows:
    keys: list[bytes]
    buckets: Integers
    sketches: Sketches
    hashes: Integers
    earlier: npt.NDArray[np.bool_]
    known: Integers
    known_ends: Integers

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> _Rows:
        n = batch.num_rows
        keys = batch.column("key").to_pylist()
        sketch = batch.column("sketch").to_pylist()
        sketches = np.frombuffer(b"".join(sketch), np.uint8).reshape(n, -1)
        known = batch.column("known")
        lengths = known.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        return cls(
            keys,
            batch.column("bucket").to_numpy(),
            sketches,
            batch.column("hash").to_numpy(),
            np.array([not key.startswith(THIS_RUN) for key in keys], np.bool_),
            known.flatten().to_numpy(zero_copy_only=False).astype(np.int64),
            np.cumsum(lengths, dtype=np.int64),
        )


@dataclass(slots=True)
class _State:
    """The leaders of the bucket that the last batch ended in."""

    keys: list[bytes]
    bucket: int
    hashes: Integers
    sketches: Sketches

    @classmethod
    def empty(cls, max_leaders: int, width: int) -> _State:
        return cls([], 0, np.empty(max_leaders, np.int64), np.empty((max_leaders, width), np.uint8))

    def advance(self, rows: _Rows, limits: Bounds, split: int) -> pa.RecordBatch:
        carried = len(self.keys)
        ids = np.empty(limits.max_leaders, np.int64)
        ids[:carried] = np.arange(carried)
        room = len(rows.keys) * MAX_PAIRS
        found_rows, found_leaders, absorbed = (
            np.empty(room, np.int64),
            np.empty(room, np.int64),
            np.empty(room, np.bool_),
        )
        full = np.zeros(len(rows.keys), np.bool_)
        found, n_leaders = meet(
            rows.buckets,
            rows.sketches,
            rows.hashes,
            rows.earlier,
            rows.known,
            rows.known_ends,
            ids,
            self.hashes,
            self.sketches,
            carried,
            np.int64(self.bucket),
            limits.pair,
            limits.absorb,
            found_rows,
            found_leaders,
            absorbed,
            full,
        )
        found_rows, found_leaders, absorbed = found_rows[:found], found_leaders[:found], absorbed[:found]
        keys = self.keys + rows.keys
        out_keys = [rows.keys[i] for i in found_rows.tolist()]
        out_leaders: list[bytes | None] = [keys[i] for i in found_leaders.tolist()]
        left = np.flatnonzero(full)
        if len(left):
            smaller = np.empty(len(left), np.int64)
            split_buckets(rows.buckets[left], rows.sketches[left], split, smaller)
            out_keys += [rows.keys[i] for i in left.tolist()]
            out_leaders += [None] * len(left)
            out_buckets = pa.array([None] * len(found_rows) + smaller.tolist(), pa.int64())
            absorbed = np.concatenate([absorbed, np.zeros(len(left), np.bool_)])
        else:
            out_buckets = pa.nulls(len(found_rows), pa.int64())
        self.keys = [keys[i] for i in ids[:n_leaders].tolist()]
        self.bucket = int(rows.buckets[-1])
        return pa.RecordBatch.from_arrays(
            [pa.array(out_keys, pa.binary()), pa.array(out_leaders, pa.binary()), pa.array(absorbed), out_buckets],
            schema=_FOUND,
        )


@njit
def meet(
    buckets: Integers,
    sketches: Sketches,
    hashes: Integers,
    earlier: npt.NDArray[np.bool_],
    known: Integers,
    known_ends: Integers,
    ids: Integers,
    leader_hashes: Integers,
    leader_sketches: Sketches,
    n_leaders: int,
    bucket: np.int64,
    pair: int,
    absorb: int,
    rows: Integers,
    leaders: Integers,
    absorbed: npt.NDArray[np.bool_],
    full: npt.NDArray[np.bool_],
) -> tuple[int, int]:
    """Walk sorted rows past the leaders; (pairs found, leaders of the bucket left open).

    Leader arrays hold, and afterwards again hold, the open bucket's leaders; `ids` numbers them: carried ones first,
    then row i of this batch as carried + i. `earlier` rows become leaders without a look at the others. The last four
    arrays are the results.
    """
    n, width = sketches.shape
    carried = n_leaders
    found = 0
    for i in range(n):
        if buckets[i] != bucket:
            bucket = buckets[i]
            n_leaders = 0
        first_known = known_ends[i - 1] if i > 0 else 0
        first_found = found
        taken = False
        for j in range(0 if earlier[i] else n_leaders):
            equal = 0
            for k in range(width):
                equal += sketches[i, k] == leader_sketches[j, k]
            if equal < pair:
                continue
            is_known = False
            for k in range(first_known, known_ends[i]):
                is_known |= known[k] == leader_hashes[j]
            if is_known:
                continue
            rows[found] = i
            leaders[found] = ids[j]
            found += 1
            if equal >= absorb or found - first_found == MAX_PAIRS:
                taken = True
                break
        for k in range(first_found, found):
            absorbed[k] = taken
        if taken:
            continue
        if n_leaders == len(leader_hashes):
            full[i] = True
            continue
        ids[n_leaders] = carried + i
        leader_hashes[n_leaders] = hashes[i]
        for k in range(width):
            leader_sketches[n_leaders, k] = sketches[i, k]
        n_leaders += 1
    return found, n_leaders


@njit
def split_buckets(buckets: Integers, sketches: Sketches, split: int, smaller: Integers) -> None:
    """A smaller bucket for each row: its bucket and a few more rows of its signature, others at each split."""
    width = sketches.shape[1]
    for i in range(len(buckets)):
        h = np.uint64(buckets[i]) ^ (np.uint64(split + 1) * np.uint64(0x9E3779B97F4A7C15))
        drawn = h
        for _ in range(_SPLIT_ROWS):
            drawn = drawn * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
            at = int((drawn >> np.uint64(33)) % np.uint64(width))
            h = (h ^ np.uint64(sketches[i, at])) * np.uint64(0xFF51AFD7ED558CCD)
            h ^= h >> np.uint64(32)
        smaller[i] = np.int64(h)
