"""Which documents must be decided together: connected components of the candidate pairs.

A component only brings pairs to one task; it says nothing about duplicates. Its label is its smallest key. Up to
`ONE_TASK` pairs a single task joins them with union-find; above that Spark does, by alternating large-star and
small-star steps (Kiveris et al., Connected Components in MapReduce and Beyond, 2014), in about log n rounds. Both give
the same labels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from pipeline.dedup.frames import hold
from pipeline.errors import GristmillError
from pipeline.spark import map_in_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

ONE_TASK = 1_000_000
MAX_STEPS = 60

_LABELS = pa.schema([("key", pa.binary()), ("component", pa.binary())])


def components(candidates: DataFrame, n_pairs: int, *, one_task: int = ONE_TASK) -> DataFrame:
    """(key, component) of every document in a pair of `candidates` (key, leaders)."""
    if n_pairs <= one_task:
        return map_in_arrow(candidates.select("key", "leaders").repartition(1), _join_all, _LABELS)
    return _stars(candidates)


def _join_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    parent: dict[bytes, bytes] = {}

    def root(key: bytes) -> bytes:
        top = key
        while (above := parent.setdefault(top, top)) != top:
            top = above
        while key != top:
            parent[key], key = top, parent[key]
        return top

    for batch in batches:
        for key, leaders in zip(batch.column("key").to_pylist(), batch.column("leaders").to_pylist(), strict=True):
            for leader in leaders:
                a, b = root(key), root(leader)
                if a != b:
                    parent[max(a, b)] = min(a, b)
    keys = list(parent)
    for at in range(0, len(keys), 10_000):
        some = keys[at : at + 10_000]
        yield pa.RecordBatch.from_arrays(
            [pa.array(some, pa.binary()), pa.array([root(k) for k in some], pa.binary())], schema=_LABELS
        )


def _stars(candidates: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    start = candidates.select(F.col("key").alias("v"), F.explode("leaders").alias("u"))  # u < v: u sorts first
    vertices = start.select(F.col("v").alias("key")).union(start.select("u")).distinct()
    edges = start
    before: Row | None = None
    held: list[DataFrame] = []
    for _ in range(MAX_STEPS):
        edges = hold(_small_star(hold(_large_star(edges), held)), held)
        sums = edges.agg(F.count("*"), F.expr("bit_xor(xxhash64(u, v))"), F.expr("sum(xxhash64(v, u) % 1000003)"))
        now = sums.head()
        for old in held[:-2]:
            old.unpersist()
        del held[:-2]
        if now == before:
            labels = edges.select(F.col("v").alias("key"), F.col("u").alias("component"))
            return vertices.join(labels, "key", "left").select("key", F.coalesce("component", "key").alias("component"))
        before = now
    raise GristmillError(f"dedup: the components of similar documents did not settle in {MAX_STEPS} steps; report this")


def _large_star(edges: DataFrame) -> DataFrame:
    """Every larger neighbour of a vertex is joined to the smallest of its neighbours and itself."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    both = edges.select(F.col("u").alias("a"), F.col("v").alias("b")).union(edges.select("v", "u"))
    smallest = F.least("a", F.min("b").over(Window.partitionBy("a")))
    return both.withColumn("u", smallest).where("b > a").select("u", F.col("b").alias("v")).distinct()


def _small_star(edges: DataFrame) -> DataFrame:
    """A vertex and its smaller neighbours are joined to the smallest of them."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    least = edges.withColumn("m", F.min("u").over(Window.partitionBy("v")))
    moved = least.where("u > m").select(F.col("m").alias("u"), F.col("u").alias("v"))
    return moved.union(least.select(F.col("m").alias("u"), "v")).distinct()
