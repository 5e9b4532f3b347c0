"""Both ways of joining pairs into components give the same labels, and the right ones."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from pipeline.dedup.components import components

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_labels_are_the_smallest_key_reached(spark: SparkSession) -> None:
    generator = random.Random(8)
    names = [f"{i:05d}".encode() for i in range(400)]
    generator.shuffle(names)
    edges = [(i, i + 1) for i in range(60)]  # a chain, in random key order
    edges += [(generator.randrange(100, 400), generator.randrange(100, 400)) for _ in range(170)]
    leaders: dict[bytes, set[bytes]] = {}
    label = {name: name for pair in edges for name in (names[pair[0]], names[pair[1]]) if pair[0] != pair[1]}
    for i, j in edges:
        a, b = sorted((names[i], names[j]))
        if a != b:
            leaders.setdefault(b, set()).add(a)
    changed = True
    while changed:  # the plainest way: spread the smallest key until nothing moves
        changed = False
        for b, others in leaders.items():
            for a in others:
                low = min(label[a], label[b])
                changed |= label[a] != low or label[b] != low
                label[a] = label[b] = low
    frame = spark.createDataFrame(
        [(key, sorted(others)) for key, others in leaders.items()], "key binary, leaders array<binary>"
    )
    for one_task in (len(edges), 0):
        rows = components(frame, len(edges), one_task=one_task).collect()
        assert {bytes(row["key"]): bytes(row["component"]) for row in rows} == label
        assert len(rows) == len(label)
