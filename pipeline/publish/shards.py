"""One shard: rows in, in order; a Parquet file whose bytes and name are a function of them.

Row groups are cut by the rows' own sizes and written one by one, each from one contiguous table (chunking would show
in the bytes), so memory does not grow with the shard.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from pipeline.publish.lengths import length_buckets
from pipeline.publish.manifest import Bucket, RowGroup, ShardFile
from pipeline.publish.tokens import Encoder
from pipeline.storage import RowGroups, Storage, file_options
from pipeline.storage.files import plain_errors

UNKNOWN_LANGUAGE = "und"
_SAFE_LANGUAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_]*")


def place(record_id: str) -> int:
    """xxh3_64 of the id: where a document stands in its language, 0 to 2**64 - 1."""
    return xxhash.xxh3_64_intdigest(record_id.encode())


def shard_index(place: int, shards: int) -> int:
    """Which of `shards` equal ranges of places this one is in."""
    return (place * shards) >> 64


def file_language(lang: str) -> str:
    """A language as part of a file name; other characters than ASCII letters, digits and `_` as `=hex`."""
    if _SAFE_LANGUAGE.fullmatch(lang):
        return lang
    return "".join(c if c.isascii() and c.isalnum() else "".join(f"={b:02x}" for b in c.encode()) for c in lang)


@dataclass
class WrittenShard:
    file: ShardFile
    words: int


class ShardWriter:
    """Writes one shard: `add` batches in the order of (place, record_id), then `close`."""

    def __init__(
        self, target: Path, schema: pa.Schema, lang: str, index: int, row_group_bytes: int, encoder: Encoder | None
    ) -> None:
        self._target = target
        self._schema = schema
        self._lang = lang
        self._index = index
        self._encoder = encoder
        self._groups = RowGroups(row_group_bytes)
        self._row_groups: list[RowGroup] = []
        self._bucket_rows: Counter[int] = Counter()
        self._bucket_tokens: Counter[int] = Counter()
        self._words = 0
        self._writer = pq.ParquetWriter(str(target), schema, **file_options(schema))

    def add(self, batch: pa.RecordBatch) -> None:
        """Rows with the shard's columns except those that are derived here: length_bucket, n_tokens, tokens."""
        complete = self._derive(batch)
        sizes = pc.binary_length(complete["text"]).to_numpy(zero_copy_only=False).astype(np.int64)
        for table in self._groups.add(complete, sizes):
            self._put(table)

    def close(self, storage: Storage) -> WrittenShard:
        """Ends the file, puts it into shards/ under its name, describes it."""
        for table in self._groups.rest():
            self._put(table)
        self._writer.close()
        sha256, footer_sha256 = _hashes(self._target)
        name = f"{file_language(self._lang)}-{self._index:05d}-{sha256[:16]}.parquet"
        size = self._target.stat().st_size
        storage.put_file(f"shards/{name}", self._target)
        tokens = self._encoder is not None
        buckets = {
            str(bucket): Bucket(rows=rows, tokens=self._bucket_tokens[bucket] if tokens else None)
            for bucket, rows in sorted(self._bucket_rows.items())
        }
        file = ShardFile(
            path=name,
            lang=self._lang,
            rows=sum(group.rows for group in self._row_groups),
            file_bytes=size,
            text_bytes=sum(group.text_bytes for group in self._row_groups),
            sha256=sha256,
            footer_sha256=footer_sha256,
            row_groups=tuple(self._row_groups),
            length_buckets=buckets,
        )
        return WrittenShard(file, self._words)

    def _derive(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns: dict[str, Any] = {name: batch[name] for name in batch.schema.names}
        lengths = batch["n_words"].to_numpy(zero_copy_only=False)
        if self._encoder is not None:
            ids = self._encoder.encode(batch["text"].to_pylist())
            lengths = np.array([len(row) for row in ids], dtype=np.int64)
            columns["n_tokens"] = pa.array(lengths)
            if "tokens" in self._schema.names:
                offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
                flat = np.concatenate(ids) if ids else np.zeros(0, np.uint32)
                columns["tokens"] = pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat, pa.uint32()))
        columns["length_bucket"] = pa.array(length_buckets(lengths))
        arrays = [columns[field.name].cast(field.type) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _put(self, table: pa.Table) -> None:
        with plain_errors(f"write {self._target}"):
            self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        tokens = self._encoder is not None
        self._row_groups.append(
            RowGroup(
                rows=table.num_rows,
                text_bytes=pc.sum(pc.cast(pc.binary_length(table["text"]), pa.int64())).as_py(),
                n_chars=pc.sum(table["n_chars"]).as_py(),
                n_tokens=pc.sum(table["n_tokens"]).as_py() if tokens else None,
            )
        )
        self._words += pc.sum(table["n_words"]).as_py()
        counted = table["length_bucket"].to_numpy()
        self._bucket_rows.update(counted.tolist())
        if tokens:
            sums = np.bincount(counted, weights=table["n_tokens"].to_numpy())
            for bucket in np.unique(counted).tolist():
                self._bucket_tokens[bucket] += int(sums[bucket])


def _hashes(path: Path) -> tuple[str, str]:
    """sha256 of the whole file and of its footer."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        whole = hashlib.file_digest(file, "sha256").hexdigest()
        file.seek(size - 8)
        length = int.from_bytes(file.read(4), "little")
        file.seek(size - 8 - length)
        return whole, hashlib.sha256(file.read()).hexdigest()


def languages(shards: dict[str, int]) -> Iterator[tuple[int, str, int]]:
    """(number, language, index) of every shard; numbers count through all languages in order of their names."""
    number = 0
    for lang in sorted(shards):
        for index in range(shards[lang]):
            yield number, lang, index
            number += 1
