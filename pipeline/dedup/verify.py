"""Candidate documents to what they are compared by, read once each from where the records lie.

A document of this run is compared by the shingles of its text; one of an earlier run by the shingle hashes that the run
has kept, or, where it kept none, by the minima of its signature.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from pipeline.compiled import njit
from pipeline.dedup.documents import RUN_BYTES, THIS_RUN, key_bytes
from pipeline.dedup.signature import minhash, stored_minima
from pipeline.errors import GristmillError
from pipeline.recipe import Dedup
from pipeline.shingles import Hashes, shingle
from pipeline.spark import map_in_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: (part, rows in ascending order) -> the texts of those rows, in that order; runs inside tasks, so it is picklable.
ReadTexts = Callable[[str, list[int]], Iterable[str]]
#: (part, rows in ascending order) -> record id and numbers (shingle hashes or minima) of each, in that order.
ReadNumbers = Callable[[str, list[int]], Iterable[tuple[str, Hashes]]]

_BATCH_BYTES = 8 << 20
_SHINGLED = pa.schema(
    [
        ("key", pa.binary()),
        ("component", pa.binary()),
        ("leaders", pa.list_(pa.binary())),
        ("absorbed", pa.bool_()),
        ("hashes", pa.binary()),  # of an earlier run's document without shingle hashes: its minima
        ("minima", pa.binary()),  # to compare with such ones; null where that is not needed or makes no sense
    ]
)


@dataclass(frozen=True)
class Readers:
    """What documents are compared by, for tasks: texts of this run, numbers of the earlier runs in the keys' order.

    The first `exact` of the earlier runs give shingle hashes, the others minima.
    """

    texts: ReadTexts
    earlier: tuple[ReadNumbers, ...] = ()
    exact: int = 0

    @property
    def estimates(self) -> bool:
        return self.exact < len(self.earlier)

    def estimated(self, key: bytes) -> bool:
        """Whether the document can only be compared by its minima."""
        return self.estimates and key[:RUN_BYTES] != THIS_RUN and run_number(key) >= self.exact

    def read(
        self, key: bytes, settings: Dedup, part: str, places: list[tuple[int, str, object]]
    ) -> Iterator[tuple[bytes, bytes | None]]:
        """(hashes, minima) of the documents at `places` (row, record id, exact hash) in `part`, ascending.

        `key`: any one of them. Raises GristmillError where something else lies there.
        """
        rows = [row for row, _, _ in places]
        if key[:RUN_BYTES] == THIS_RUN:
            found: Iterator[tuple[bytes, bytes | None]] = (
                comparable(text, settings, exact, f"{part} row {row}", minima=self.estimates)
                for text, (row, _, exact) in _each(part, self.texts(part, rows), places, "texts")
            )
        else:
            stored = self.earlier[run_number(key)](part, rows)
            found = (
                (_of_record(numbers, record_id, wanted, part), None)
                for (record_id, numbers), (_, wanted, _) in _each(part, stored, places, "rows")
            )
        yield from found


_T = TypeVar("_T")
_P = TypeVar("_P")


def run_number(key: bytes) -> int:
    return int.from_bytes(key[:RUN_BYTES], "big")


def _each(part: str, given: Iterable[_T], wanted: list[_P], what: str) -> Iterator[tuple[_T, _P]]:
    read = 0
    for one, place in zip(given, wanted, strict=False):
        yield one, place
        read += 1
    if read != len(wanted):
        raise GristmillError(f"dedup: {part} gave {read} {what} of the {len(wanted)} asked for")


def _of_record(numbers: Hashes, record_id: str, wanted: str, part: str) -> bytes:
    if record_id != wanted:
        raise GristmillError(
            f"dedup: {part} of an earlier run does not hold record {wanted} where it should: finish that run again"
        )
    return np.ascontiguousarray(numbers, np.uint32).tobytes()


def with_shingles(rows: DataFrame, settings: Dedup, readers: Readers) -> DataFrame:
    """`rows` (key, component, leaders, absorbed, part, row, exact_hash) with the numbers of each document.

    A text that is not the one measured (another exact hash) fails the run: its signature would speak of another text.
    """
    from pyspark.sql import functions as F  # noqa: N812

    run = F.expr(f"substring(key, 1, {RUN_BYTES})")
    by_part = rows.repartition("part").sortWithinPartitions(run, "part", "row")
    ordered = by_part.select("key", "component", "leaders", "absorbed", "part", "row", "exact_hash")
    return map_in_arrow(ordered, partial(_read, settings, readers), _SHINGLED)


def _read(settings: Dedup, readers: Readers, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    at = key_bytes(settings)
    for part, rows in _by_part(batches):
        done = 0
        size = 0
        waiting: list[tuple[bytes, bytes | None]] = []
        places = [(row["row"], row["key"][at:].decode("utf-8", "surrogatepass"), row["exact_hash"]) for row in rows]
        for i, numbers in enumerate(readers.read(rows[0]["key"], settings, part, places)):
            waiting.append(numbers)
            size += len(numbers[0])
            if size >= _BATCH_BYTES:
                yield _batch(rows[done : i + 1], waiting)
                done, size, waiting = i + 1, 0, []
        if waiting:
            yield _batch(rows[done:], waiting)


def _by_part(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Rows of one run's part at a time; two runs may have parts of one name."""
    here: tuple[bytes, str] | None = None
    rows: list[dict[str, Any]] = []
    for batch in batches:
        for row in batch.to_pylist():
            place = row["key"][:RUN_BYTES], row["part"]
            if place != here:
                if rows:
                    yield rows[0]["part"], rows
                here, rows = place, []
            rows.append(row)
    if rows:
        yield rows[0]["part"], rows


def _batch(rows: list[dict[str, Any]], numbers: list[tuple[bytes, bytes | None]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.array([r["key"] for r in rows], pa.binary()),
            pa.array([r["component"] for r in rows], pa.binary()),
            pa.array([r["leaders"] for r in rows], pa.list_(pa.binary())),
            pa.array([r["absorbed"] for r in rows], pa.bool_()),
            pa.array([hashes for hashes, _ in numbers], pa.binary()),
            pa.array([minima for _, minima in numbers], pa.binary()),
        ],
        schema=_SHINGLED,
    )


def comparable(
    text: str, settings: Dedup, exact_hash: object, where: str, *, minima: bool = False
) -> tuple[bytes, bytes | None]:
    """The shingle hashes (uint32, ascending) as bytes, and with `minima` those of them too.

    One lone shingle stands as its 128-bit hash: only the same shingle equals it. It has no minima, because those are of
    32 bits, by which strangers would meet.
    """
    shingles = shingle(text, settings)
    if shingles.exact_hash != exact_hash:
        raise GristmillError(f"dedup: the text at {where} is not the one that was measured: measure the records again")
    if shingles.single is not None:
        whole = np.frombuffer(bytes.fromhex(shingles.single), np.uint32)
        return np.unique(whole).tobytes(), None
    hashes = shingles.hashes
    if not minima or not len(hashes):
        return hashes.tobytes(), None
    drawn = minhash(hashes, settings.permutations, settings.seed, stored_minima(settings))
    return hashes.tobytes(), drawn.tobytes()


def equal_share(a: Hashes, b: Hashes) -> float:
    """Jaccard similarity estimated from as many minima of both; `signature.standard_error` says how well."""
    if len(a) != len(b):
        raise GristmillError(
            f"dedup: signatures of {len(a)} and {len(b)} minima do not compare: measure the records again"
        )
    return float(np.mean(a == b))


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
