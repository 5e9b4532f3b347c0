"""The session starts quietly anywhere, retries killed workers, and refuses executors that differ."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline import spark as spark_module
from pipeline.errors import GristmillError


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


def install_fake(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that this process sees and Spark's workers do not."""
    (folder / f"{name}-1.0.dist-info").mkdir()
    (folder / f"{name}-1.0.dist-info" / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(str(folder))


def test_equal_executors_pass_and_are_warmed(spark: SparkSession, tmp_path: Path) -> None:
    mark = str(tmp_path / "warm")

    def warm() -> None:
        with open(mark, "a") as file:
            file.write("x")

    (place,) = spark_module.preflight(spark, ["numpy", "pyarrow"], ["builtin:lid.176.ftz"], warm)
    assert place.endswith(f":{Path.cwd()}")
    assert Path(mark).read_text() == "x"


def test_a_package_that_executors_lack_is_named(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_fake("oddity", tmp_path, monkeypatch)
    start = time.monotonic()
    with pytest.raises(
        GristmillError, match=r"^executor \S+ differs from the driver: oddity is absent there, 1\.0 here$"
    ):
        spark_module.preflight(spark, ["numpy", "oddity"])
    assert time.monotonic() - start < 60


def test_two_owners_of_the_module_fasttext_are_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_fake("fasttext", tmp_path, monkeypatch)
    with pytest.raises(GristmillError, match=r"two packages own the module fasttext \(fasttext and fast"):
        spark_module.preflight(spark, [])


@pytest.mark.skipif(sys.platform != "linux", reason="needs a file that differs by process")
def test_a_model_file_that_differs_is_named(spark: SparkSession) -> None:
    with pytest.raises(GristmillError, match="differs from the driver: file /proc/self/cmdline is"):
        spark_module.preflight(spark, [], ["/proc/self/cmdline"])


def test_a_model_file_that_is_not_there_is_named(spark: SparkSession) -> None:
    with pytest.raises(GristmillError, match=r"^file /no/model\.bin cannot be read$"):
        spark_module.preflight(spark, [], ["/no/model.bin"])


def test_a_failure_of_the_first_use_is_one_line(spark: SparkSession) -> None:
    def warm() -> None:
        raise ValueError("the model is broken\nand more")

    with pytest.raises(GristmillError, match=r"^preflight: ValueError: the model is broken( on \S+)?$"):
        spark_module.preflight(spark, [], warm=warm)
    assert spark.range(3).count() == 3


def test_a_killed_worker_is_tried_again(spark: SparkSession, tmp_path: Path) -> None:
    mark = tmp_path / "died"

    def die_once(batches):  # type: ignore[no-untyped-def]
        import os
        import signal

        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        yield from batches

    assert spark.range(10, numPartitions=1).mapInArrow(die_once, "id long").count() == 10
    assert mark.exists()
