"""The stages of a run: what is done, what is due and why, and in which order it is committed.

    plan -> records (extract, measure) -> duplicates -> verdicts -> shards -> accounts -> run.json

Each stage reads committed datasets only, so a killed run goes on from the last commit (for records: from the last
finished input file) and ends as an uninterrupted one would.
"""

from __future__ import annotations

import datetime
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from pipeline import accounts, keys, spark
from pipeline.annotate import Tools
from pipeline.inputs import Plan, make_plan
from pipeline.recipe import Recipe
from pipeline.storage import Storage, open_run


@dataclass(frozen=True)
class Outcome:
    run: dict[str, Any]  #: what run.json holds
    failed: list[str]  #: one line per input file that could not be read


@dataclass
class Run:
    """What the stages of one run share."""

    storage: Storage
    recipe: Recipe
    plan: Plan
    master: str | None
    timings: dict[str, float] = field(default_factory=dict)
    _session: SparkSession | None = None

    @property
    def session(self) -> SparkSession:
        """Started at the first stage that is due: a finished run, rerun, starts no Spark."""
        if self._session is None:
            begin = time.monotonic()
            self._session = spark.session(self.master)
            spark.preflight(self._session, keys.versions())
            self.timings["session"] = time.monotonic() - begin
        return self._session


def curate(
    inputs: Sequence[str], out: str, recipe: Recipe, *, master: str | None = None, files: int | None = None
) -> Outcome:
    """Curate `inputs` into the run folder `out`. Raises GristmillError where the run as a whole is unusable."""
    from pipeline import stages

    Tools(recipe).load()
    stages.check_start_up(recipe)
    begun = _now()
    storage = open_run(out, must_exist=False)
    with storage.lock():
        old = storage.read_json("run.json") or {}
        run = Run(storage, recipe, make_plan(storage, inputs, recipe, files), master)
        steps: list[tuple[str, Callable[[Run], bool]]] = [
            ("records", stages.records),
            ("duplicates", stages.duplicates),
            ("verdicts", stages.verdicts),
            ("shards", stages.shards),
            ("trim", stages.trim),
        ]
        changed = False
        for name, step in steps:
            begin = time.monotonic()
            if step(run):
                changed = True
                run.timings[name] = round(time.monotonic() - begin, 3)
        if not changed and old.get("status") == "finished":
            say("nothing to do: this run is finished and nothing it depends on has changed")
            return Outcome(old, run.plan.failed_lines(storage))
        accounts.check(storage)
        document = stages.describe_run(run, begun=begun, finished=_now(), inputs=list(inputs), old=old)
        storage.put_json("run.json", document)
        return Outcome(document, run.plan.failed_lines(storage))


def say(line: str) -> None:
    """One log line for people; results go to stdout, this goes to stderr."""
    print(f"{datetime.datetime.now():%H:%M:%S} {line}", file=sys.stderr, flush=True)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
