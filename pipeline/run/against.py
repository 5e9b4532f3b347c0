"""`--against DIR`: the survivors of earlier finished runs, for dedup to compare with. Their folders are only read."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from pipeline.dedup import Earlier
from pipeline.dedup.signature import check_scheme, standard_error, stored_minima
from pipeline.errors import GristmillError, UsageError
from pipeline.recipe import Recipe
from pipeline.run import keys
from pipeline.run.documents import DOCUMENT, file_rows
from pipeline.shingles import Hashes
from pipeline.spark import map_in_arrow
from pipeline.storage import Manifest, Part, RowReader, Storage

_FILES = "records string, verdicts string, shingles string"


@dataclass(frozen=True)
class EarlierRun:
    """A finished run as it was found at start-up. `files`: (records, verdicts, shingles or None) of each part."""

    storage: Storage
    run_id: str
    documents: int
    files: tuple[tuple[str, str, str | None], ...]

    @property
    def exact(self) -> bool:
        """Whether it kept shingle hashes."""
        return all(shingles is not None for _, _, shingles in self.files)

    @property
    def identity(self) -> str:
        """What the present run's duplicates depend on."""
        return f"{self.run_id} {'shingles' if self.exact else 'signatures'}"


def open_all(uris: Sequence[str], recipe: Recipe, out: Storage) -> tuple[EarlierRun, ...]:
    """The runs at `uris`, each once, in an order that does not depend on the given one.

    Raises UsageError, which names both sides, for a folder that is no finished run or does not compare with this one.
    """
    if not uris:
        return ()
    if not (recipe.dedup.exact or recipe.dedup.near):
        raise UsageError("--against compares nothing while dedup.exact and dedup.near are off; switch one of them on")
    own = (out.read_json("run.json") or {}).get("run_id")
    found: dict[str, EarlierRun] = {}
    for uri in uris:
        if not uri.strip():
            raise UsageError("--against: the folder's name is empty")
        storage = Storage(uri)
        if _real(storage) == _real(out):
            raise UsageError(f"--against {uri} is the folder of this run (--out {out.uri}); name an earlier run's")
        run = _open(storage, uri, recipe)
        if run.run_id == own:
            raise UsageError(
                f"--against {uri} is a copy of the run in --out {out.uri} (run {own}); name an earlier run's"
            )
        known = found.get(run.run_id)
        if known is None or run.exact > known.exact:
            found[run.run_id] = run
    return tuple(sorted(found.values(), key=lambda run: run.run_id))


def _real(storage: Storage) -> str:
    return os.path.realpath(storage.uri) if storage.local else storage.uri


def _open(storage: Storage, uri: str, recipe: Recipe) -> EarlierRun:
    where = f"--against {uri}"
    document = _read(lambda: storage.read_json("run.json"), where)
    if not isinstance(document, dict):
        raise UsageError(f"{where} is not a run: it has no run.json; name a folder that `gristmill curate --out` wrote")
    if document.get("status") != "finished":
        raise UsageError(f"{where}: that run is not finished; the same `gristmill curate` command finishes it")
    records, verdicts, shards = (_manifest(storage, name, where) for name in ("records", "verdicts", "shards"))
    made = keys.ingredients("measure", recipe)
    for part in records.parts:
        try:
            check_scheme(_text(part.meta.get("scheme")), recipe.dedup, where)
        except GristmillError as error:
            raise UsageError(str(error)) from None
    if recipe.dedup.per_language and records.parts:
        measured = records.extra.get("measure")
        if not isinstance(measured, dict) or "language.model" not in measured:
            raise UsageError(f"{where}: it does not say which model told its languages; curate that run again")
        theirs, ours = _model(measured), _model(made)
        if theirs != ours:
            raise UsageError(
                f"{where}: its languages were told by another model ({theirs} there, {ours} here), "
                "so dedup.per_language = true cannot compare them; set it to false or use one model"
            )
    if document.get("run_id") != shards.key or not isinstance(shards.key, str):
        raise UsageError(f"{where}: its run.json and its shards/ are of different runs; curate that run again")
    kept = _read(lambda: storage.read_manifest("shingles"), where)
    shingles: Sequence[Part | None] = kept.parts if kept is not None else [None] * len(records.parts)
    if not len(records.parts) == len(verdicts.parts) == len(shingles):
        raise UsageError(f"{where}: its records, verdicts and shingles do not fit each other; finish that run again")
    files = tuple(
        (record.path, verdict.path, one.path if one else None)
        for record, verdict, one in zip(records.parts, verdicts.parts, shingles, strict=True)
    )
    return EarlierRun(storage, shards.key, shards.rows, files)


def _read(read: Callable[[], Any], where: str) -> Any:
    """A damaged file of the earlier run is not to be removed, as one of this run would be: that run makes it again."""
    try:
        return read()
    except GristmillError as error:
        cause, _, advice = str(error).rpartition("; ")
        if not advice.startswith(("remove it", "use another output")):
            raise
        raise UsageError(f"{where}: {cause}; curate that run again, or leave it out") from None


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _manifest(storage: Storage, dataset: str, where: str) -> Manifest:
    manifest: Manifest | None = _read(lambda: storage.read_manifest(dataset), where)
    if manifest is None:
        raise UsageError(f"{where}: its {dataset}/ is gone, and dedup needs it; curate that run again")
    sizes = storage.sizes(dataset)
    lost = next((part.path for part in manifest.parts if part.path not in sizes), None)
    if lost is not None and dataset != "shards":
        raise UsageError(f"{where}: its {lost} is gone, and dedup needs it; curate that run again")
    return manifest


def _model(made_of: Mapping[str, str]) -> str:
    """The language model that records were measured with: a file by the hash of its content."""
    name = json.loads(made_of["language.model"])
    return made_of.get(name, name)


def identities(runs: Sequence[EarlierRun]) -> list[str]:
    return [run.identity for run in runs]


def describe(runs: Sequence[EarlierRun], recipe: Recipe, removed: Mapping[str, dict[str, int]]) -> list[dict[str, Any]]:
    """What run.json says of them; `removed`: run id -> kind -> records of this run removed in its favour."""
    return [
        {
            "uri": run.storage.uri,
            "run_id": run.run_id,
            "documents": run.documents,
            "shingles": run.exact,
            "standard_error": None if run.exact or not recipe.dedup.near else round(standard_error(recipe.dedup), 4),
            "removed": removed.get(run.run_id, {}),
        }
        for run in runs
    ]


def for_dedup(session: SparkSession, run: EarlierRun, recipe: Recipe) -> Earlier:
    """The run as dedup takes it."""
    files = file_rows(session, run.files, _FILES)
    storage = run.storage

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for file in batch.to_pylist():
                yield from _survivors(storage, file["records"], file["verdicts"], file["shingles"])

    documents: DataFrame = map_in_arrow(files, read, DOCUMENT)
    return Earlier(run.run_id, documents, _reader(storage, run.exact, stored_minima(recipe.dedup)), run.exact)


def _survivors(storage: Storage, records: str, verdicts: str, shingles: str | None) -> Iterator[pa.RecordBatch]:
    """DOCUMENT rows of one part's kept records; `part`, `row`: where their shingle hashes are, else they."""
    columns = [f.name for f in DOCUMENT if f.name not in ("part", "row")]
    with RowReader(storage, verdicts, ["kept"]) as reader:
        flags = [table["kept"].to_numpy() for _, table in reader.read(range(reader.num_rows))]
    kept = np.concatenate([np.empty(0, np.bool_), *flags])
    done = 0
    with RowReader(storage, records, columns) as reader:
        if reader.num_rows != len(kept):
            raise GristmillError(f"{storage.uri}/{verdicts} does not fit {records}; finish that run again")
        for positions, table in reader.read(np.flatnonzero(kept)):
            places = positions if shingles is None else np.arange(done, done + len(positions), dtype=np.int64)
            done += len(positions)
            arrays = [table[f.name].cast(f.type).combine_chunks() for f in DOCUMENT if f.name in columns]
            arrays += [pa.array([shingles or records] * len(positions), pa.string()), pa.array(places)]
            yield from pa.Table.from_arrays(arrays, schema=DOCUMENT).to_batches(max_chunksize=1000)


def _reader(storage: Storage, exact: bool, minima: int) -> Callable[[str, Sequence[int]], Iterator[tuple[str, Hashes]]]:
    """`read(part, rows)`: record id and shingle hashes, or minima, of ascending rows of a part."""
    column = "hashes" if exact else "signature"

    def read(part: str, rows: Sequence[int]) -> Iterator[tuple[str, Hashes]]:
        with RowReader(storage, part, ["record_id", column]) as reader:
            for _, table in reader.read(rows):
                lists = table[column].combine_chunks()
                numbers = lists.flatten().to_numpy(zero_copy_only=False)
                ends = np.cumsum(lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False))
                for record_id, one in zip(table["record_id"].to_pylist(), np.split(numbers, ends[:-1]), strict=True):
                    yield record_id, one if exact else one[:minima]

    return read
