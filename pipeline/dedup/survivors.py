"""Who stays: the greedy maximal independent set of each component, best documents first.

Documents of a component come in priority order. One is dropped if, and only if, a *kept* document of higher priority
among its candidates is verified similar; the first such one is the survivor that it names. Comparison is lazy: a
document is compared with kept ones only, and no further once it is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pipeline.dedup.store import ShingleStore
from pipeline.dedup.verify import jaccard
from pipeline.spark import map_in_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_DECIDED = pa.schema(
    [
        ("key", pa.binary()),
        ("absorbed", pa.bool_()),  # met fewer documents than it might have: see candidates.py
        ("kept", pa.binary()),  # null: this document stays
        ("similarity", pa.float64()),
        ("compared", pa.list_(pa.float32())),  # every similarity computed for it
    ]
)


def decide(shingled: DataFrame, threshold: float) -> DataFrame:
    """(key, absorbed, kept, similarity, compared) of documents (key, component, leaders, absorbed, hashes)."""
    together = shingled.repartition("component").sortWithinPartitions("component", "key")
    return map_in_arrow(together, partial(_decide, threshold), _DECIDED)


def _decide(threshold: float, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    component: bytes | None = None
    with ShingleStore() as kept:
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
