"""The session starts quietly anywhere, retries killed workers, and refuses executors that differ."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from pipeline import spark as spark_module


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("local", "local[1,4]"),
        ("local[3]", "local[3,4]"),
        ("local[3,1]", "local[3,1]"),
        ("local[*]", f"local[{spark_module.cores()},4]"),
        (None, f"local[{spark_module.cores()},4]"),
        ("spark://127.0.0.1:7077", "spark://127.0.0.1:7077"),
    ],
)
def test_local_masters_retry(given: str | None, used: str) -> None:
    assert spark_module.local_master(given) == used


def test_a_second_call_returns_the_running_session(spark: SparkSession) -> None:
    assert spark_module.session("local[7]") is spark
    assert spark.sparkContext.master == "local[2,4]"


def test_tasks_in_workers_see_the_s3_server(spark: SparkSession, s3_bucket: str) -> None:
    def write_and_list(_: int) -> list[str]:
        import s3fs

        files = s3fs.S3FileSystem()
        files.pipe(f"{s3_bucket}/folder/one.txt", b"1")
        return [str(name) for name in files.ls(f"{s3_bucket}/folder")]

    (seen,) = spark.sparkContext.parallelize([0], 1).map(write_and_list).collect()
    assert seen == [f"{s3_bucket.removeprefix('s3://')}/folder/one.txt"]
