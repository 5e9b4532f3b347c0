"""Signatures to removed duplicates: candidate pairs, verified pairs, survivors.

A document is removed only if a *kept* document of higher priority holds the same text (`exact`) or has an exact
shingle Jaccard at or above the threshold (`near`). The result is what a greedy pass over all candidate pairs would
leave, best documents first, and does not depend on partitions, order or scheduling. Survivors of earlier runs may stand
before all others; where such a run kept no shingle hashes, similarity with it is estimated (`near_estimated`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pipeline.dedup.candidates import Bounds, bounds
from pipeline.dedup.documents import IS_NEW, RUN_BYTES, key_bytes, prepare, with_first_copy
from pipeline.dedup.earlier import Earlier, in_order, meeting, readers
from pipeline.dedup.frames import hold
from pipeline.dedup.one_task import MAX_ROWS, in_one_task
from pipeline.dedup.rounds import Rounds
from pipeline.dedup.verify import ReadNumbers, ReadTexts
from pipeline.errors import GristmillError
from pipeline.recipe import Dedup

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["DuplicatesResult", "Earlier", "ReadNumbers", "ReadTexts", "find_duplicates"]


@dataclass(frozen=True)
class DuplicatesResult:
    """`duplicates`: columns of datasets.DUPLICATES, one row per removed document. Release it once that is written.

    `counts`: documents, distinct_texts (none of an earlier run), earlier_met (earlier documents that share a bucket or
    text with one of these), candidate_pairs, verified_pairs, estimated_pairs, uncompared, rounds, near_removed
    (distinct texts), similarities (percent, rounded down, to the pairs verified at it).
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
    earlier: Sequence[Earlier] = (),
    one_task: int = MAX_ROWS,
    limits: Bounds | None = None,
) -> DuplicatesResult:
    """Removed duplicates among `documents` (documents.COLUMNS and the priority columns; ids are unique).

    Documents of `earlier` runs have the higher priority, stay as they are, and have no rows in the result. Up to
    `one_task` documents x bands, one Spark task does it all, with the same result. Raises GristmillError for an absent
    or empty column, signatures of another recipe, or texts that cannot be read.
    """
    from pyspark import StorageLevel
    from pyspark.sql import functions as F  # noqa: N812

    with one_line():
        prepared = prepare(documents, settings).persist(StorageLevel.DISK_ONLY)
        held = [prepared]
        limits = limits or bounds(settings)
        count = prepared.count()
        runs = in_order(earlier)
        run_ids = tuple(run.run_id for run in runs)
        source = readers(runs, read_texts)
        met = 0
        if runs:
            others = meeting(prepared, runs, settings, held)
            met = others.count()
            prepared = prepared.unionAll(others)
        if (count + met) * settings.bands <= one_task:
            whole = in_one_task(prepared, settings, source, run_ids, limits).persist(StorageLevel.DISK_ONLY)
            told = whole.where("counts is not null").select("counts").head()
            assert told is not None
            counts = json.loads(told[0])
            counts["similarities"] = {int(percent): n for percent, n in counts["similarities"].items()}
            counts["earlier_met"] = met
            return DuplicatesResult(whole.where("counts is null").drop("counts"), counts, [*held, whole])
        copies = hold(with_first_copy(prepared), held)
        row = copies.agg(F.count_if(F.expr(f"key = first and {IS_NEW}")), F.count_if(F.expr("key = first"))).head()
        assert row is not None
        settled = Rounds(copies.where("key = first"), settings, source, limits, row[1]).settle()
        counts = {"documents": count, "distinct_texts": row[0], "earlier_met": met, **settled.counts}
        duplicates = _duplicates(copies, settled.removed, settings, run_ids, source.exact)
    return DuplicatesResult(duplicates, counts, [*held, *settled.held])


def _duplicates(
    prepared: DataFrame, removed: DataFrame, settings: Dedup, run_ids: tuple[str, ...], exact: int
) -> DataFrame:
    """Near-duplicates, and the copies: of a kept text as exact, of a removed one by the survivor of that.

    `run_ids`: of the earlier runs; the first `exact` of them were compared exactly.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    kept_in = F.expr(f"cast(conv(hex(substring(kept, 1, {RUN_BYTES})), 16, 10) as int)")
    of_earlier = kept_in < F.lit(len(run_ids))
    kind = F.when(of_earlier & (kept_in >= F.lit(exact)), "near_estimated").otherwise("near")
    near = removed.select("key", "kept", "similarity", kind.alias("kind"))
    copies = prepared.where(f"key != first and {IS_NEW}").select(F.col("key").alias("copy"), "first")
    copies = copies.join(removed.withColumnRenamed("key", "first"), "first", "left").select(
        F.col("copy").alias("key"),
        F.coalesce("kept", "first").alias("kept"),
        F.coalesce("similarity", F.lit(1.0)).alias("similarity"),
        F.when(F.col("kept").isNotNull(), kind).otherwise("exact").alias("kind"),
    )
    names = F.array(*map(F.lit, run_ids)) if run_ids else F.array(F.lit(""))
    at = key_bytes(settings) + 1
    return near.union(copies).select(
        F.expr(f"cast(substring(key, {at}) as string)").alias("record_id"),
        F.expr(f"cast(substring(kept, {at}) as string)").alias("kept_id"),
        F.when(of_earlier, F.get(names, kept_in)).alias("kept_run"),
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
