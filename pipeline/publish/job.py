"""Publishing as two Spark passes over the kept documents.

1. Per part of `records/`: mask, and add up the bytes of text per language. That fixes the number of shards.
2. Per part again: emit the published rows to the shard they belong to; each shard is written by one task, rows sorted
   by (place, record_id). Spark's own sort does it, so a task holds a row group, not a shard. Long texts do not travel:
   their row carries (part, row) and the shard's task reads them itself.

What is published depends on the kept documents alone, not on partitions, order or retries.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.datasets import shards_schema
from pipeline.errors import GristmillError
from pipeline.publish.manifest import ShardFile, ShardsManifest, Totals, commit_shards
from pipeline.publish.pii import mask_column
from pipeline.publish.shards import UNKNOWN_LANGUAGE, ShardWriter, WrittenShard, languages, place, shard_index
from pipeline.publish.tokens import Encoder, TokenizerFile, open_tokenizer
from pipeline.recipe import Publish, Recipe
from pipeline.spark import map_in_arrow
from pipeline.storage import RowReader, Storage
from pipeline.text import count_words

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Longer texts go by reference, so that no row in the JVM is large.
INLINE_BYTES = 1 << 20
_KEPT = ("record_id", "lang", "part", "row", "cluster_size")
_STORED = ("record_id", "url", "host", "warc_date", "crawl", "lang_score", "text", "edited", "n_words")
_STORED_TAIL = ("quality_score", "warc_file", "warc_offset")
_MIB = 1 << 20

#: Rows on their way to a shard. `place` is shifted to a signed number of the same order.
_TRAVEL = pa.schema(
    [
        ("shard", pa.int32()),
        ("place", pa.int64()),
        ("part", pa.string()),
        ("row", pa.int64()),
        *(field for field in shards_schema(n_tokens=False, tokens=False) if field.name != "length_bucket"),
    ]
)
_SIZES = pa.schema([("lang", pa.string()), ("rows", pa.int64()), ("text_bytes", pa.int64())])
_ENTRY = pa.schema([("shard", pa.int32()), ("entry", pa.string()), ("words", pa.int64())])


@dataclass(frozen=True)
class RunInfo:
    """`run_id` names the published state: make it the publish stage's key, so that equal runs have equal manifests."""

    run_id: str
    recipe_hash: str


@dataclass(frozen=True)
class _Task:
    """All that an executor needs to know."""

    storage: Storage
    settings: Publish
    tokenizer: TokenizerFile | None
    shards: dict[str, int]

    @property
    def schema(self) -> pa.Schema:
        return shards_schema(n_tokens=self.tokenizer is not None, tokens=self.settings.tokenize)


def publish(
    spark: SparkSession, kept: DataFrame, storage: Storage, recipe: Recipe, run_info: RunInfo
) -> ShardsManifest:
    """Writes and commits `shards/`.

    `kept`: one row per kept document: record_id, lang (null = und), part (its file in records/), row (its place there),
    cluster_size. Raises GristmillError where these do not fit what records/ holds.
    """
    task = _Task(storage, recipe.publish, open_tokenizer(recipe.publish), {})
    by_part = kept.select(*_KEPT).repartition(_partitions(spark, storage), "part").sortWithinPartitions("part", "row")
    by_part.persist()
    try:
        counted: Counter[str] = Counter()
        sizes: Counter[str] = Counter()
        for line in map_in_arrow(by_part, partial(_measure, task), _SIZES).collect():
            counted[line["lang"]] += line["rows"]
            sizes[line["lang"]] += line["text_bytes"]
        shards = {lang: max(1, math.ceil(sizes[lang] / (task.settings.shard_mib * _MIB))) for lang in counted}
        task = _Task(storage, task.settings, task.tokenizer, shards)
        written: dict[int, WrittenShard] = {}
        if shards:
            outgoing = map_in_arrow(by_part, partial(_emit, task), _TRAVEL)
            # twice as many partitions as shards: fewer of them meet in one task, and empty ones cost next to nothing
            arrived = outgoing.repartition(2 * sum(shards.values()), "shard")
            arrived = arrived.sortWithinPartitions("shard", "place", "record_id")
            for line in map_in_arrow(arrived, partial(_write, task), _ENTRY).collect():
                entry = ShardFile.model_validate(json.loads(line["entry"]))
                written[line["shard"]] = WrittenShard(entry, line["words"])
    finally:
        by_part.unpersist()
    for number, lang, index in languages(shards):
        if number not in written:  # a range of places that no document fell into
            written[number] = _write_shard(task, lang, index, iter(()))
    manifest = _describe(task, [written[number] for number in sorted(written)], run_info)
    if manifest.totals.rows != sum(counted.values()):
        raise GristmillError(
            f"shards: {sum(counted.values())} documents went in and {manifest.totals.rows} came out; run again"
        )
    commit_shards(storage, manifest)
    return manifest


def _partitions(spark: SparkSession, storage: Storage) -> int:
    manifest = storage.read_manifest("records")
    parts = len(manifest.parts) if manifest else 1
    return max(1, min(parts, 4 * spark.sparkContext.defaultParallelism, 10_000))


def _describe(task: _Task, shards: list[WrittenShard], run_info: RunInfo) -> ShardsManifest:
    tokenizer = task.tokenizer
    tokens = None
    if tokenizer is not None:
        tokens = sum(group.n_tokens or 0 for shard in shards for group in shard.file.row_groups)
    return ShardsManifest(
        run_id=run_info.run_id,
        recipe_hash=run_info.recipe_hash,
        length_unit="tokens" if tokenizer else "words",
        tokenizer=tokenizer.name if tokenizer else None,
        totals=Totals(
            rows=sum(shard.file.rows for shard in shards),
            text_bytes=sum(shard.file.text_bytes for shard in shards),
            words=sum(shard.words for shard in shards),
            tokens=tokens,
        ),
        tokenizer_sha256=tokenizer.sha256 if tokenizer else None,
        eos_id=tokenizer.eos_id if tokenizer else None,
        files=tuple(shard.file for shard in shards),
    )


# -- pass 1


def _measure(task: _Task, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    counted: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for kept, stored in _stored(task, batches, ("record_id", "text", "edited")):
        texts, _ = _published(task, stored)
        for lang, size in zip(kept["lang"].to_pylist(), pc.binary_length(texts).to_pylist(), strict=True):
            counted[lang] += 1
            sizes[lang] += size
    lines = [{"lang": lang, "rows": counted[lang], "text_bytes": sizes[lang]} for lang in counted]
    yield pa.RecordBatch.from_pylist(lines, schema=_SIZES)


# -- pass 2


def _emit(task: _Task, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    numbers = {(lang, index): number for number, lang, index in languages(task.shards)}
    for kept, stored in _stored(task, batches, _STORED + _STORED_TAIL):
        texts, changed = _published(task, stored)
        places = [place(record_id) for record_id in stored["record_id"].to_pylist()]
        langs = kept["lang"].to_pylist()
        targets = [
            numbers[lang, shard_index(where, task.shards[lang])] for lang, where in zip(langs, places, strict=True)
        ]
        n_words = stored["n_words"].to_pylist()
        for index in changed:
            n_words[index] = count_words(texts[index].as_py())
        columns: dict[str, Any] = {name: stored[name] for name in _STORED + _STORED_TAIL}
        columns |= {name: kept[name] for name in ("part", "row", "lang", "cluster_size")}
        columns |= {
            "shard": pa.array(targets, pa.int32()),
            "place": pa.array([where - (1 << 63) for where in places], pa.int64()),
            "date": stored["warc_date"],
            "n_chars": pc.utf8_length(texts),
            "n_words": pa.array(n_words, pa.int64()),
            "text": _inline(texts),
        }
        yield pa.RecordBatch.from_arrays([_flat(columns[f.name]).cast(f.type) for f in _TRAVEL], schema=_TRAVEL)


def _inline(texts: pa.Array) -> pa.Array:
    """The texts with null for the long ones. Made anew: masked out, they would still travel in the array's buffer."""
    short = pc.less_equal(pc.binary_length(texts), INLINE_BYTES).to_pylist()
    if all(short):
        return texts
    return pa.array([text.as_py() if ok else None for text, ok in zip(texts, short, strict=True)], texts.type)


def _write(task: _Task, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    names = {number: (lang, index) for number, lang, index in languages(task.shards)}
    for number, rows in _runs(batches, "shard"):
        shard = _write_shard(task, *names[number], rows)
        entry = {"shard": number, "entry": shard.file.model_dump_json(), "words": shard.words}
        yield pa.RecordBatch.from_pylist([entry], schema=_ENTRY)


def _write_shard(task: _Task, lang: str, index: int, batches: Iterator[pa.RecordBatch]) -> WrittenShard:
    encoder = Encoder(task.tokenizer) if task.tokenizer else None
    limit = int(task.settings.row_group_mib * _MIB)
    with task.storage.scratch("shards") as target:
        writer = ShardWriter(target, task.schema, lang, index, limit, encoder)
        for batch in batches:
            for rows in _with_texts(task, batch):
                writer.add(rows.drop_columns(["shard", "place", "part", "row"]))
        return writer.close(task.storage)


def _with_texts(task: _Task, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch with the texts that did not travel, each of those in a batch of its own."""
    start = 0
    for index in pc.indices_nonzero(pc.is_null(batch["text"])).to_pylist():
        if index > start:
            yield batch.slice(start, index - start)
        row = batch.slice(index, 1)
        with RowReader(task.storage, row["part"][0].as_py(), ["text", "edited"]) as reader:
            for _, stored in reader.read([row["row"][0].as_py()]):
                texts, _ = _published(task, stored)
                yield row.set_column(row.schema.get_field_index("text"), "text", texts)
        start = index + 1
    if start < batch.num_rows:
        yield batch.slice(start)


# -- both


def _published(task: _Task, stored: pa.Table) -> tuple[pa.Array, list[int]]:
    """(published texts, which of them masking changed)."""
    texts = _flat(pc.coalesce(stored["edited"], stored["text"]))
    return mask_column(texts, task.settings.pii) if task.settings.pii else (texts, [])


def _stored(
    task: _Task, batches: Iterator[pa.RecordBatch], columns: tuple[str, ...]
) -> Iterator[tuple[pa.RecordBatch, pa.Table]]:
    """(kept rows, the same rows of records/), some at a time; the batches come sorted by (part, row)."""
    for path, runs in _runs(batches, "part"):
        with RowReader(task.storage, path, columns) as reader:
            for run in runs:
                wanted = run["row"].to_numpy(zero_copy_only=False)
                start = 0
                for positions, stored in reader.read(wanted):
                    kept = run.slice(start, len(positions))
                    start += len(positions)
                    if not np.array_equal(kept["row"].to_numpy(zero_copy_only=False), positions) or not _flat(
                        stored["record_id"]
                    ).equals(kept["record_id"]):
                        raise GristmillError(f"{path}: the kept rows are not those of this file; run again")
                    lang = pc.fill_null(kept["lang"], UNKNOWN_LANGUAGE)
                    yield kept.set_column(kept.schema.get_field_index("lang"), "lang", lang), stored


def _runs(batches: Iterator[pa.RecordBatch], column: str) -> Iterator[tuple[Any, Iterator[pa.RecordBatch]]]:
    """Groups sorted rows by `column`: (value, its batches). Exhaust each group before the next."""
    waiting: list[pa.RecordBatch] = []

    def next_batch() -> pa.RecordBatch | None:
        if waiting:
            return waiting.pop()
        return next((batch for batch in batches if batch.num_rows), None)

    def group(value: Any) -> Iterator[pa.RecordBatch]:
        while (batch := next_batch()) is not None:
            same = pc.equal(batch[column], value)
            end = batch.num_rows if pc.all(same).as_py() else pc.index(same, False).as_py()
            if end:
                yield batch.slice(0, end)
            if end < batch.num_rows:
                waiting.append(batch.slice(end))
                return

    while (batch := next_batch()) is not None:
        waiting.append(batch)
        value = batch[column][0].as_py()
        yield value, group(value)


def _flat(column: Any) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
