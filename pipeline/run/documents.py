"""Stored records as Spark rows: judged, without texts. What dedup, verdicts and publishing have in common.

Spark moves ids, keys and small numbers; Parquet is read inside tasks, by pyarrow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from pipeline.memory import HUGE, give_back
from pipeline.quality.judge import COLUMNS, judge
from pipeline.recipe import Recipe
from pipeline.spark import map_in_arrow
from pipeline.storage import Part, RowReader, Storage

#: What dedup and publishing want to know of a judged-in record, besides `part` and `row`: where it is stored.
DOCUMENT = pa.schema(
    [
        ("record_id", pa.string()),
        ("lang", pa.string()),
        ("exact_hash", pa.string()),
        ("signature", pa.list_(pa.int64())),
        ("quality_score", pa.float64()),
        ("n_words", pa.int64()),
        ("n_chars", pa.int64()),
        ("crawl", pa.string()),
        ("part", pa.string()),
        ("row", pa.int64()),
    ]
)
_HASHED = pa.schema([("hash", pa.string()), ("n", pa.int64())])
_PARTS_PER_TASK = 64

#: A part of records/ -> the part of contaminated/ about it; empty where the recipe names no benchmark.
Contaminated = Mapping[str, str]


def part_rows(spark: SparkSession, parts: Sequence[Part], contaminated: Contaminated | None = None) -> DataFrame:
    """One row (`part`, `contaminated`) per file."""
    rows = [(part.path, (contaminated or {}).get(part.path)) for part in parts]
    return file_rows(spark, rows, "part string, contaminated string")


def file_rows(spark: SparkSession, rows: Sequence[tuple[str | None, ...]], schema: str) -> DataFrame:
    """One row per file or set of files that belong together, spread so that every core has work."""
    tasks = min(len(rows), max(len(rows) // _PARTS_PER_TASK, 2 * spark.sparkContext.defaultParallelism))
    return spark.createDataFrame(rows, schema).repartition(max(1, tasks))


def documents(
    spark: SparkSession,
    storage: Storage,
    recipe: Recipe,
    parts: Sequence[Part],
    contaminated: Contaminated,
    *,
    signatures: bool,
) -> DataFrame:
    """The records that enter dedup (DOCUMENT).

    `signature` is null unless asked for; so is `crawl`, unless dedup tells crawls apart.
    """

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        columns = [f.name for f in DOCUMENT if f.name not in ("part", "row")]
        left_out = {"signature": not signatures, "crawl": not (signatures and recipe.dedup.per_crawl)}
        wanted = [c for c in columns if not left_out.get(c)]
        for path, overlaps in _paths(batches):
            for first, table in judged_tables(storage, path, recipe, wanted, overlaps):
                kept = table["kept"].combine_chunks()
                rows = pc.add(pc.indices_nonzero(kept).cast(pa.int64()), first)
                passed = table.filter(kept)
                arrays = [
                    passed[f.name].cast(f.type).combine_chunks() if f.name in wanted else pa.nulls(len(rows), f.type)
                    for f in DOCUMENT
                    if f.name not in ("part", "row")
                ]
                arrays += [pa.array([path] * len(rows), pa.string()), rows]
                yield from pa.Table.from_arrays(arrays, schema=DOCUMENT).to_batches(max_chunksize=1000)

    return map_in_arrow(part_rows(spark, parts, contaminated), read, DOCUMENT)


def entering(
    spark: SparkSession, storage: Storage, recipe: Recipe, parts: Sequence[Part], contaminated: Contaminated
) -> tuple[str, int]:
    """A hash of the set of records that enter dedup and of what orders them there, and their number."""
    columns = ["record_id", "exact_hash", "lang", *dict.fromkeys(recipe.dedup.priority)]
    if recipe.dedup.per_crawl:
        columns.append("crawl")

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for path, overlaps in _paths(batches):
            hasher = xxhash.xxh3_128()
            count = 0
            for _, table in judged_tables(storage, path, recipe, columns, overlaps):
                passed = table.filter(table["kept"]).select(columns)
                count += passed.num_rows
                for row in zip(*(column.to_pylist() for column in passed.columns), strict=True):
                    hasher.update(repr(row).encode())
            yield pa.RecordBatch.from_pylist([{"hash": hasher.hexdigest(), "n": count}], schema=_HASHED)

    rows = map_in_arrow(part_rows(spark, parts, contaminated), read, _HASHED).collect()
    whole = xxhash.xxh3_128("\n".join(sorted(row["hash"] for row in rows)).encode())
    return whole.hexdigest(), sum(row["n"] for row in rows)


def text_reader(storage: Storage) -> Callable[[str, Sequence[int]], Iterator[str]]:
    """`read(part, rows)`: the texts that dedup compares (`edited`, else `text`) of rows in ascending order."""

    def read(part: str, rows: Sequence[int]) -> Iterator[str]:
        with RowReader(storage, part, ["text", "edited"]) as reader:
            for _, table in reader.read(rows):
                yield from pc.coalesce(table["edited"], table["text"]).to_pylist()
                if table.nbytes > HUGE:
                    give_back()

    return read


def stored(spark: SparkSession, storage: Storage, parts: Sequence[Part], schema: pa.Schema) -> DataFrame:
    """A small committed dataset (`duplicates/`) as a DataFrame."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for path, _ in _paths(batches):
            with RowReader(storage, path, schema.names) as reader:
                for _, table in reader.read(range(reader.num_rows)):
                    yield from table.select(schema.names).to_batches(max_chunksize=10_000)

    return map_in_arrow(part_rows(spark, parts), read, schema)


def kept_documents(passed: DataFrame, duplicates: DataFrame) -> DataFrame:
    """Rows of `passed` that dedup kept, with `cluster_size`."""
    clusters = (
        duplicates.where("kept_run is null").select(sql.col("kept_id").alias("record_id"), "cluster_size").distinct()
    )
    return (
        passed.join(duplicates.select("record_id"), "record_id", "left_anti")
        .join(clusters, "record_id", "left")
        .fillna(1, ["cluster_size"])
    )


def judged_tables(
    storage: Storage, path: str, recipe: Recipe, columns: Sequence[str], contaminated: str | None
) -> Iterator[tuple[int, pa.Table]]:
    """(position of the first row, `columns` + kept, stage, reason, failed_rules) per row group of a part.

    The rules' verdicts; then, of what they keep, those of decontamination: its part about these records is read.
    """
    blamed = _blamed(storage, contaminated) if contaminated else {}
    with RowReader(storage, path, list(dict.fromkeys((*columns, "record_id", *COLUMNS)))) as reader:
        for positions, table in reader.read(range(reader.num_rows)):
            kept, stage, reason, failed = judge(table, recipe)
            if blamed:
                kept, stage, reason = _decontaminated(table["record_id"], kept, stage, reason, blamed)
            judged: dict[str, Any] = {name: table[name] for name in columns}
            judged |= {"kept": kept, "stage": stage, "reason": reason, "failed_rules": failed}
            yield int(positions[0]), pa.table(judged)


def _blamed(storage: Storage, path: str) -> dict[str, str]:
    """record_id -> the benchmark of its first row."""
    blamed: dict[str, str] = {}
    with RowReader(storage, path, ["record_id", "benchmark"]) as reader:
        for _, table in reader.read(range(reader.num_rows)):
            for record_id, benchmark in zip(*(column.to_pylist() for column in table.columns), strict=True):
                blamed.setdefault(record_id, benchmark)
    return blamed


def _decontaminated(
    ids: pa.ChunkedArray, kept: pa.Array, stage: pa.Array, reason: pa.Array, blamed: Mapping[str, str]
) -> tuple[pa.Array, pa.Array, pa.Array]:
    """The three columns with the kept records that are in `blamed` rejected."""
    found = pc.index_in(ids.combine_chunks(), value_set=pa.array(list(blamed), pa.string()))
    hit = pc.and_(kept, found.is_valid())
    names = pa.array(list(blamed.values()), pa.string()).take(found)
    return (
        pc.and_not(kept, hit),
        pc.if_else(hit, pa.scalar("decontaminate"), stage),
        pc.if_else(hit, names, reason),
    )


def _paths(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, str | None]]:
    """(part, its part of contaminated/ or None)."""
    for batch in batches:
        yield from zip(batch.column("part").to_pylist(), batch.column("contaminated").to_pylist(), strict=True)
