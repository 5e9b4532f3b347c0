"""`contaminated/`: stored texts against the recipe's benchmarks, part by part; no crawl is read.

Every record with a text is compared, rejected ones too, so that a changed rule compares nothing again. What is compared
is what would be published: `edited`, else `text`, before personal data is masked.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from pipeline.datasets import CONTAMINATED
from pipeline.decontaminate import Index, build, open_index, overlaps, save
from pipeline.errors import GristmillError
from pipeline.recipe import Recipe
from pipeline.run import keys
from pipeline.run.progress import say, watch
from pipeline.storage import Part, PartWriter, RowReader, Storage, stem_of

if TYPE_CHECKING:
    from pipeline.run.curate import Run

DATASET = "contaminated"
_ROWS = 256  #: texts turned into Python strings at a time
_SPAN = 1000  #: characters of a span that are stored


@dataclass(frozen=True, slots=True)
class MatchTask:
    """One part of `records/`; `meta`: what makes its part of `contaminated/` known again."""

    records: str
    meta: dict[str, Any]

    @property
    def name(self) -> str:
        return stem_of(self.records)


def contaminated(run: Run) -> bool:
    """Which records hold words of a benchmark; without benchmarks there is no such dataset."""
    storage, recipe = run.storage, run.recipe
    manifest = storage.read_manifest(DATASET)
    if not recipe.decontaminate.benchmarks:
        if manifest is None:
            return False
        run.begin_changes()
        storage.drop(DATASET)
        return True
    key = keys.contaminated_key(recipe, run.measure_keys())
    metas = [_meta(part, recipe) for part in run.parts()]
    if manifest is not None and manifest.key == key and [_own(part) for part in manifest.parts] == metas:
        return False
    run.begin_changes()
    storage.sweep(DATASET, keep_receipts=True)
    received = [part for receipt in storage.receipts(DATASET).values() for part in receipt.parts]
    held = {_name(part.meta): part for part in (*(manifest.parts if manifest else ()), *received)}
    tasks = [
        MatchTask(part.path, meta) for part, meta in zip(run.parts(), metas, strict=True) if _name(meta) not in held
    ]
    counts = manifest.extra["benchmarks"] if manifest else {}
    if tasks or _changed(recipe, manifest.extra["ingredients"] if manifest else None):
        index = _built(recipe)
        if keys.contaminated_key(recipe, run.measure_keys()) != key:
            raise GristmillError("a benchmark file changed while the run was at work; run again")
        counts = index.counts
        _say(run, index, len(tasks), manifest.extra["ingredients"] if manifest else None)
        for part in _match(run, tasks, index):
            held[_name(part.meta)] = part
    extra = {"ingredients": keys.ingredients("decontaminate", recipe), "benchmarks": counts}
    storage.commit(DATASET, key, [held[_name(meta)] for meta in metas], extra)
    return True


def beside(run: Run) -> dict[str, str]:
    """A part of `records/` -> the part of `contaminated/` about it."""
    if not run.recipe.decontaminate.benchmarks:
        return {}
    parts = zip(run.parts(), run.committed(DATASET).parts, strict=True)
    return {records.path: found.path for records, found in parts}


def described(run: Run) -> dict[str, dict[str, int]]:
    """Of each benchmark: entries, those too short to match, n-grams, and records that hold one of them."""
    manifest = run.committed(DATASET)
    matched: Counter[str] = Counter()
    for part in manifest.parts:
        with RowReader(run.storage, part.path, ["benchmark"]) as reader:
            for _, table in reader.read(range(reader.num_rows)):
                matched.update(table["benchmark"].to_pylist())
    return {name: {**counts, "matched": matched[name]} for name, counts in manifest.extra["benchmarks"].items()}


def _meta(part: Part, recipe: Recipe) -> dict[str, Any]:
    """Of the part of `contaminated/` that is about this part of `records/`."""
    held = {name: part.meta[name] for name in ("input_id", "stretch", "stretches")}
    texts = (part.meta["measure_key"], part.meta.get("lines"))
    return held | {"key": keys.stage_key("decontaminate", recipe, texts)}


def _own(part: Part) -> dict[str, Any]:
    return {name: part.meta.get(name) for name in ("input_id", "stretch", "stretches", "key")}


def _name(meta: dict[str, Any]) -> tuple[Any, ...]:
    return meta["input_id"], meta["stretch"], meta["stretches"], meta["key"]


def _changed(recipe: Recipe, made_of: dict[str, str] | None) -> bool:
    return made_of is None or bool(keys.changes("decontaminate", recipe, made_of))


def _built(recipe: Recipe) -> Index:
    """The index of just those files that the stage's key speaks of."""
    index = build(recipe.decontaminate)
    for name, benchmark in recipe.decontaminate.benchmarks.items():
        for path, sha256 in zip(benchmark.path, index.hashes[name], strict=True):
            if not sha256.startswith(keys.known_hash(path)):
                raise GristmillError(f"benchmark {name}: {path} changed while the run was at work; run again")
    return index


def _say(run: Run, index: Index, tasks: int, made_of: dict[str, str] | None) -> None:
    why = keys.changes("decontaminate", run.recipe, made_of) if made_of else ""
    say(f"contaminated: {tasks} of {len(run.parts())} parts to compare" + (f": {why} changed" if why else ""))
    for name, counts in index.counts.items():
        short = f", {counts['too_short']:,} of them shorter than {index.ngram} words" if counts["too_short"] else ""
        say(f"contaminated: {name}: {counts['entries']:,} entries{short}; {counts['ngrams']:,} n-grams")


def _match(run: Run, tasks: list[MatchTask], index: Index) -> list[Part]:
    if not tasks:
        return []
    spark = run.session.sparkContext
    name = _ship(run, index)
    with watch(run.session, DATASET, len(tasks)):
        work = spark.parallelize(tasks, len(tasks))
        return work.map(partial(match_part, storage=run.storage, index_name=name)).collect()


def _ship(run: Run, index: Index) -> str:
    """Gives every executor the index, once per node, as a file of this name."""
    # executors that join later fetch it too, so it lives as long as this process
    folder = tempfile.mkdtemp(prefix="gristmill-benchmarks-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder) / Path(folder).name  # Spark wants another name for each file of a session
    save(index, path)
    run.session.sparkContext.addFile(str(path))
    return path.name


def match_part(task: MatchTask, storage: Storage, index_name: str) -> Part:
    """Write the part of `contaminated/` about a part of `records/`, and its receipt."""
    index = _index(index_name)
    with (
        PartWriter(storage, DATASET, task.name, CONTAMINATED) as writer,
        RowReader(storage, task.records, ["record_id", "text", "edited"]) as reader,
    ):
        for record_id, text in _texts(reader):
            rows = [
                {
                    "record_id": record_id,
                    "benchmark": one.benchmark,
                    "file": one.file,
                    "entry": one.entry,
                    "field": one.field,
                    "span_start": one.start,
                    "span_end": one.end,
                    "ngrams": one.ngrams,
                    "span": text[one.start : min(one.end, one.start + _SPAN)],
                }
                for one in overlaps(text, index)
            ]
            if rows:
                writer.write(rows)
        part = writer.close(task.meta)
    storage.put_receipt(DATASET, task.name, [part])
    return part


def _texts(reader: RowReader) -> Iterator[tuple[str, str]]:
    """(record_id, what would be published of it) of the records that have a text."""
    for _, table in reader.read(range(reader.num_rows)):
        best = pc.coalesce(table["edited"], table["text"])
        for start in range(0, table.num_rows, _ROWS):
            ids, texts = (column.slice(start, _ROWS).to_pylist() for column in (table["record_id"], best))
            yield from ((record_id, text) for record_id, text in zip(ids, texts, strict=True) if text)


@lru_cache(maxsize=1)
def _index(name: str) -> Index:
    """Mapped once per worker process."""
    from pyspark import SparkFiles

    return open_index(Path(SparkFiles.get(name)))
