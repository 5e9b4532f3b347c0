"""Cached frames that stand on their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def hold(frame: DataFrame, held: list[DataFrame]) -> DataFrame:
    """`frame` computed once, at its first use, with its plan forgotten; what is cached is added to `held`.

    A loop that uses a cached frame twice would double its plan at each turn, and planning would take longer than the
    work. Partitions that are lost are computed again, which a local checkpoint cannot do.
    """
    from pyspark import StorageLevel
    from pyspark.sql import DataFrame

    cached = frame.persist(StorageLevel.DISK_ONLY)
    held.append(cached)
    session = frame.sparkSession
    # `toJavaRDD` would do too, but since Spark 4.3 its RDD carries the plan it came from into every later plan's
    # description, which then grows fifteenfold a round: half a gigabyte in the fifth, and the driver's heap is full.
    rows = cached._jdf.queryExecution().executedPlan().execute()
    return DataFrame(session._jsparkSession.internalCreateDataFrame(rows, cached._jdf.schema(), False), session)
