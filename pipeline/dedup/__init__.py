"""Signatures to removed duplicates: candidate pairs, verified pairs, survivors.

A document is removed only if a *kept* document of higher priority holds the same text (`exact`) or has an exact
shingle Jaccard at or above the threshold (`near`). The result is what a greedy pass over all candidate pairs would
leave, best documents first, and does not depend on partitions, order or scheduling.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pipeline.dedup.candidates import Bounds, bounds
from pipeline.dedup.documents import key_bytes, prepare, with_first_copy
from pipeline.dedup.frames import hold
from pipeline.dedup.one_task import MAX_ROWS, in_one_task
from pipeline.dedup.rounds import Rounds
from pipeline.dedup.verify import ReadTexts
from pipeline.errors import GristmillError
from pipeline.recipe import Dedup

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["DuplicatesResult", "ReadTexts", "find_duplicates"]


@dataclass(frozen=True)
class DuplicatesResult:
    """`duplicates`: columns of datasets.DUPLICATES, one row per removed document. Release it once that is written.

    `counts`: documents, distinct_texts, candidate_pairs, verified_pairs, uncompared, rounds, near_removed (distinct
    texts), similarities (percent, rounded down, to the pairs verified at it).
    """

    duplicates: DataFrame
    counts: dict[str, Any]
    _held: list[DataFrame] = field(default_factory=list, repr=False)

    def release(self) -> None:
        for frame in self._held:
            frame.unpersist()


def find_duplicates(
    documents: DataFrame,
    settings: Dedup,
    read_texts: ReadTexts,
    *,
    one_task: int = MAX_ROWS,
    limits: Bounds | None = None,
) -> DuplicatesResult:
    """Removed duplicates among `documents` (documents.COLUMNS and the priority columns; ids are unique).

    Up to `one_task` documents x bands, one Spark task does it all, with the same result. Raises GristmillError for an
    absent or empty column, signatures of another recipe, or texts that cannot be read.
    """
    from pyspark import StorageLevel
    from pyspark.sql import functions as F  # noqa: N812

    with one_line():
        prepared = prepare(documents, settings).persist(StorageLevel.DISK_ONLY)
        limits = limits or bounds(settings)
        if prepared.count() * settings.bands <= one_task:
            whole = in_one_task(prepared, settings, read_texts, limits).persist(StorageLevel.DISK_ONLY)
            told = whole.where("counts is not null").select("counts").head()
            assert told is not None
            counts = json.loads(told[0])
            counts["similarities"] = {int(percent): n for percent, n in counts["similarities"].items()}
            return DuplicatesResult(whole.where("counts is null").drop("counts"), counts, [prepared, whole])
        held = [prepared]
        copies = hold(with_first_copy(prepared), held)
        row = copies.agg(F.count("*"), F.count_if(F.col("key") == F.col("first"))).head()
        assert row is not None
        settled = Rounds(copies.where("key = first"), settings, read_texts, limits).settle()
        counts = {"documents": row[0], "distinct_texts": row[1], **settled.counts}
        duplicates = _duplicates(copies, settled.removed, settings)
    return DuplicatesResult(duplicates, counts, [*held, *settled.held])


def _duplicates(prepared: DataFrame, removed: DataFrame, settings: Dedup) -> DataFrame:
    """Near-duplicates, and the copies: of a kept text as exact, of a removed one by the survivor of that."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    near = removed.select("key", "kept", "similarity", F.lit("near").alias("kind"))
    copies = prepared.where("key != first").select(F.col("key").alias("copy"), "first")
    copies = copies.join(removed.withColumnRenamed("key", "first"), "first", "left").select(
        F.col("copy").alias("key"),
        F.coalesce("kept", "first").alias("kept"),
        F.coalesce("similarity", F.lit(1.0)).alias("similarity"),
        F.when(F.col("kept").isNotNull(), "near").otherwise("exact").alias("kind"),
    )
    at = key_bytes(settings) + 1
    return near.union(copies).select(
        F.expr(f"cast(substring(key, {at}) as string)").alias("record_id"),
        F.expr(f"cast(substring(kept, {at}) as string)").alias("kept_id"),
        F.lit(None).cast("string").alias("kept_run"),
        "similarity",
        "kind",
        (F.count("*").over(Window.partitionBy("kept")) + 1).alias("cluster_size"),
    )


@contextmanager
def one_line() -> Iterator[None]:
    """A GristmillError raised inside a task reaches the caller as one, without Spark's pages around it."""
    try:
        yield
    except Exception as error:  # PySpark and Py4J have several kinds for a failed task
        told = re.search(r"^pipeline\.errors\.\w+: (.+)$", str(error), re.MULTILINE)
        if told:
            raise GristmillError(told[1]) from error
        raise
