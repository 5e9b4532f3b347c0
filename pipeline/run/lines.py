"""`lines/`: which lines many documents of the run hold, and the records that look different now that it is known.

Counting reads every stored text; then only those records are measured again of which other lines are left than before.
A part's `meta["lines"]` says which state of its lines its rows show, so that a run killed at any moment, or one whose
inputs have changed, goes on with the parts that differ. Parts are committed before the lines that made them: lines that
are committed are true of all parts whose state fits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pipeline import accounts
from pipeline.annotate import Row, clear_measured, measure
from pipeline.datasets import RECORDS
from pipeline.errors import GristmillError
from pipeline.quality.edits import edit
from pipeline.recipe import Recipe
from pipeline.repeated_lines import NOTHING, Table, cut
from pipeline.run import keys
from pipeline.run.line_counts import count, read_table
from pipeline.run.progress import say, watch
from pipeline.run.tasks import NO_LINES, tools_of, watched, with_verdict
from pipeline.storage import Part, PartWriter, RowReader, Storage, stem_of

if TYPE_CHECKING:
    from pipeline.run.curate import Run

#: (input_id, stretch, stretches) of a part: which piece of which file it holds.
Place = tuple[str, int, int]

_SIGNALS = ("repeated_line_ratio", "repeated_line_chars")


def lines(run: Run) -> bool:
    """Count, where the recipe asks and the records are others than those counted; then bring every part up to date."""
    storage, recipe = run.storage, run.recipe
    key = keys.lines_key(recipe, run.measure_keys())
    manifest = storage.read_manifest("lines")
    cuts = keys.digest(sorted(_place(part) for part in run.parts()))  # files of lines/ are by part, parts by the cuts
    counted = manifest is not None and (manifest.key, manifest.extra["cuts"]) == (key, cuts)
    if key is None and manifest is None and all("lines" not in part.meta for part in run.parts()):
        return False
    files = {_place(part): part for part in manifest.parts} if manifest else {}
    extra = manifest.extra if manifest else {}
    if key is not None and not counted:
        run.begin_changes()
        files, extra = _count(run, extra)
        extra["cuts"] = cuts
    due = []
    for part in run.parts():
        file = files.get(_place(part)) if key is not None else None
        state = None if key is None else file.meta["state"] if file else NO_LINES
        if part.meta.get("lines") != state:
            due.append(PartDue(part, file, state))
    if due:
        run.begin_changes()
        _bring_up_to_date(run, due)
    if counted and not due:
        return False
    if key is not None and not counted:
        storage.commit("lines", key, list(files.values()), extra)
    elif key is None and manifest is not None:
        run.begin_changes()
        storage.drop("lines")
    return True


def _place(part: Part) -> Place:
    return part.meta["input_id"], part.meta["stretch"], part.meta["stretches"]


def _count(run: Run, old: dict[str, Any]) -> tuple[dict[Place, Part], dict[str, Any]]:
    """(place of a part -> its file of `lines/`, what the manifest says of all of them)."""
    storage, recipe, parts = run.storage, run.recipe, run.parts()
    changed = keys.changes("lines", recipe, old.get("ingredients"))
    why = f"{changed} changed" if changed else "the records are others" if old else "new"
    say(f"lines: counting those of {sum(part.rows for part in parts):,} records: {why}")
    storage.sweep("lines")
    with watch(run.session, "lines"):
        found = count(run.session, storage, recipe, parts)
    files = {}
    for part in parts:
        file = found.parts.get(part.path)
        if file is not None:
            place = dict(zip(("input_id", "stretch", "stretches"), _place(part), strict=True))
            files[_place(part)] = replace(file, meta={**file.meta, **place})
    return files, {"ingredients": keys.ingredients("lines", recipe), "counts": found.counts}


def _bring_up_to_date(run: Run, due: list[PartDue]) -> None:
    storage, manifest = run.storage, run.committed("records")
    with watch(run.session, "records with repeated lines", len(due)):
        work = run.session.sparkContext.parallelize(due, len(due))
        made = work.map(partial(remake_part, recipe=run.recipe, storage=storage)).collect()
    again = sum(n for _, _, n in made)
    say(f"lines: {again:,} records measured again, in {len(due):,} of {len(manifest.parts):,} files")
    new = {old: part for old, part, _ in made}
    parts = [new.get(part.path, part) for part in manifest.parts]
    storage.commit("records", keys.digest([part.path for part in parts]), parts, manifest.extra)
    accounts.check_records(storage)


# -- on executors -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PartDue:
    """A part of `records/` whose rows do not show the `state` of its lines. `lines`: its file of `lines/`, if any."""

    part: Part
    lines: Part | None
    state: str | None


def remake_part(task: PartDue, recipe: Recipe, storage: Storage) -> tuple[str, Part, int]:
    """(the old part's path, the new part, records measured again). Writes a receipt, as reading does."""
    if task.part.meta["texts"] != "all":
        raise GristmillError(f"{task.part.path} holds no texts to look for lines in; remove it and run again")
    path = task.part.path
    table = read_table(storage, task.lines) if task.lines else NOTHING
    shown = _look(storage, path, recipe, table)
    fresh = _measured(storage, path, recipe, table, shown.changed)
    changed = set(shown.changed)
    with PartWriter(storage, "records", stem_of(path), RECORDS) as writer, RowReader(storage, path) as reader:
        for positions, rows in reader.read(range(reader.num_rows)):
            first = int(positions[0])
            batch = _with_signals(rows, shown, first)
            start = 0
            for at in [i for i in range(rows.num_rows) if first + i in changed] + [rows.num_rows]:
                if at > start:
                    writer.write(batch.slice(start, at - start))
                if at < rows.num_rows:
                    writer.write([next(fresh)])
                start = at + 1
        meta = {name: value for name, value in task.part.meta.items() if name != "lines"}
        part = writer.close(meta if task.state is None else {**meta, "lines": task.state})
    storage.put_receipt("records", f"{part.meta['input_id']}-{part.meta['stretch']:05d}", [part])
    return path, part, len(changed)


@dataclass(frozen=True, slots=True)
class Shown:
    """What a part's rows are to show, one entry per row; `changed`: the rows whose text is to be another."""

    ratios: list[float | None]
    chars: list[int | None]
    changed: list[int]


def _look(storage: Storage, path: str, recipe: Recipe, table: Table) -> Shown:
    settings = recipe.edit.repeated_lines
    shown = Shown([], [], [])
    with RowReader(storage, path, ["record_id", "text", "edited", "n_chars"]) as reader:
        for positions, rows in reader.read(range(reader.num_rows)):
            for position, row in zip(positions.tolist(), rows.to_pylist(), strict=True):
                ratio: float | None = None
                chars: int | None = None
                if row["text"] is not None:
                    edited = edit(row["text"], recipe.edit)
                    if settings is not None:
                        left = cut(edited, table, row["record_id"], settings)
                        edited, ratio, chars = left.text, left.ratio, left.chars
                    if row["n_chars"] is None or edited != (row["text"] if row["edited"] is None else row["edited"]):
                        shown.changed.append(position)
                shown.ratios.append(ratio)
                shown.chars.append(chars)
    return shown


def _with_signals(rows: pa.Table, shown: Shown, first: int) -> pa.RecordBatch:
    columns = {name: rows[name].combine_chunks() for name in RECORDS.names if name not in _SIGNALS}
    stop = first + rows.num_rows
    columns["repeated_line_ratio"] = pa.array(shown.ratios[first:stop], pa.float64())
    columns["repeated_line_chars"] = pa.array(shown.chars[first:stop], pa.int64())
    return pa.RecordBatch.from_arrays([columns[name] for name in RECORDS.names], schema=RECORDS)


def _measured(storage: Storage, path: str, recipe: Recipe, table: Table, changed: list[int]) -> Iterator[Row]:
    """The rows at the positions `changed`, measured again in a supervised child."""
    if not changed:
        return
    tools = tools_of(recipe)

    def open_items(after: int | None) -> Iterator[tuple[int, Row]]:
        left = changed if after is None else [position for position in changed if position > after]
        with RowReader(storage, path) as reader:
            for positions, rows in reader.read(left):
                where: list[int] = positions.tolist()
                yield from zip(where, rows.to_pylist(), strict=True)

    def handle(row: Row) -> Row:
        return measure(clear_measured(row), tools, table)

    for position, outcome in zip(changed, watched(open_items, handle, clear_measured, tools), strict=True):
        if outcome.key != position:
            raise GristmillError(f"{path}: row {position} was to be measured again, not {outcome.key}")
        yield with_verdict(outcome.value, outcome)
