"""What a person sees while a run works: log lines, and on a terminal a bar over the tasks of the stage at hand."""

from __future__ import annotations

import datetime
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tqdm import tqdm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BAR_SECONDS = 0.5
_LINE_SECONDS = 30.0


def say(line: str) -> None:
    """One log line; results go to stdout, this goes to stderr."""
    tqdm.write(f"{datetime.datetime.now():%H:%M:%S} {line}", file=sys.stderr)


@contextmanager
def watch(spark: SparkSession, what: str, tasks: int | None = None) -> Iterator[None]:
    """A bar on a terminal, else a line now and then, of how many `tasks` (None: not known) are done by the body."""
    stop = threading.Event()
    group = f"gristmill {what} {time.monotonic_ns()}"
    spark.sparkContext.setJobGroup(group, what)
    begin = time.monotonic()
    looker = threading.Thread(target=_look, args=(spark, group, what, tasks, stop), daemon=True)
    looker.start()
    try:
        yield
    finally:
        stop.set()
        looker.join()
        spark.sparkContext.setJobGroup("", "")
    say(f"{what}: done in {time.monotonic() - begin:.1f} s")


def _look(spark: SparkSession, group: str, what: str, tasks: int | None, stop: threading.Event) -> None:
    terminal = sys.stderr.isatty()
    tracker = spark.sparkContext.statusTracker()
    wait = _BAR_SECONDS if terminal else _LINE_SECONDS
    with tqdm(total=tasks, desc=what, unit="task", disable=not terminal, leave=False) as bar:
        while not stop.wait(wait):
            done = 0
            for job in tracker.getJobIdsForGroup(group):
                info = tracker.getJobInfo(job)
                for stage in info.stageIds if info else ():
                    detail = tracker.getStageInfo(stage)
                    done += detail.numCompletedTasks if detail else 0
            if terminal:
                bar.n = done if tasks is None else min(done, tasks)
                bar.refresh()
            else:
                say(f"{what}: {done} tasks done" if tasks is None else f"{what}: {done} of {tasks} tasks done")
