"""Record rows to what dedup works on, and exact copies out of the way.

A document's *key* is its run, its priority and its id in one binary value: two bytes that put documents of earlier runs
before this run's, 8 bytes per priority column, so that the smaller key is the one to keep, then the record id. Keys are
unique, sort the same in Spark, Arrow and Python, and settle every tie by id.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from pipeline.dedup.signature import Longs, buckets, sketches, stored_length
from pipeline.errors import GristmillError
from pipeline.recipe import Dedup
from pipeline.spark import map_in_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Columns that `find_duplicates` needs besides the recipe's priority columns.
COLUMNS = ("record_id", "lang", "exact_hash", "signature", "part", "row")

#: The first bytes of a key: the number of an earlier run, or this run's.
RUN_BYTES = 2
THIS_RUN = b"\xff\xff"
MAX_EARLIER = 0xFFFF
#: The same in Spark's SQL: is the document `key` one of this run?
IS_NEW = f"substring(key, 1, {RUN_BYTES}) = X'{THIS_RUN.hex()}'"

PREPARED = pa.schema(
    [
        ("key", pa.binary()),
        ("exact", pa.string()),  # equal for exact copies that may meet
        ("exact_hash", pa.string()),
        ("buckets", pa.list_(pa.int64())),  # null: a text without a word
        ("sketch", pa.binary()),
        ("part", pa.string()),
        ("row", pa.int64()),
    ]
)


def key_bytes(settings: Dedup) -> int:
    """Bytes of run and priority that stand before the record id in a key."""
    return RUN_BYTES + 8 * len(settings.priority)


def prepare(documents: DataFrame, settings: Dedup, run: bytes = THIS_RUN) -> DataFrame:
    """One row per document: key, exact, exact_hash, buckets, sketch, part, row; `run` begins the keys."""
    needed = [*COLUMNS, *(c for c in settings.priority if c not in COLUMNS)]
    missing = [c for c in needed if c not in documents.columns]
    if missing:
        raise GristmillError(f"dedup: the documents have no column {', '.join(missing)}; they have {documents.columns}")
    return map_in_arrow(documents.select(*needed), partial(_prepare_batches, settings, run), PREPARED)


def with_first_copy(prepared: DataFrame) -> DataFrame:
    """`prepared` with `first` = the key of the best document of the same text (itself where it is that one)."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

    same_text = Window.partitionBy("exact").orderBy("key")
    upto_here = same_text.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return prepared.withColumn("first", F.first("key").over(upto_here)).drop("exact")


def _prepare_batches(settings: Dedup, run: bytes, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if batch.num_rows:
            yield prepare_batch(settings, run, batch)


def prepare_batch(settings: Dedup, run: bytes, batch: pa.RecordBatch) -> pa.RecordBatch:
    for name in ("record_id", "exact_hash", "part", "row"):
        column = batch.column(name)
        if column.null_count or (pa.types.is_string(column.type) and pc.any(pc.equal(column, "")).as_py()):
            raise GristmillError(f"dedup: {name} is empty for some documents; measure those records again")
    ids = batch.column("record_id").cast(pa.string()).to_pylist()
    priorities = _priority_bytes([batch.column(name) for name in settings.priority])
    keys = [run + p + i.encode("utf-8", "surrogatepass") for p, i in zip(priorities, ids, strict=True)]
    exact = batch.column("exact_hash").cast(pa.string())
    salts = np.zeros(batch.num_rows, np.uint64)
    group = exact
    if settings.per_language:
        languages = [lang or "" for lang in batch.column("lang").to_pylist()]
        salts = np.array([xxhash.xxh3_64_intdigest(lang.encode()) for lang in languages], np.uint64)
        group = pc.binary_join_element_wise(exact, pa.array(languages, pa.string()), " ")
    bucket_column, sketch_column = _signature_columns(batch.column("signature"), salts, settings)
    columns = [
        pa.array(keys, pa.binary()),
        group,
        exact,
        bucket_column,
        sketch_column,
        batch.column("part").cast(pa.string()),
        batch.column("row").cast(pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=PREPARED)


def _priority_bytes(columns: Sequence[pa.Array]) -> list[bytes]:
    """Per row, bytes that sort the highest values first; null and NaN come last."""
    if not columns:
        raise GristmillError("dedup.priority names no column; name at least one, for example n_words")
    encoded = np.empty((len(columns[0]), len(columns)), ">u8")
    for i, column in enumerate(columns):
        values = column.cast(pa.float64()).fill_null(float("-inf")).to_numpy(zero_copy_only=False)
        values = np.where(np.isnan(values), -np.inf, values) + 0.0  # -0.0 becomes 0.0
        bits = values.view(np.uint64)
        sign = np.uint64(1 << 63)
        ascending = np.where(bits & sign, ~bits, bits | sign)
        encoded[:, i] = ~ascending
    raw = encoded.tobytes()
    width = 8 * len(columns)
    return [raw[at : at + width] for at in range(0, len(raw), width)]


def _signature_columns(column: pa.Array, salts: Longs, settings: Dedup) -> tuple[pa.Array, pa.Array]:
    """(buckets, sketch) of stored signatures; null where there is none."""
    n = len(column)
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    width = stored_length(settings)
    odd = lengths[(lengths != 0) & (lengths != width)]
    if len(odd):
        raise GristmillError(
            f"dedup: a stored signature has {odd[0]} numbers where this recipe makes {width}; "
            "signatures of two recipes do not compare: measure the records again"
        )
    present = np.flatnonzero(lengths)
    bucket_rows: list[list[int] | None] = [None] * n
    sketch_rows: list[bytes | None] = [None] * n
    if len(present) and settings.near:
        flat = column.flatten().to_numpy(zero_copy_only=False).astype(np.int64).astype(np.uint32)
        signatures = flat.reshape(len(present), width)
        found = buckets(signatures, settings, salts[present])
        drawn = sketches(signatures, settings)
        for i, at in enumerate(present.tolist()):
            bucket_rows[at] = found[i]
            sketch_rows[at] = drawn[i].tobytes()
    return pa.array(bucket_rows, pa.list_(pa.int64())), pa.array(sketch_rows, pa.binary())
