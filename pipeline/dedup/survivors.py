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
from pipeline.dedup.verify import Readers, equal_share, jaccard
from pipeline.spark import map_in_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_GIVEN = ("key", "component", "leaders", "absorbed", "hashes", "minima")
_DECIDED = pa.schema(
    [
        ("key", pa.binary()),
        ("absorbed", pa.bool_()),  # met fewer documents than it might have: see candidates.py
        ("kept", pa.binary()),  # null: this document stays
        ("similarity", pa.float64()),
        ("compared", pa.list_(pa.float32())),  # every similarity computed for it
        ("estimated", pa.int64()),  # and how many were estimated
    ]
)


def decide(shingled: DataFrame, threshold: float, readers: Readers) -> DataFrame:
    """(key, absorbed, kept, similarity, compared, estimated) of documents as `verify.with_shingles` gives them."""
    together = shingled.repartition("component").sortWithinPartitions("component", "key")
    return map_in_arrow(together, partial(_decide, threshold, readers), _DECIDED)


def _decide(threshold: float, readers: Readers, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    component: bytes | None = None
    with ShingleStore() as kept:
        for batch in batches:
            out: list[tuple[bytes, bool | None, bytes | None, float | None, list[float], int]] = []
            columns = [batch.column(name).to_pylist() for name in _GIVEN]
            for key, label, leaders, absorbed, raw, minima in zip(*columns, strict=True):
                if label != component:
                    component = label
                    kept.clear()
                hashes = np.frombuffer(raw, np.uint32)
                compared: list[float] = []
                estimated = 0
                survivor: bytes | None = None
                similarity: float | None = None
                for leader in leaders or ():
                    other = kept.get(leader)
                    if other is None:
                        continue
                    if not readers.estimated(leader):
                        similarity = float(jaccard(hashes, other))
                        compared.append(similarity)
                    elif minima is not None:
                        similarity = equal_share(np.frombuffer(minima, np.uint32), other)
                        estimated += 1
                    else:
                        continue
                    if similarity >= threshold:
                        survivor = leader
                        break
                if survivor is None:
                    kept.add(key, hashes)
                similarity = similarity if survivor is not None else None
                out.append((key, absorbed, survivor, similarity, compared, estimated))
            if out:
                yield pa.RecordBatch.from_arrays(
                    [
                        pa.array(values, field.type)
                        for values, field in zip(zip(*out, strict=True), _DECIDED, strict=True)
                    ],
                    schema=_DECIDED,
                )
