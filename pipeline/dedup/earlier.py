"""Documents of earlier finished runs: they take part as documents that are kept already.

They come before all others in priority, are never removed and not compared among themselves. Those that share neither a
bucket nor a text with a document of this run are dropped before anything else is done with them, so what is shuffled,
stored and read grows with the meetings of the two, not with the earlier runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from pipeline.dedup.documents import MAX_EARLIER, RUN_BYTES, prepare
from pipeline.dedup.frames import hold
from pipeline.dedup.verify import Readers, ReadNumbers, ReadTexts
from pipeline.errors import UsageError
from pipeline.recipe import Dedup

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Marks (8 bytes each) that are sent whole to every task that reads earlier documents; more are joined by a shuffle.
BROADCAST_MARKS = 500_000


@dataclass(frozen=True)
class Earlier:
    """One earlier run. `documents`: its survivors, with the columns that documents of this run have.

    `read` gives (record id, numbers) of rows of a `part`: their shingle hashes where `exact`, else their minima.
    """

    run_id: str
    documents: DataFrame
    read: ReadNumbers
    exact: bool


def in_order(earlier: Sequence[Earlier]) -> tuple[Earlier, ...]:
    """As their numbers are: those that allow exact comparison first, else by run id, however they were given."""
    if len(earlier) >= MAX_EARLIER:
        raise UsageError(
            f"--against names {len(earlier)} runs; more than {MAX_EARLIER - 1} cannot be compared with at once"
        )
    return tuple(sorted(earlier, key=lambda run: (not run.exact, run.run_id)))


def readers(earlier: Sequence[Earlier], read_texts: ReadTexts) -> Readers:
    return Readers(read_texts, tuple(run.read for run in earlier), sum(run.exact for run in earlier))


def meeting(new: DataFrame, earlier: Sequence[Earlier], settings: Dedup, held: list[DataFrame]) -> DataFrame:
    """`documents.prepare` of the earlier documents that share a bucket or a text with one of `new`; now computed."""
    from pyspark import StorageLevel
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F  # noqa: N812

    runs = [prepare(run.documents, settings, i.to_bytes(RUN_BYTES, "big")) for i, run in enumerate(earlier)]
    every = reduce(DataFrame.unionAll, runs).persist(StorageLevel.DISK_ONLY)
    wanted = hold(_marks(new).select("mark").distinct(), held)
    few = wanted.count() <= BROADCAST_MARKS
    met = _marks(every).join(F.broadcast(wanted) if few else wanted, "mark", "left_semi").select("key").distinct()
    kept = hold(every.join(met, "key", "left_semi"), held)
    kept.count()
    every.unpersist()
    return kept


def _marks(prepared: DataFrame) -> DataFrame:
    """(key, mark): a document's buckets, and a hash of its text as one more."""
    from pyspark.sql import functions as F  # noqa: N812

    none = F.array().cast("array<bigint>")
    marks = F.concat(F.coalesce("buckets", none), F.array(F.xxhash64("exact")))
    return prepared.select("key", F.explode(marks).alias("mark"))
