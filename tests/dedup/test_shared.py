"""Buckets with more than one document, found on packed numbers, are those that Spark would find."""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.dedup import shared
from pipeline.dedup.frames import hold
from pipeline.dedup.rounds import Rounds
from pipeline.recipe import Dedup
from tests.dedup.corpus import dedup
from tests.dedup.test_find_duplicates import SPREAD, trees

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BANDS = 6


def documents(spark: SparkSession, n: int) -> tuple[DataFrame, dict[bytes, list[int]]]:
    generator = random.Random(3)
    drawn = {
        f"{i:04}".encode(): [
            generator.choice((generator.getrandbits(63), generator.randrange(-40, 40))) for _ in range(BANDS)
        ]
        for i in range(n)
    }
    lists = {key: list(dict.fromkeys(numbers)) for key, numbers in drawn.items()}
    rows: list[tuple[Any, ...]] = [(key, key * 2, numbers) for key, numbers in lists.items()]
    rows.append((b"wordless", None, None))
    return spark.createDataFrame(rows, "key binary, sketch binary, buckets array<bigint>").repartition(3), lists


@pytest.mark.parametrize("piece", [50, 1 << 22])
def test_shared_buckets_and_their_rows(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    monkeypatch.setattr(shared, "_PIECE", piece)
    frame, lists = documents(spark, 300)
    numbers = [number for some in lists.values() for number in some]
    several = sorted({number for number in numbers if numbers.count(number) > 1})
    held: list[DataFrame] = []
    found = shared.shared_buckets(frame, len(numbers), held)
    assert found is not None
    assert found.tolist() == several
    assert shared.shared_buckets(frame, len(numbers), held, most=len(several) - 1) is None
    rows = {(bytes(row["key"]), row["bucket"], bytes(row["sketch"])) for row in shared.rows_in(frame, found).collect()}
    wanted = set(several)
    assert rows == {(key, n, key * 2) for key, some in lists.items() for n in some if n in wanted}
    assert shared.rows_in(frame, found[:0]).count() == 0
    for one in held:
        one.unpersist()


def test_more_buckets_than_can_be_gathered_give_the_same(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Dedup(permutations=80, bands=40, rows=2)
    here = dedup(spark, trees(5, 200), settings)
    monkeypatch.setattr("pipeline.dedup.Rounds", partial(Rounds, most_buckets=0))
    assert dedup(spark, trees(5, 200), settings, **SPREAD) == here


def test_the_plan_of_a_held_frame_does_not_grow(spark: SparkSession) -> None:
    """Spark describes every plan to its listeners, caches and RDDs unfolded: in a loop that fills the driver's heap."""
    held: list[DataFrame] = []
    frame = spark.createDataFrame([(i, i) for i in range(10)], "key int, value int")
    sizes = []
    for _ in range(3):
        frame = hold(frame.join(frame.select("key"), "key").where("key > 2"), held)
        plan = frame.where("key > 3")._jdf.queryExecution().executedPlan()
        sizes.append(nodes(spark._jvm.org.apache.spark.sql.execution.SparkPlanInfo.fromSparkPlan(plan)))  # type: ignore[union-attr]
    assert frame.count() == 7
    assert sizes[0] == sizes[2]
    for one in held:
        one.unpersist()


def nodes(described: Any) -> int:
    children = described.children()
    return 1 + sum(nodes(children.apply(i)) for i in range(children.size()))
