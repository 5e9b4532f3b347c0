"""Leaders, survivors, and again, until no pair is new: then the survivors are those of all candidate pairs.

Why that is enough. At the end every removed document has a kept, verified similar one of higher priority, and no two
kept documents that share a bucket are a pair. There is exactly one such set: the one that a greedy pass over all pairs
in priority order leaves.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.dedup.candidates import SPLITS, Bounds, explode, merge, pairs
from pipeline.dedup.components import ONE_TASK, components
from pipeline.dedup.documents import IS_NEW
from pipeline.dedup.frames import hold
from pipeline.dedup.shared import MOST_BUCKETS, rows_in, shared_buckets
from pipeline.dedup.survivors import decide
from pipeline.dedup.verify import Readers, with_shingles
from pipeline.errors import GristmillError
from pipeline.recipe import Dedup

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MAX_ROUNDS = 50
#: Documents (a key each) that are sent whole to every task of a rerun; more are joined by a shuffle.
BROADCAST_KEYS = 100_000
#: Buckets that the driver gathers as rows.
MOST_ROWS = 500_000


@dataclass(frozen=True)
class Settled:
    """`removed`: key, kept, similarity of each near-duplicate; `held`: cached frames that it reads."""

    removed: DataFrame
    counts: dict[str, Any]
    held: list[DataFrame]


@dataclass
class Rounds:
    """One dedup's fixed things, and the frames cached on the way."""

    distinct: DataFrame  # documents.prepare, one row per text; documents of earlier runs among them
    settings: Dedup
    readers: Readers
    limits: Bounds
    documents: int  # in `distinct`
    one_task: int = ONE_TASK  # pairs whose components one task joins
    most_buckets: int = MOST_BUCKETS  # sent whole to every task
    held: list[DataFrame] = field(default_factory=list)

    def settle(self) -> Settled:
        """Near-duplicates among the distinct texts."""
        from pyspark.sql import functions as F  # noqa: N812

        known: DataFrame | None = None
        decided: DataFrame | None = None
        n_pairs = rounds = uncompared = removed = unsettled = 0
        while True:
            rows = self._first() if known is None or decided is None else self._again(known, decided, unsettled)
            found, n_new, left_over = self._pairs(rows, known)
            uncompared = max(uncompared, left_over)
            if n_new == 0:
                break
            rounds += 1
            if rounds > MAX_ROUNDS:
                raise GristmillError(f"dedup: survivors did not settle in {MAX_ROUNDS} rounds; report this")
            n_pairs += n_new
            decided, known = self._decide(found, known, decided, n_pairs, n_new)
            removed, unsettled = self._tally(decided)
            if not unsettled:
                break
        similarities = self._similarities(decided)
        estimated = decided.agg(F.sum("estimated")).head() if decided is not None else None
        counts = {
            "candidate_pairs": n_pairs,
            "verified_pairs": sum(similarities.values()),
            "estimated_pairs": estimated[0] if estimated else 0,
            "uncompared": uncompared,
            "rounds": rounds,
            "near_removed": removed,
            "similarities": similarities,
        }
        return Settled(self._removed(decided), counts, self.held)

    def _hold(self, frame: DataFrame) -> DataFrame:
        return hold(frame, self.held)

    def _first(self) -> DataFrame:
        """Rows of all documents, in the buckets that hold more than one."""
        shared = shared_buckets(self.distinct, self.documents * self.settings.bands, self.held, self.most_buckets)
        return explode(self.distinct) if shared is None else rows_in(self.distinct, shared)

    def _again(self, known: DataFrame, decided: DataFrame, unsettled: int) -> DataFrame:
        """Rows for a rerun: survivors, in the buckets of the `unsettled` of them, which were once absorbed."""
        from pyspark.sql import functions as F  # noqa: N812

        waiting = _few(decided.where("kept is null and absorbed").select("key"), unsettled)
        hot = self._hold(explode(self.distinct.join(waiting, "key", "left_semi")).select("bucket").distinct())
        if hot.count() <= min(self.most_buckets, MOST_ROWS):
            buckets = np.array([row[0] for row in hot.collect()], np.int64)
            rows = rows_in(self.distinct, np.sort(buckets))
        else:
            rows = explode(self.distinct).join(hot, "bucket", "left_semi")
        gone = decided.where("kept is not null").select("key")
        return rows.join(gone, "key", "left_anti").join(
            known.select("key", F.col("leaders").alias("known")), "key", "left"
        )

    def _pairs(self, rows: DataFrame, known: DataFrame | None) -> tuple[DataFrame, int, int]:
        """New pairs among `rows`, their number, and the documents left uncompared in a bucket."""
        from pyspark.sql import functions as F  # noqa: N812

        tables: list[DataFrame] = []
        n_pairs = 0
        for split in range(SPLITS + 1):
            tables.append(self._hold(pairs(rows, self.limits, split)))
            left = F.expr(f"sum(if({IS_NEW}, size(left_over), 0))")
            totals = tables[-1].agg(F.expr("sum(size(leaders))"), F.expr("sum(size(left_over))"), left).head()
            assert totals is not None
            n_pairs += totals[0] or 0
            left_over = totals[2] or 0
            if not totals[1] or split == SPLITS:
                break
            smaller = tables[-1].select("key", F.explode("left_over").alias("bucket"))
            rows = smaller.join(self.distinct.select("key", "sketch"), "key")
            if known is not None:
                rows = rows.join(known.select("key", F.col("leaders").alias("known")), "key", "left")
        if len(tables) == 1:
            return tables[0].where("size(leaders) > 0"), n_pairs, left_over
        merged = self._hold(merge(tables).where("size(leaders) > 0"))
        n_pairs = merged.agg(F.expr("sum(size(leaders))")).head()[0] or 0  # type: ignore[index]
        return merged, n_pairs, left_over

    def _decide(
        self, found: DataFrame, known: DataFrame | None, decided: DataFrame | None, n_pairs: int, n_new: int
    ) -> tuple[DataFrame, DataFrame]:
        """(decisions, known pairs) with the new pairs in: only components that they touch are decided again."""
        places = self.distinct.select("key", "part", "row", "exact_hash")
        known = found if known is None else self._hold(merge([known, found]))
        pairs = known.select("key", "leaders", "absorbed")
        labels = components(known, n_pairs, one_task=self.one_task)
        kept_as_it_is: DataFrame | None = None
        if decided is not None:
            labels = self._hold(labels)
            labels.count()  # what is broadcast has five minutes, so it is computed before
            touched = labels.join(_few(found.select("key"), n_new), "key", "left_semi").select("component").distinct()
            labels = self._hold(labels.join(_few(touched, n_new), "component", "left_semi").select("key", "component"))
            again = _few(labels.select("key"), labels.count())
            pairs, places = pairs.join(again, "key", "left_semi"), places.join(again, "key", "left_semi")
            kept_as_it_is = decided.join(again, "key", "left_anti")
        rows = labels.join(pairs, "key", "left").join(places, "key")
        shingled = with_shingles(rows, self.settings, self.readers)
        fresh = decide(shingled, self.settings.threshold, self.readers)
        return self._hold(fresh.unionByName(kept_as_it_is) if kept_as_it_is is not None else fresh), known

    def _tally(self, decided: DataFrame) -> tuple[int, int]:
        """(removed documents, survivors that were once absorbed)."""
        row = decided.selectExpr("count_if(kept is not null)", "count_if(kept is null and absorbed)").head()
        assert row is not None
        return row[0], row[1]

    def _similarities(self, decided: DataFrame | None) -> dict[int, int]:
        """Verified pairs by exact Jaccard in percent, rounded down."""
        from pyspark.sql import functions as F  # noqa: N812

        if decided is None:
            return {}
        each = decided.select(F.explode("compared").alias("similarity"))
        each = each.select(F.expr("cast(floor(similarity * 100 + 1e-4) as int)").alias("percent"))
        return {row[0]: row[1] for row in each.groupBy("percent").count().orderBy("percent").collect()}

    def _removed(self, decided: DataFrame | None) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812

        if decided is not None:
            return decided.where("kept is not null").select("key", "kept", "similarity")
        nothing = self.distinct.where(F.lit(False))
        return nothing.select("key", F.col("key").alias("kept"), F.lit(1.0).alias("similarity"))


def _few(rows: DataFrame, count: int) -> DataFrame:
    """`rows`, of which there are at most `count`, to be joined without a shuffle if they are few."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.broadcast(rows) if count <= BROADCAST_KEYS else rows
