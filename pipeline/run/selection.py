"""`duplicates/` and `verdicts/`: which of the stored records are kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from pipeline import accounts
from pipeline.datasets import DUPLICATES, VERDICTS
from pipeline.dedup import find_duplicates
from pipeline.dedup.signature import check_scheme
from pipeline.recipe import Recipe
from pipeline.run import against, keys
from pipeline.run.documents import (
    documents,
    entering,
    judged_tables,
    part_rows,
    stored,
    text_reader,
)
from pipeline.run.progress import say, watch
from pipeline.spark import map_in_arrow
from pipeline.storage import Part, PartWriter, Storage, stem_of

if TYPE_CHECKING:
    from pipeline.run.curate import Run

_ROWS_PER_FILE = 1_000_000
#: What a task tells of a file that it wrote; `records`: the part that a file of verdicts is about.
_WRITTEN = pa.schema([("part", pa.string()), ("records", pa.string())])


def duplicates(run: Run) -> bool:
    """Who is removed in whose favour, among the records that the rules let pass."""
    storage, recipe, parts = run.storage, run.recipe, run.parts()
    others = against.identities(run.against)
    key = keys.duplicates_key(recipe, run.measure_keys(), others)
    manifest = storage.read_manifest("duplicates")
    if manifest is not None and manifest.key == key:
        return False
    for part in parts:
        check_scheme(part.meta.get("scheme"), recipe.dedup, f"{storage.uri}/{part.path}")
    run.begin_changes()
    entered, count = entering(run.session, storage, recipe, parts)
    settings = keys.stage_key("dedup", recipe, entered, *others)
    if manifest is not None and manifest.extra["settings"] == settings:
        storage.commit("duplicates", key, manifest.parts, manifest.extra)
        return True
    why = keys.changes("dedup", recipe, manifest.extra["ingredients"]) if manifest else ""
    if not why and manifest is not None and manifest.extra.get("against", []) != others:
        why = "the earlier runs"
    because = f"{why} changed" if why else "another set of records enters" if manifest else "new"
    told = f" with {sum(one.documents for one in run.against):,} of earlier runs" if run.against else ""
    say(f"duplicates: {count:,} records to compare{told}: {because}")
    counts: dict[str, Any] = {"entered": count}
    if recipe.dedup.exact or recipe.dedup.near:
        with watch(run.session, "duplicates"):
            passed = documents(run.session, storage, recipe, parts, signatures=True)
            earlier = [against.for_dedup(run.session, one, recipe) for one in run.against]
            found = find_duplicates(passed, recipe.dedup, text_reader(storage), earlier=earlier)
            written = _write_duplicates(run, found.duplicates, 1 + count // _ROWS_PER_FILE)
            found.release()
        counts |= _for_people(found.counts)
    else:
        with PartWriter(storage, "duplicates", "duplicates", DUPLICATES) as writer:
            written = [writer.close()]
    made_of = keys.ingredients("dedup", recipe)
    extra = {"settings": settings, "ingredients": made_of, "against": others, "counts": counts}
    storage.commit("duplicates", key, written, extra)
    return True


def _for_people(counts: dict[str, Any]) -> dict[str, Any]:
    """The counts under the names that run.json uses; similarities as a histogram of bins one percent wide."""
    percents = {int(percent): n for percent, n in counts.get("similarities", {}).items()}
    return {
        "distinct_texts": counts["distinct_texts"],
        "candidates": counts["candidate_pairs"],
        "verified": counts["verified_pairs"],
        "estimated": counts["estimated_pairs"],
        "earlier_met": counts["earlier_met"],
        "uncompared": counts["uncompared"],
        "rounds": counts["rounds"],
        "similarities": {
            "edges": [edge / 100 for edge in range(102)],
            "counts": [percents.get(percent, 0) for percent in range(101)],
        },
    }


def _write_duplicates(run: Run, found: DataFrame, files: int) -> list[Part]:
    storage = run.storage

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with PartWriter(storage, "duplicates", "duplicates", DUPLICATES) as writer:
            for batch in batches:
                writer.write(batch.select(DUPLICATES.names))
            part = writer.close()
        yield pa.RecordBatch.from_pylist([{"part": json.dumps(part.to_json())}], schema=_WRITTEN)

    spread = found.repartition(files, "record_id").sortWithinPartitions("record_id")
    rows = map_in_arrow(spread, write, _WRITTEN).collect()
    return sorted((Part.from_json(json.loads(row["part"])) for row in rows), key=lambda part: part.path)


def stored_duplicates(run: Run) -> DataFrame:
    manifest = run.committed("duplicates")
    return stored(run.session, run.storage, manifest.parts, DUPLICATES)


# -- verdicts ---------------------------------------------------------------------------------------------------------


def verdicts(run: Run) -> bool:
    """One verdict per record, part by part in the rows' order: the rules', else dedup's, else kept."""
    storage, recipe, parts = run.storage, run.recipe, run.parts()
    key = keys.verdicts_key(recipe, run.committed("duplicates").key)
    manifest = storage.read_manifest("verdicts")
    if manifest is not None and manifest.key == key:
        return False
    run.begin_changes()
    why = keys.changes("judge", recipe, manifest.extra["ingredients"]) if manifest else "new"
    say(f"verdicts: {f'{why} changed' if why and manifest else why or 'the records or duplicates are others'}")
    session = run.session
    passed = documents(session, storage, recipe, parts, signatures=False).select("record_id", "part", "row")
    removed = (
        stored_duplicates(run)
        .join(passed, "record_id")
        .groupBy("part")
        .agg(sql.collect_list(sql.struct("row", "kind")).alias("removed"))
    )
    tasks = part_rows(session, parts).join(removed, "part", "left")

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.to_pylist():
                gone = {one["row"]: one["kind"] for one in task["removed"] or ()}
                part = _write_verdicts(storage, recipe, task["part"], gone)
                told = {"part": json.dumps(part.to_json()), "records": task["part"]}
                yield pa.RecordBatch.from_pylist([told], schema=_WRITTEN)

    with watch(session, "verdicts", len(parts)):
        rows = map_in_arrow(tasks.repartition(max(1, min(len(parts), 200))), write, _WRITTEN).collect()
    written = {row["records"]: Part.from_json(json.loads(row["part"])) for row in rows}
    storage.commit(
        "verdicts", key, [written[part.path] for part in parts], {"ingredients": keys.ingredients("judge", recipe)}
    )
    accounts.check_verdicts(storage)
    accounts.check_duplicates(storage, {one.run_id: one.storage for one in run.against})
    return True


def _write_verdicts(storage: Storage, recipe: Recipe, path: str, gone: dict[int, str]) -> Part:
    with PartWriter(storage, "verdicts", stem_of(path), VERDICTS) as writer:
        for first, table in judged_tables(storage, path, recipe, ["record_id", "url"]):
            columns: dict[str, Any] = {name: table[name].combine_chunks() for name in VERDICTS.names}
            here = [row for row in gone if first <= row < first + table.num_rows]
            if here:
                kept = columns["kept"].to_numpy(zero_copy_only=False).copy()
                stage = np.array(columns["stage"].to_pylist(), dtype=object)
                reason = np.array(columns["reason"].to_pylist(), dtype=object)
                for row in here:
                    kept[row - first] = False
                    stage[row - first] = "dedup"
                    reason[row - first] = _REASON[gone[row]]
                columns.update(
                    kept=pa.array(kept), stage=pa.array(stage, pa.string()), reason=pa.array(reason, pa.string())
                )
            writer.write(pa.RecordBatch.from_arrays([columns[name] for name in VERDICTS.names], schema=VERDICTS))
        return writer.close()


_REASON = {"exact": "exact", "near": "near", "near_estimated": "near"}
