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
    return DataFrame(session._jsparkSession.createDataFrame(cached._jdf.toJavaRDD(), cached._jdf.schema()), session)
