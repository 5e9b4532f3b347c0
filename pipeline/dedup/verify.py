"""Candidate documents to their shingles, read once each from where the records lie."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pipeline.compiled import njit
from pipeline.errors import GristmillError
from pipeline.recipe import Dedup
from pipeline.shingles import Hashes, shingle
from pipeline.spark import map_in_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: (part, rows in ascending order) -> the texts of those rows, in that order; runs inside tasks, so it is picklable.
ReadTexts = Callable[[str, list[int]], Iterable[str]]

_BATCH_BYTES = 8 << 20
_SHINGLED = pa.schema(
    [
        ("key", pa.binary()),
        ("component", pa.binary()),
        ("leaders", pa.list_(pa.binary())),
        ("absorbed", pa.bool_()),
        ("hashes", pa.binary()),
    ]
)


def with_shingles(rows: DataFrame, settings: Dedup, read_texts: ReadTexts) -> DataFrame:
    """`rows` (key, component, leaders, absorbed, part, row, exact_hash) with the shingle hashes of each document.

    A text that is not the one measured (another exact hash) fails the run: its signature would speak of another text.
    """
    by_part = rows.repartition("part").sortWithinPartitions("part", "row")
    ordered = by_part.select("key", "component", "leaders", "absorbed", "part", "row", "exact_hash")
    return map_in_arrow(ordered, partial(_read, settings, read_texts), _SHINGLED)


def _read(settings: Dedup, read_texts: ReadTexts, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for part, rows in _by_part(batches):
        done = 0
        size = 0
        waiting: list[bytes] = []
        texts = read_texts(part, [row["row"] for row in rows])
        for i, text in enumerate(texts):
            if i >= len(rows):
                raise GristmillError(f"dedup: {part} gave more texts than the {len(rows)} asked for")
            waiting.append(comparable(text, settings, rows[i]["exact_hash"], f"{part} row {rows[i]['row']}"))
            size += len(waiting[-1])
            if size >= _BATCH_BYTES:
                yield _batch(rows[done : i + 1], waiting)
                done, size, waiting = i + 1, 0, []
        if done + len(waiting) != len(rows):
            raise GristmillError(f"dedup: {part} gave {done + len(waiting)} texts of the {len(rows)} asked for")
        if waiting:
            yield _batch(rows[done:], waiting)


def _by_part(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    part = ""
    rows: list[dict[str, Any]] = []
    for batch in batches:
        for row in batch.to_pylist():
            if row["part"] != part:
                if rows:
                    yield part, rows
                part, rows = row["part"], []
            rows.append(row)
    if rows:
        yield part, rows


def _batch(rows: list[dict[str, Any]], hashes: list[bytes]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.array([r["key"] for r in rows], pa.binary()),
            pa.array([r["component"] for r in rows], pa.binary()),
            pa.array([r["leaders"] for r in rows], pa.list_(pa.binary())),
            pa.array([r["absorbed"] for r in rows], pa.bool_()),
            pa.array(hashes, pa.binary()),
        ],
        schema=_SHINGLED,
    )


def comparable(text: str, settings: Dedup, exact_hash: object, where: str) -> bytes:
    """The shingle hashes as bytes. One lone shingle stands as its 128-bit hash: only the same shingle equals it."""
    shingles = shingle(text, settings)
    if shingles.exact_hash != exact_hash:
        raise GristmillError(f"dedup: the text at {where} is not the one that was measured: measure the records again")
    if shingles.single is not None:
        whole = np.frombuffer(bytes.fromhex(shingles.single), np.uint32)
        return np.unique(whole).tobytes()
    return shingles.hashes.tobytes()


@njit
def jaccard(a: Hashes, b: Hashes) -> float:
    """Exact Jaccard of two sorted unique arrays; 1.0 for two empty ones."""
    i = 0
    j = 0
    both = 0
    while i < len(a) and j < len(b):
        if a[i] == b[j]:
            both += 1
            i += 1
            j += 1
        elif a[i] < b[j]:
            i += 1
        else:
            j += 1
    either = len(a) + len(b) - both
    return both / either if either else 1.0
