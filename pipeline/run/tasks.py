"""What runs on executors to make one part of `records/`: a crawl file, or a stretch of one, becomes annotated rows.

A supervised child (pipeline/crawl/supervise.py) reads and annotates; the task's process writes Parquet and keeps the
reader's books. A part and its receipt are written before the task reports, so a killed run loses unfinished tasks only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from pipeline.annotate import Row, Source, Tools, annotate, clear_measured, describe, describe_gap, measure
from pipeline.crawl import sources, warc
from pipeline.crawl.supervise import Outcome, SourceError, supervised
from pipeline.datasets import RECORDS
from pipeline.dedup.signature import scheme
from pipeline.recipe import Recipe
from pipeline.run.inputs import PlannedInput
from pipeline.storage import Part, PartWriter, RowReader, Storage

#: What the reader saw of a stretch, kept with its part: `inputs/` is made of it.
READER_BOOKS = ("records_by_type", "skipped_by_type", "gaps", "bytes_covered", "unsound")
_FLUSH_ROWS = 256
_FLUSH_CHARS = 4 << 20

#: A part's `lines` where none of its lines is known to be repeated; else the `state` of its file of `lines/`; absent
#: where the recipe does not ask.
NO_LINES = "none"

#: ordinal of an event, and where a reader can start to come to it again: offset and ordinal of the first event there
Key = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Stretch:
    """What one task reads of an input: all of it, or from one record boundary to another."""

    index: int = 0
    count: int = 1
    start_offset: int = 0
    start_ordinal: int = 0
    end_offset: int | None = None


@dataclass(frozen=True, slots=True)
class PartTask:
    source: PlannedInput
    stretch: Stretch
    extract_key: str
    measure_key: str
    measure_from: str | None = None  #: a part of `records/` with texts to measure again, else the crawl file is read
    books: dict[str, Any] = field(default_factory=dict)  #: the reader's, of the part that is measured again

    @property
    def name(self) -> str:
        return f"{self.source.input_id}-{self.stretch.index:05d}"


@dataclass(frozen=True, slots=True)
class Failed:
    """The input could not be read to its end; nothing of it is committed."""

    uri: str
    cause: str


def make_part(task: PartTask, recipe: Recipe, storage: Storage) -> Part | Failed:
    """Write the task's part and its receipt."""
    tools = tools_of(recipe)
    books: dict[str, Any] = dict(task.books)
    rows = _measured_again(task, storage, tools) if task.measure_from else _annotated(task, tools, books)
    try:
        with PartWriter(storage, "records", task.name, RECORDS) as writer:
            for batch in _batches(rows):
                writer.write(batch)
            books.update(
                input_id=task.source.input_id,
                stretch=task.stretch.index,
                stretches=task.stretch.count,
                extract_key=task.extract_key,
                measure_key=task.measure_key,
                texts="all",
                scheme=scheme(recipe.dedup),
            )
            if recipe.edit.repeated_lines is not None:
                books["lines"] = NO_LINES
            part = writer.close(books)
    except (OSError, SourceError) as error:
        return _failed(task.source.uri, error)
    storage.put_receipt("records", task.name, [part])
    return part


def _failed(uri: str, error: Exception) -> Failed:
    return Failed(uri, (str(error) or type(error).__name__).removeprefix(f"{uri}: "))


def _annotated(task: PartTask, tools: Tools, books: dict[str, Any]) -> Iterator[Row]:
    """Rows of the task's stretch of the crawl file; `books` receives what the reader saw."""
    limits, stretch, planned = tools.recipe.limits, task.stretch, task.source

    def open_items(after: Key | None) -> Iterator[tuple[Key, tuple[warc.Event, Source]]]:
        ordinal, offset, first = after or (-1, stretch.start_offset, stretch.start_ordinal)
        with sources.open_at(planned.uri, file=planned.file, settings=tools.recipe.input) as stream:
            crawl = warc.crawl_name(stream) or tools.recipe.input.crawl
            source = Source(planned.input_id, planned.warc_file, crawl)
            stream.seek(offset)
            for event in warc.read(
                stream, start_offset=offset, start_ordinal=first, end_offset=stretch.end_offset, limits=limits
            ):
                if event.ordinal > ordinal:
                    yield (event.ordinal, event.offset, event.first_ordinal), (event, source)
        sources.require_unchanged(planned.uri, planned.file)

    def handle(item: tuple[warc.Event, Source]) -> _Seen:
        event, source = item
        if isinstance(event, warc.Record):
            return _Seen(
                "record", event.covered, event.warc_type, annotate(event, source, tools), event.problem is None
            )
        return note(item)

    def note(item: tuple[warc.Event, Source]) -> _Seen:
        event, source = item
        if isinstance(event, warc.Record):
            return _Seen("record", event.covered, event.warc_type, describe(event, source), event.problem is None)
        if isinstance(event, warc.Gap):
            return _Seen("gap", event.covered, event.cause, describe_gap(event, source))
        return _Seen("skipped", event.covered, event.warc_type, None)

    by_type: Counter[str] = Counter()
    skipped: Counter[str] = Counter()
    gaps: list[dict[str, Any]] = []
    unsound = 0
    rows: list[Row] = []  # gaps wait for the first sign of a crawl file: a file that is none has no records
    at, ordinal = stretch.start_offset, stretch.start_ordinal
    for outcome in watched(open_items, handle, note, tools):
        seen: _Seen = outcome.value
        if outcome.key[:2] != (ordinal, at):
            raise SourceError(f"{planned.uri}: the reader skipped from record {ordinal} to {outcome.key[0]}")
        ordinal += 1
        at += seen.covered
        if seen.kind == "skipped":
            skipped[seen.what] += 1
        elif seen.kind == "gap":
            gaps.append({"offset": outcome.key[1], "length": seen.covered, "cause": seen.what})
        else:
            by_type[seen.what] += 1
            unsound += not seen.sound
        if seen.row is None:
            continue
        rows.append(with_verdict(seen.row, outcome))
        if by_type or skipped or seen.row["reason"] != "damaged":
            yield from rows
            rows.clear()
    if stretch.count > 1:
        yield from rows
    books.update(
        records_by_type=dict(sorted(by_type.items())),
        skipped_by_type=dict(sorted(skipped.items())),
        gaps=gaps,
        unsound=unsound,
        bytes_covered=at - stretch.start_offset,
    )


@dataclass(frozen=True, slots=True)
class _Seen:
    """One event of the reader as it crosses from the child. `what`: the record's type, or a gap's cause."""

    kind: Literal["record", "gap", "skipped"]
    covered: int
    what: str
    row: Row | None
    sound: bool = True  #: False for a record that the reader could not read whole


def _measured_again(task: PartTask, storage: Storage, tools: Tools) -> Iterator[Row]:
    """Rows of a stored part with all that is measured on a text measured anew; the crawl is not read."""
    path = str(task.measure_from)

    def open_items(after: int | None) -> Iterator[tuple[int, Row]]:
        with RowReader(storage, path) as reader:
            for positions, table in reader.read(range(0 if after is None else after + 1, reader.num_rows)):
                yield from zip(positions.tolist(), table.to_pylist(), strict=True)

    def handle(row: Row) -> Row:
        return row if row["text"] is None else measure(clear_measured(row), tools)

    for outcome in watched(open_items, handle, clear_measured, tools):
        yield with_verdict(outcome.value, outcome)


def watched(open_items: Any, handle: Any, note: Any, tools: Tools) -> Iterator[Outcome[Any]]:
    """`supervised` under the recipe's limits."""
    limits = tools.recipe.limits
    return supervised(open_items, handle, describe=note, cpu_seconds=limits.cpu_seconds, memory_mib=limits.memory_mib)


def with_verdict(row: Row, outcome: Outcome[Any]) -> Row:
    """A document that cost its process the time, the memory or its life ends at `extract`, without text."""
    if outcome.verdict != "ok":
        row.update(stage="extract", reason=outcome.verdict, detail=outcome.detail, text=None, title=None)
    return row


def _batches(rows: Iterator[Row]) -> Iterator[list[Row]]:
    batch: list[Row] = []
    chars = 0
    for row in rows:
        batch.append(row)
        chars += len(row.get("text") or "") + len(row.get("edited") or "")
        if len(batch) >= _FLUSH_ROWS or chars >= _FLUSH_CHARS:
            yield batch
            batch, chars = [], 0
    if batch:
        yield batch


def tools_of(recipe: Recipe) -> Tools:
    """Loaded and warmed once per worker process, before any child is forked from it."""
    return _tools(recipe.model_dump_json())


@lru_cache(maxsize=1)
def _tools(recipe: str) -> Tools:
    tools = Tools(Recipe.model_validate_json(recipe))
    tools.warm()
    return tools


def cut_points(planned: PlannedInput, every: int, recipe: Recipe) -> list[tuple[int, int]] | Failed:
    """(offset, ordinal) where the stretches of a large file begin."""
    try:
        with sources.open_at(planned.uri, file=planned.file, settings=recipe.input) as stream:
            return warc.split_points(stream, every, recipe.limits)
    except (OSError, SourceError) as error:
        return _failed(planned.uri, error)


def input_row(planned: PlannedInput, parts: Sequence[Part] | None, failed: Mapping[str, str]) -> Row:
    """The input's row of `inputs/`, out of the books of its parts."""
    row: Row = {"input_id": planned.input_id, "uri": planned.uri, "size": planned.size, "etag": planned.etag}
    if parts is None:
        return row | {"status": "failed", "detail": failed.get(planned.uri, "not read")}
    by_type: Counter[str] = Counter()
    skipped: Counter[str] = Counter()
    gaps: list[dict[str, Any]] = []
    covered = unsound = 0
    for part in parts:
        by_type.update(part.meta["records_by_type"])
        skipped.update(part.meta["skipped_by_type"])
        gaps.extend(part.meta["gaps"])
        covered += part.meta["bytes_covered"]
        unsound += part.meta["unsound"]
    anything = skipped or any(part.rows for part in parts)
    status = "skipped" if not anything else "damaged" if gaps or unsound else "ok"
    return row | {
        "status": status,
        "detail": _why_skipped(planned.size, gaps) if status == "skipped" else None,
        "records_by_type": dict(sorted(by_type.items())),
        "skipped_by_type": dict(sorted(skipped.items())),
        "gaps": gaps,
        "bytes_covered": covered,
    }


def _why_skipped(size: int, gaps: list[dict[str, Any]]) -> str:
    if not size:
        return "the file is empty"
    refused = any(gap["cause"] == warc.LZ4_REFUSED for gap in gaps)
    return warc.LZ4_REFUSED if refused else "no crawl record in it"


def unread_row(uri: str, why: str) -> Row:
    """A file that could not even be opened."""
    return {"uri": uri, "status": "failed", "detail": why}
