"""A finished run, opened for looking: its run.json, its recipe and its committed rows, streamed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.errors import GristmillError, UsageError
from pipeline.recipe import Recipe
from pipeline.storage import Storage, open_run


@dataclass(frozen=True)
class Run:
    """`document` is run.json; `manifest` is shards/manifest.json."""

    storage: Storage
    document: dict[str, Any]
    manifest: dict[str, Any]
    recipe: Recipe

    def parts(self, dataset: str) -> list[str]:
        """Paths (relative to the run) of a dataset's committed files, in manifest order."""
        manifest = self.storage.read_manifest(dataset)
        if manifest is None:
            raise GristmillError(f"{self.storage.uri}: {dataset}/ was never committed; run curate again")
        return [part.path for part in manifest.parts]

    @contextmanager
    def open_part(self, path: str) -> Iterator[pq.ParquetFile]:
        """A committed Parquet file, closed afterwards."""
        if not self.storage.exists(path):
            raise GristmillError(f"{self.storage.uri}/{path} is in the manifest but not there; run curate again")
        source = self.storage.open_input(path)
        try:
            file = pq.ParquetFile(source, pre_buffer=False, page_checksum_verification=True)
            yield file
        except (pa.ArrowException, OSError) as error:
            cause = " ".join(str(error).split())
            raise GristmillError(f"{self.storage.uri}/{path} cannot be read ({cause}); run curate again") from None
        finally:
            source.close()

    def rows(self, dataset: str, columns: Sequence[str], size: int = 32_768) -> Iterator[pa.RecordBatch]:
        """All committed rows, `size` at a time."""
        for path in self.parts(dataset):
            with self.open_part(path) as file:
                yield from file.iter_batches(batch_size=size, columns=list(columns))

    def judged(
        self, columns: Sequence[str], size: int = 32_768
    ) -> Iterator[tuple[int, int, pa.RecordBatch, pa.RecordBatch]]:
        """(part, first row in it, records, verdicts): both datasets side by side, row by row.

        `columns` (of records/) must hold `record_id`. Raises GristmillError where the two do not fit.
        """
        records, verdicts = self.parts("records"), self.parts("verdicts")
        if len(records) != len(verdicts):
            raise GristmillError("verdicts/ do not match records/ (another number of files): run curate again")
        for part, (left, right) in enumerate(zip(records, verdicts, strict=True)):
            first_row = 0
            with self.open_part(left) as one, self.open_part(right) as other:
                batches = _side_by_side(
                    one.iter_batches(batch_size=size, columns=list(columns)), other.iter_batches(batch_size=size)
                )
                for a, b in batches:
                    if a is None or b is None or not a["record_id"].equals(b["record_id"]):
                        raise GristmillError(f"{right} does not match {left}: run curate again")
                    yield part, first_row, a, b
                    first_row += len(a)


def open_finished(uri: str) -> Run:
    """Open the run folder `uri` for reading. Raises UsageError or GristmillError where it is no finished run."""
    unfinished = GristmillError(f"{uri}: this run is not finished; the same `gristmill curate` command finishes it")
    try:
        storage = open_run(uri, must_exist=True)
    except UsageError:
        if uri.strip() and Storage(uri).exists("inputs/_manifest.json"):
            raise unfinished from None
        raise
    document = storage.read_json("run.json")
    if not isinstance(document, dict) or document.get("status") != "finished":
        raise unfinished
    if storage.read_manifest("shards") is None:
        raise unfinished
    try:
        recipe = Recipe.model_validate(document["recipe"])
    except (ValueError, KeyError):
        raise UsageError(f"{uri}: run.json holds a recipe that this version does not understand") from None
    return Run(storage, document, storage.read_json("shards/manifest.json"), recipe)


def _side_by_side(
    left: Iterable[pa.RecordBatch], right: Iterable[pa.RecordBatch]
) -> Iterator[tuple[pa.RecordBatch | None, pa.RecordBatch | None]]:
    """Slices of equal length of two streams; where one ends first, the other's rest is paired with None."""
    lefts, rights = iter(left), iter(right)
    a = b = None
    while True:
        a = a if a is not None and len(a) else next((x for x in lefts if len(x)), None)
        b = b if b is not None and len(b) else next((x for x in rights if len(x)), None)
        if a is None or b is None:
            if a is not b:
                yield a, b
            return
        n = min(len(a), len(b))
        yield a.slice(0, n), b.slice(0, n)
        a, b = a.slice(n), b.slice(n)
