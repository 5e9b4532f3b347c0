"""Parquet parts: written as a stream in row groups bounded in bytes, read back by row."""

from __future__ import annotations

import re
import uuid
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.errors import GristmillError
from pipeline.memory import HUGE, give_back
from pipeline.storage.files import Files, plain_errors

#: Arrow bytes per row group of a part, at most; a larger row is alone. Small, since every reader holds a whole group.
ROW_GROUP_BYTES = 16 << 20
#: One value may be this long; Arrow's string offsets end at 2 GiB, and a reader needs room for its neighbours.
MAX_VALUE_BYTES = 1 << 30
#: Rows given as dicts are turned into Arrow in pieces of about so many characters.
_PIECE_CHARS = 4 << 20
_LEVEL = 3
#: Strings that hardly repeat: a dictionary of them would only cost a copy.
_PLAIN = frozenset({"record_id", "kept_id", "url", "warc_record_id", "title", "text", "edited", "exact_hash"})
#: Their least and greatest values tell nothing, and would fill page headers and footers with whole documents.
_NO_STATISTICS = frozenset({"title", "text", "edited"})
_SURROGATE = re.compile("[\ud800-\udfff]")

Row = Mapping[str, Any]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Part:
    """One written file: `path` relative to the run's folder, `meta` JSON that the writer wants to be remembered."""

    path: str
    rows: int
    file_bytes: int
    meta: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {"path": self.path, "rows": self.rows, "file_bytes": self.file_bytes, "meta": self.meta}

    @classmethod
    def from_json(cls, tree: Mapping[str, Any]) -> Part:
        return cls(tree["path"], tree["rows"], tree["file_bytes"], dict(tree.get("meta") or {}))


def file_options(schema: pa.Schema) -> dict[str, Any]:
    """Writer options shared by all of our files; the bytes are a function of content, options and library version."""
    return {
        "compression": "zstd",
        "compression_level": _LEVEL,
        "use_dictionary": [f.name for f in schema if pa.types.is_string(f.type) and f.name not in _PLAIN],
        "write_statistics": [name for name in schema.names if name not in _NO_STATISTICS],
        "write_page_checksum": True,
    }


def stem_of(path: str) -> str:
    """The `stem` under which a part was written: its name without the folder and the attempt."""
    return path.rsplit("/", 1)[-1].rsplit("-", 1)[0]


class PartWriter:
    """Writes one Parquet file of `dataset` as a stream: `write` rows, then `close` for the Part or `abort`.

    The name holds `stem` and a random suffix, so two attempts at one task never meet. Row groups hold at most
    `row_group_bytes` of Arrow data (one larger row is alone). Lone surrogates become U+FFFD; `meta["surrogates"]`
    counts them. As a context manager it aborts on an exception.
    """

    def __init__(
        self, storage: Files, dataset: str, stem: str, schema: pa.Schema, row_group_bytes: int = ROW_GROUP_BYTES
    ) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._=-]{0,150}", stem):
            raise ValueError(f"not a safe file name: {stem!r}")
        self.path = f"{dataset}/{stem}-{uuid.uuid4().hex}.parquet"
        self.schema = schema
        self.rows = 0
        self.surrogates = 0
        self._names = frozenset(schema.names)
        self._groups = RowGroups(row_group_bytes)
        self._storage = storage
        self._file = storage.open_output(self.path)
        with plain_errors(f"write {self.path}"):
            self._writer = pq.ParquetWriter(self._file, schema, **file_options(schema))

    def __enter__(self) -> PartWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and self._writer is not None:
            self.abort()

    def write(self, rows: Sequence[Row] | pa.RecordBatch) -> None:
        """Adds rows: dicts (absent columns are null, unknown ones a ValueError) or a batch of the same schema."""
        if isinstance(rows, pa.RecordBatch):
            self._add(rows if rows.schema.equals(self.schema) else rows.cast(self.schema))
            return
        for piece in _pieces(rows):
            self._add(self._to_batch(piece))

    def close(self, meta: Mapping[str, Any] | None = None) -> Part:
        """Finishes the file (a file without rows is one too) and describes it."""
        for table in self._groups.rest():
            self._put(table)
        with plain_errors(f"write {self._storage.uri}/{self.path}"):
            self._writer.close()
            size = self._file.tell()
            self._storage.finish(self._file)
        self._writer = None
        counted = {"surrogates": self.surrogates} if self.surrogates else {}
        return Part(self.path, self.rows, size, {**(meta or {}), **counted})

    def abort(self) -> None:
        """Drops what was written; never raises, since it runs where something failed already."""
        self._writer.is_open = False  # its end must not write a footer
        self._writer = None
        with suppress(Exception):
            self._storage.discard(self._file)
        with suppress(Exception):
            self._storage.delete([self.path])

    def _to_batch(self, rows: Sequence[Row]) -> pa.RecordBatch:
        for row in rows:
            if not row.keys() <= self._names:
                raise ValueError(f"{self.path}: unknown columns {sorted(row.keys() - self._names)}")
        try:
            return pa.RecordBatch.from_pylist(rows, schema=self.schema)
        except UnicodeEncodeError:
            return pa.RecordBatch.from_pylist([self._repair(row) for row in rows], schema=self.schema)

    def _repair(self, value: Any) -> Any:
        if isinstance(value, str):
            text, count = _SURROGATE.subn("\ufffd", value)
            self.surrogates += count
            return text
        if isinstance(value, Mapping):
            return {self._repair(key): self._repair(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(self._repair(item) for item in value)
        return value

    def _add(self, batch: pa.RecordBatch) -> None:
        for table in self._groups.add(batch, row_bytes(batch)):
            self._put(table)
        self.rows += batch.num_rows

    def _put(self, table: pa.Table) -> None:
        with plain_errors(f"write {self._storage.uri}/{self.path}"):
            self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        if table.nbytes > HUGE:
            del table
            give_back()


class RowGroups:
    """Cuts a stream of batches, in order, into tables of at most `limit` bytes; one larger row is a table of its own.

    Where the cuts fall depends on the rows and their sizes only, not on how they were batched.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pending: list[pa.RecordBatch] = []
        self._bytes = 0

    def add(self, batch: pa.RecordBatch, sizes: IntArray) -> Iterator[pa.Table]:
        """Takes a batch and its rows' sizes; yields the tables that are full. Exhaust it."""
        ends = np.cumsum(sizes, dtype=np.int64)
        start = base = 0
        while start < batch.num_rows:
            stop = int(np.searchsorted(ends, base + self._limit - self._bytes, side="right"))
            if stop <= start:
                if self._pending:
                    yield self._take()
                    continue
                stop = start + 1
            self._pending.append(batch.slice(start, stop - start))
            self._bytes += int(ends[stop - 1]) - base
            start, base = stop, int(ends[stop - 1])

    def rest(self) -> Iterator[pa.Table]:
        """The last, unfilled table, if any."""
        if self._pending:
            yield self._take()

    def _take(self) -> pa.Table:
        table = pa.Table.from_batches(self._pending).combine_chunks()  # chunking would show in the file's bytes
        self._pending, self._bytes = [], 0
        return table


def row_bytes(batch: pa.RecordBatch) -> IntArray:
    """int64[rows]: what each row weighs in Arrow memory; exact for strings, which is where weight comes from."""
    total = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        kind = column.type
        if pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_string(kind):
            lengths = pc.fill_null(pc.binary_length(column), 0).cast(pa.int64())
            total += lengths.to_numpy(zero_copy_only=False)
        elif pa.types.is_list(kind):
            lengths = pc.fill_null(pc.list_value_length(column), 0).cast(pa.int64())
            total += 8 * lengths.to_numpy(zero_copy_only=False)
        else:
            total += 8
    return total


def _pieces(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """Runs of rows of about _PIECE_CHARS characters, so that a batch of huge rows never becomes one huge array."""
    start = weight = 0
    for index, row in enumerate(rows):
        longest = 0
        for value in row.values():
            if isinstance(value, str):
                weight += len(value)
                longest = max(longest, len(value))
        # at worst four bytes a character; only then is the exact length worth an encoding
        if longest > MAX_VALUE_BYTES // 4:
            _refuse_giant(row)
        if weight >= _PIECE_CHARS:
            yield rows[start : index + 1]
            start, weight = index + 1, 0
    if start < len(rows):
        yield rows[start:]


def _refuse_giant(row: Row) -> None:
    for name, value in row.items():
        if isinstance(value, str) and len(value.encode("utf-8", "replace")) > MAX_VALUE_BYTES:
            raise GristmillError(
                f"column {name}: a value of more than {MAX_VALUE_BYTES >> 20} MiB; lower limits.body_mib"
            )


class RowReader:
    """Rows of one part by their position in the file, one row group in memory at a time. Use it in a `with`."""

    def __init__(self, storage: Files, path: str, columns: Sequence[str] | None = None) -> None:
        self.path = path
        self._columns = list(columns) if columns is not None else None
        self._input = storage.open_input(path)
        with plain_errors(f"read {storage.uri}/{path}"):
            self._file = pq.ParquetFile(self._input, pre_buffer=False, page_checksum_verification=True)
        metadata = self._file.metadata
        counts = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
        self._starts = np.cumsum([0, *counts], dtype=np.int64)
        self._cached: OrderedDict[int, pa.Table] = OrderedDict()

    def __enter__(self) -> RowReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._cached.clear()
        self._file.close()
        self._input.close()

    @property
    def num_rows(self) -> int:
        return int(self._starts[-1])

    def read(self, rows: Sequence[int] | IntArray) -> Iterator[tuple[IntArray, pa.Table]]:
        """(positions, their rows) per row group, positions ascending and without repeats."""
        wanted = np.unique(np.asarray(rows, dtype=np.int64))
        if len(wanted) and (wanted[0] < 0 or wanted[-1] >= self.num_rows):
            raise GristmillError(f"{self.path} has {self.num_rows} rows, row {int(wanted[-1])} is asked for")
        groups = np.searchsorted(self._starts, wanted, side="right") - 1
        for group in np.unique(groups):
            positions = wanted[groups == group]
            table = self._group(int(group))
            yield positions, table if len(positions) == table.num_rows else table.take(positions - self._starts[group])

    def _group(self, group: int) -> pa.Table:
        if group not in self._cached:
            self._cached.clear()  # before reading: never two groups at once
            with plain_errors(f"read {self.path}"):
                self._cached[group] = self._file.read_row_group(group, columns=self._columns, use_threads=False)
        return self._cached[group]


def read_rows(
    storage: Files, path: str, rows: Sequence[int] | IntArray, columns: Sequence[str] | None = None
) -> Iterator[tuple[IntArray, pa.Table]]:
    """(positions, rows of them) of the part `path`, by row group, ascending; bounded memory. `columns` None = all."""
    with RowReader(storage, path, columns) as reader:
        yield from reader.read(rows)
