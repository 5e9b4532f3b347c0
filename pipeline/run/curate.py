"""The stages of a run: what is done, what is due and why, and in which order it is committed.

    plan -> records (extract, measure) -> lines -> contaminated -> duplicates -> verdicts -> shingles -> shards
    -> accounts -> run.json

Each stage reads committed datasets only, so a killed run goes on from the last commit (for records: from the last
finished input file) and ends as an uninterrupted one would.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pipeline import accounts, spark
from pipeline.annotate import Tools, warm
from pipeline.crawl import sources
from pipeline.decontaminate import check as check_benchmarks
from pipeline.errors import GristmillError
from pipeline.language import check_allowed
from pipeline.publish.tokens import open_tokenizer
from pipeline.recipe import Recipe
from pipeline.run import decontaminate, keys, lines, output, records, selection
from pipeline.run.against import EarlierRun, open_all
from pipeline.run.inputs import Plan, make_plan
from pipeline.run.progress import say
from pipeline.run.shingles import shingles
from pipeline.storage import Manifest, Part, Storage, open_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    old: dict[str, Any]  #: run.json as it was
    against: tuple[EarlierRun, ...] = ()
    timings: dict[str, float] = field(default_factory=dict)
    _session: SparkSession | None = None
    _changing: bool = False

    @property
    def session(self) -> SparkSession:
        """Started at the first stage that is due: a finished run, rerun, starts no Spark."""
        if self._session is None:
            begin = time.monotonic()
            say("starting Spark; the first run on a machine compiles for a minute")
            self._session = spark.session(self.master)
            spark.quiet_interrupts()
            spark.preflight(self._session, keys.versions(), keys.model_files(self.recipe), warm)
            self.timings["session"] = round(time.monotonic() - begin, 3)
        return self._session

    def begin_changes(self) -> None:
        """From here on, until run.json is written, the folder is not a finished run."""
        if not self._changing:
            self._changing = True
            self.storage.delete(self.storage.list("report"))  # it tells of the run as it was
            self.storage.put_json("run.json", {**self.old, "status": "unfinished"})

    def committed(self, dataset: str) -> Manifest:
        manifest = self.storage.read_manifest(dataset)
        if manifest is None:
            raise GristmillError(f"{self.storage.uri}/{dataset} is not there, though its stage is done; run again")
        return manifest

    def parts(self) -> tuple[Part, ...]:
        return self.committed("records").parts

    def contaminated(self) -> dict[str, str]:
        """A part of `records/` -> the part of `contaminated/` about it; empty where the recipe names no benchmark."""
        return decontaminate.beside(self)

    def measure_keys(self) -> list[str]:
        """Of the inputs that were read."""
        return sorted({part.meta["measure_key"] for part in self.parts()})


STAGES: tuple[tuple[str, Callable[[Run], bool]], ...] = (
    ("records", records.records),
    ("lines", lines.lines),
    ("contaminated", decontaminate.contaminated),
    ("duplicates", selection.duplicates),
    ("verdicts", selection.verdicts),
    ("shingles", shingles),
    ("shards", output.shards),
    ("trim", output.trim),
)


def curate(
    inputs: Sequence[str],
    out: str,
    recipe: Recipe,
    *,
    master: str | None = None,
    files: int | None = None,
    against: Sequence[str] = (),
) -> Outcome:
    """Curate `inputs` into the run folder `out`; survivors of the runs `against` count as kept already.

    Raises GristmillError where the run as a whole is unusable.
    """
    check_start_up(recipe)
    uris = sources.expand(inputs, base=recipe.input.base, files=files, settings=recipe.input)
    begun = _now()
    storage = open_run(out, must_exist=False)
    earlier = open_all(against, recipe, storage)
    with storage.lock():
        old = storage.read_json("run.json") or {}
        run = Run(storage, recipe, make_plan(storage, uris, recipe.input), master, old, earlier)
        changed = False
        for name, stage in STAGES:
            begin = time.monotonic()
            if stage(run):
                changed = True
                run.timings[name] = round(time.monotonic() - begin, 3)
        # a key that came later than the old run stands at its default there
        same_wish = Recipe().model_dump(mode="json") | old.get("recipe", {}) == recipe.model_dump(mode="json")
        same_wish &= [one["uri"] for one in old.get("against", [])] == [one.storage.uri for one in earlier]
        if not changed and old.get("status") == "finished" and same_wish:
            say("nothing to do: the run is finished, and nothing that it depends on has changed")
            return Outcome(old, run.plan.failed_lines())
        accounts.check(storage, {one.run_id: one.storage for one in earlier})
        document = output.describe_run(run, begun=begun, finished=_now(), inputs=list(inputs), old=old)
        storage.put_json("run.json", document)
        return Outcome(document, run.plan.failed_lines())


def check_start_up(recipe: Recipe) -> None:
    """Whatever the recipe names is there and fits, before anything is read. Raises UsageError."""
    Tools(recipe).load()
    check_allowed(recipe.language)
    check_benchmarks(recipe.decontaminate)
    open_tokenizer(recipe.publish)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
