"""`records/` and `inputs/`: every input file read, or measured again from stored text, or taken as it is."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from pipeline import accounts
from pipeline.datasets import INPUTS
from pipeline.recipe import Recipe
from pipeline.run import keys
from pipeline.run.against import identities
from pipeline.run.inputs import PlannedInput
from pipeline.run.progress import say, watch
from pipeline.run.tasks import READER_BOOKS, Failed, PartTask, Stretch, cut_points, input_row, make_part, unread_row
from pipeline.storage import Part, PartWriter, Storage

if TYPE_CHECKING:
    from pipeline.run.curate import Run

MIB = 1 << 20
TEXTS = ("none", "kept", "all")  #: which texts a part of `records/` holds, least first


def _texts_needed(run: Run) -> int:
    """Which texts (an index into TEXTS) the parts must hold, for what is due after them and for the recipe's wish."""
    recipe, storage = run.recipe, run.storage
    measured = [_keys(planned, recipe)[1] for planned in run.plan.inputs]
    duplicates = keys.duplicates_key(recipe, measured, identities(run.against))
    verdicts = keys.verdicts_key(recipe, duplicates)
    shards = keys.shards_key(recipe, verdicts)
    wish = TEXTS.index(recipe.keep_text)
    if not _is_committed(storage, "duplicates", duplicates):
        return TEXTS.index("all")
    made = _is_committed(storage, "verdicts", verdicts) and _is_committed(storage, "shards", shards)
    if recipe.dedup.keep_shingles:
        made = made and _is_committed(storage, "shingles", keys.shingles_key(recipe, verdicts))
    if not made:
        return max(wish, TEXTS.index("kept"))
    return wish


def _is_committed(storage: Storage, dataset: str, key: str) -> bool:
    manifest = storage.read_manifest(dataset)
    return manifest is not None and manifest.key == key


def _keys(planned: PlannedInput, recipe: Recipe) -> tuple[str, str]:
    return keys.part_keys(planned.input_id, planned.warc_file, recipe)


def records(run: Run) -> bool:
    """Every input's parts of `records/`, and its row of `inputs/`."""
    storage, recipe = run.storage, run.recipe
    storage.sweep("records", keep_receipts=True)
    manifest = storage.read_manifest("records")
    held = _by_input([*(manifest.parts if manifest else ()), *_received(storage)])
    texts = _texts_needed(run)
    ready: list[Part] = []
    due: list[PartTask] = []
    to_read: list[PlannedInput] = []
    why: Counter[str] = Counter()
    for planned in run.plan.inputs:
        parts, reason = _usable(held[planned.input_id], planned, recipe, texts)
        if reason is None:
            ready.extend(parts)
            continue
        why[reason] += 1
        if parts:
            due.extend(_measure_again(planned, part, recipe) for part in parts)
        else:
            to_read.append(planned)
    changed = _what_changed(recipe, manifest.extra) if manifest else ""
    for reason, count in sorted(why.items()):
        say(f"records: {count} of {len(run.plan.inputs)} inputs: {reason}" + (f" ({changed})" if changed else ""))
    failed: list[Failed] = []
    if due or to_read:
        run.begin_changes()
        for planned, stretches in _cut(run, to_read, failed):
            for stretch in stretches:
                part = _finished(held[planned.input_id], planned, stretch, recipe)
                if part is None:
                    due.append(PartTask(planned, stretch, *_keys(planned, recipe)))
                else:
                    ready.append(part)
    if due:
        due.sort(key=lambda task: (-task.source.size, task.name))
        with watch(run.session, "records", len(due)):
            work = run.session.sparkContext.parallelize(due, len(due))
            results = work.map(partial(make_part, recipe=recipe, storage=storage)).collect()
        ready.extend(result for result in results if isinstance(result, Part))
        failed.extend(result for result in results if isinstance(result, Failed))
    run.plan.failed.update({one.uri: one.cause for one in failed})
    lost = {planned.input_id for planned in run.plan.inputs if planned.uri in run.plan.failed}
    whole = [part for part in ready if part.meta["input_id"] not in lost]
    whole.sort(key=lambda part: (part.meta["input_id"], part.meta["stretch"]))
    key = keys.digest([part.path for part in whole])
    inputs_changed = _commit_inputs(run, whole)
    if manifest is not None and manifest.key == key:
        return inputs_changed
    run.begin_changes()
    storage.commit("records", key, whole, {s: keys.ingredients(s, recipe) for s in ("extract", "measure")})
    accounts.check_records(storage)
    return True


def _what_changed(recipe: Recipe, made_of: dict[str, dict[str, str]]) -> str:
    parts = [keys.changes(stage, recipe, made_of[stage]) for stage in ("extract", "measure")]
    return ", ".join(part for part in parts if part)


def _received(storage: Storage) -> list[Part]:
    return [part for receipt in storage.receipts("records").values() for part in receipt.parts]


def _by_input(parts: Sequence[Part]) -> dict[str, list[Part]]:
    found: dict[str, list[Part]] = defaultdict(list)
    for part in parts:
        found[part.meta["input_id"]].append(part)
    return found


def _usable(parts: list[Part], planned: PlannedInput, recipe: Recipe, texts: int) -> tuple[list[Part], str | None]:
    """(the input's stored parts that serve, what is still due or None where nothing is)."""
    extract_key, measure_key = _keys(planned, recipe)
    if not parts:
        return [], "to read"
    read = [part for part in parts if part.meta["extract_key"] == extract_key]
    if not read:
        return [], "to read again: what extraction depends on has changed"
    measured = _complete([part for part in read if part.meta["measure_key"] == measure_key])
    if measured and all(TEXTS.index(part.meta["texts"]) >= texts for part in measured):
        return measured, None
    with_text = _complete([part for part in read if part.meta["texts"] == "all"])
    if with_text and not measured:
        return with_text, "to measure again, from stored text"
    if _complete(read):
        return [], "to read again: texts are needed and keep_text did not keep them"
    return [], "to go on with"


def _complete(parts: list[Part]) -> list[Part]:
    """The parts, one per stretch, if no stretch is missing; else none."""
    one_each = {part.meta["stretch"]: part for part in sorted(parts, key=lambda part: part.path)}
    whole = bool(one_each) and len(one_each) == next(iter(one_each.values())).meta["stretches"]
    return [one_each[index] for index in sorted(one_each)] if whole else []


def _finished(parts: list[Part], planned: PlannedInput, stretch: Stretch, recipe: Recipe) -> Part | None:
    """The part that an interrupted run made of this stretch."""
    wanted = _keys(planned, recipe)
    for part in parts:
        meta = part.meta
        same = (meta["stretch"], meta["stretches"]) == (stretch.index, stretch.count) and meta["texts"] == "all"
        if same and (meta["extract_key"], meta["measure_key"]) == wanted:
            return part
    return None


def _measure_again(planned: PlannedInput, part: Part, recipe: Recipe) -> PartTask:
    books = {name: part.meta[name] for name in READER_BOOKS}
    stretch = Stretch(part.meta["stretch"], part.meta["stretches"])
    return PartTask(planned, stretch, *_keys(planned, recipe), measure_from=part.path, books=books)


def _cut(run: Run, to_read: list[PlannedInput], failed: list[Failed]) -> Iterator[tuple[PlannedInput, list[Stretch]]]:
    """Each input's stretches: one, or for files over `input.split_mib` several, cut at record boundaries.

    Ids hold a record's ordinal in its file, so a large file is skimmed once (headers only) to number the cuts.
    """
    limit = int(run.recipe.input.split_mib * MIB)
    large = [planned for planned in to_read if planned.size > limit]
    yield from ((planned, [Stretch()]) for planned in to_read if planned.size <= limit)
    if not large:
        return
    with watch(run.session, "cutting large files", len(large)):
        work = run.session.sparkContext.parallelize(large, len(large))
        found = work.map(partial(cut_points, every=limit, limits=run.recipe.limits)).collect()
    for planned, points in zip(large, found, strict=True):
        if isinstance(points, Failed):
            failed.append(points)
            continue
        ends = [*(offset for offset, _ in points[1:]), None]
        yield (
            planned,
            [
                Stretch(index, len(points), offset, ordinal, end)
                for index, ((offset, ordinal), end) in enumerate(zip(points, ends, strict=True))
            ],
        )


def _commit_inputs(run: Run, parts: Sequence[Part]) -> bool:
    """`inputs/`: one row per distinct input, out of the books that came back with its parts."""
    storage = run.storage
    held = _by_input(parts)
    rows = [input_row(planned, held.get(planned.input_id), run.plan.failed) for planned in run.plan.inputs]
    planned_uris = {planned.uri for planned in run.plan.inputs}
    rows += [unread_row(uri, why) for uri, why in sorted(run.plan.failed.items()) if uri not in planned_uris]
    key = keys.digest(rows)
    manifest = storage.read_manifest("inputs")
    if manifest is not None and manifest.key == key:
        return False
    run.begin_changes()
    with PartWriter(storage, "inputs", "inputs", INPUTS) as writer:
        writer.write(rows)
        part = writer.close()
    storage.commit("inputs", key, [part])
    return True
