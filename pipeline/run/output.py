"""`shards/`, the texts that `records/` may drop once shards are out, and `run.json`."""

from __future__ import annotations

import platform
from functools import partial
from importlib import metadata
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline import accounts
from pipeline.datasets import RECORDS, SCHEMA_VERSION
from pipeline.publish.job import RunInfo, publish
from pipeline.run import keys
from pipeline.run.against import describe
from pipeline.run.documents import documents, kept_documents
from pipeline.run.progress import say, watch
from pipeline.run.records import TEXTS
from pipeline.run.selection import stored_duplicates
from pipeline.storage import Part, PartWriter, RowReader, Storage, stem_of

if TYPE_CHECKING:
    from pipeline.run.curate import Run


def shards(run: Run) -> bool:
    """The kept records, published."""
    storage, recipe = run.storage, run.recipe
    key = keys.shards_key(recipe, run.committed("verdicts").key)
    manifest = storage.read_manifest("shards")
    if manifest is not None and manifest.key == key:
        return False
    run.begin_changes()
    say("shards: " + ("what they depend on has changed" if manifest else "new"))
    passed = documents(run.session, storage, recipe, run.parts(), signatures=False)
    kept = kept_documents(passed, stored_duplicates(run))
    with watch(run.session, "shards"):
        publish(run.session, kept, storage, recipe, RunInfo(key, recipe.digest()))
    accounts.check_shards(storage)
    return True


def trim(run: Run) -> bool:
    """`keep_text`: drops texts that the recipe does not want stored, after they have been published."""
    storage, wanted = run.storage, run.recipe.keep_text
    manifest = run.committed("records")
    verdict_parts = run.committed("verdicts").parts
    due = [
        (part, verdict.path)
        for part, verdict in zip(manifest.parts, verdict_parts, strict=True)
        if TEXTS.index(part.meta["texts"]) > TEXTS.index(wanted)
    ]
    if not due:
        return False
    run.begin_changes()
    say(f"records: dropping texts from {len(due)} parts (keep_text = {wanted})")
    work = run.session.sparkContext.parallelize(due, len(due))
    trimmed = dict(work.map(partial(_without_texts, storage=storage, keep_text=wanted)).collect())
    parts = [trimmed.get(part.path, part) for part in manifest.parts]
    # the same records under the same keys: what was made from them stays valid
    storage.commit("records", keys.digest([part.path for part in parts]), parts, manifest.extra)
    return True


def _without_texts(task: tuple[Part, str], storage: Storage, keep_text: str) -> tuple[str, Part]:
    part, verdicts = task
    with (
        PartWriter(storage, "records", stem_of(part.path), RECORDS) as writer,
        RowReader(storage, part.path) as records,
        RowReader(storage, verdicts, ["kept"]) as judged,
    ):
        kept = [flag for _, table in judged.read(range(judged.num_rows)) for flag in table["kept"].to_pylist()]
        for positions, table in records.read(range(records.num_rows)):
            stays = pa.array([kept[row] and keep_text == "kept" for row in positions.tolist()])
            columns = {name: table[name].combine_chunks() for name in RECORDS.names}
            for name in ("text", "edited", "title"):
                columns[name] = pc.if_else(stays, columns[name], pa.scalar(None, pa.string()))
            writer.write(pa.RecordBatch.from_arrays([columns[name] for name in RECORDS.names], schema=RECORDS))
        return part.path, writer.close({**part.meta, "texts": keep_text})


def describe_run(run: Run, *, begun: str, finished: str, inputs: list[str], old: dict[str, Any]) -> dict[str, Any]:
    """What run.json says of the finished run."""
    shards_manifest = run.committed("shards")
    return {
        "schema_version": SCHEMA_VERSION,
        "status": "finished",
        "run_id": shards_manifest.key,
        "recipe_hash": run.recipe.digest(),
        "recipe": run.recipe.model_dump(mode="json"),
        "inputs_given": inputs,
        "copies": run.plan.copies,
        "failed": run.plan.failed,
        "started": begun,
        "finished": finished,
        "timings": {**old.get("timings", {}), **run.timings},
        "versions": {"python": platform.python_version(), "gristmill": _own_version(), **keys.versions()},
        "counts": accounts.counts(run.storage),
        "against": describe(run.against, run.recipe, accounts.removed_for_earlier(run.storage)),
        "dedup": run.committed("duplicates").extra["counts"],
    }


def _own_version() -> str:
    try:
        return metadata.version("gristmill")
    except metadata.PackageNotFoundError:  # shipped as --py-files
        return "unpacked"
