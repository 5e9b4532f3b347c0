"""Who stays: the greedy maximal independent set of each component, best documents first.

Documents of a component come in priority order. One is dropped if, and only if, a *kept* document of higher priority
among its candidates is verified similar; the first such one is the survivor that it names. Comparison is lazy: a
document is compared with kept ones only, and no further once it is dropped.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from typing import IO, TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pipeline.dedup.verify import jaccard
from pipeline.shingles import Hashes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Shingles of kept documents that a task holds in memory; more go to a temporary file.
MEMORY_BYTES = 256 << 20

_DECIDED = pa.schema(
    [
        ("key", pa.binary()),
        ("absorbed", pa.bool_()),  # met fewer documents than it might have: see candidates.py
        ("kept", pa.binary()),  # null: this document stays
        ("similarity", pa.float64()),
        ("compared", pa.list_(pa.float32())),  # every similarity computed for it
    ]
)
_DECIDED_DDL = "key binary, absorbed boolean, kept binary, similarity double, compared array<float>"


def decide(shingled: DataFrame, threshold: float) -> DataFrame:
    """(key, absorbed, kept, similarity, compared) of documents (key, component, leaders, absorbed, hashes)."""
    together = shingled.repartition("component").sortWithinPartitions("component", "key")
    return together.mapInArrow(partial(_decide, threshold), _DECIDED_DDL)


def _decide(threshold: float, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    component: bytes | None = None
    with _Kept() as kept:
        for batch in batches:
            out: list[tuple[bytes, bool | None, bytes | None, float | None, list[float]]] = []
            columns = [batch.column(name).to_pylist() for name in ("key", "component", "leaders", "absorbed", "hashes")]
            for key, label, leaders, absorbed, raw in zip(*columns, strict=True):
                if label != component:
                    component = label
                    kept.clear()
                hashes = np.frombuffer(raw, np.uint32)
                compared: list[float] = []
                survivor: bytes | None = None
                for leader in leaders or ():
                    other = kept.get(leader)
                    if other is None:
                        continue
                    compared.append(float(jaccard(hashes, other)))
                    if compared[-1] >= threshold:
                        survivor = leader
                        break
                if survivor is None:
                    kept.add(key, hashes)
                out.append((key, absorbed, survivor, compared[-1] if survivor is not None else None, compared))
            if out:
                yield pa.RecordBatch.from_arrays(
                    [
                        pa.array(values, field.type)
                        for values, field in zip(zip(*out, strict=True), _DECIDED, strict=True)
                    ],
                    schema=_DECIDED,
                )


class _Kept:
    """Shingles of a component's kept documents by key: in memory up to a bound, beyond it in a temporary file."""

    def __init__(self, memory_bytes: int = MEMORY_BYTES) -> None:
        self._memory_bytes = memory_bytes
        self._held = 0
        self._arrays: dict[bytes, Hashes] = {}
        self._places: dict[bytes, tuple[int, int]] = {}
        self._file: IO[bytes] | None = None

    def __enter__(self) -> _Kept:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file:
            self._file.close()

    def clear(self) -> None:
        self._held = 0
        self._arrays.clear()
        if self._file:
            self._places.clear()
            self._file.seek(0)
            self._file.truncate()

    def add(self, key: bytes, hashes: Hashes) -> None:
        if self._held + hashes.nbytes <= self._memory_bytes:
            self._held += hashes.nbytes
            self._arrays[key] = hashes.copy()  # a view would hold its whole batch
            return
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="gristmill-kept-")  # noqa: SIM115 - closed by __exit__
        at = self._file.seek(0, 2)
        self._file.write(hashes.tobytes())
        self._places[key] = (at, hashes.nbytes)

    def get(self, key: bytes) -> Hashes | None:
        array = self._arrays.get(key)
        if array is not None:
            return array
        place = self._places.get(key)
        if place is None or self._file is None:
            return None
        self._file.seek(place[0])
        return np.frombuffer(self._file.read(place[1]), np.uint32)
