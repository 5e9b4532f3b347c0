"""Rows of a row group: fetched in ranges, checked, decoded. One column at a time, and no more than is asked for.

Faults are of two kinds. Bytes that cannot be had are tried for again, then the run stops. Bytes that arrive and are
damaged (page checksum, decoding) are read once more, then raise ContentFault: the caller puts the rows into quarantine.
A file that is missing, or whose size or footer is not what the manifest says, is another file: the run stops, for what
else may be wrong there no checksum tells.
"""

from __future__ import annotations

import hashlib
import io
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trainer.stream.errors import ContentFault, StreamError, StreamUsageError, is_missing, one_line
from trainer.stream.manifest import Manifest, ShardFile

log = logging.getLogger("gristmill")
T = TypeVar("T")
#: Waits between tries, in seconds.
RETRY_AFTER = (0.5, 2.0, 8.0)
#: Column chunks up to this size are fetched in one request; larger ones in ranges of `RANGE_BYTES` while decoding.
WHOLE_BYTES = 128 << 20
RANGE_BYTES = 8 << 20
_TAIL_BYTES = 64 << 10
_KEPT_FOOTERS = 256


class Reader:
    """Reads one run's shards. Safe for many threads."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self._fs, self._root = fsspec.core.url_to_fs(manifest.folder)
        self._footers: OrderedDict[int, pq.FileMetaData] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, group: int, start: int, rows: int, columns: tuple[str, ...]) -> list[pa.Array]:
        """Rows [start, start + rows) of a group of the manifest: one array per column.

        Raises ContentFault for damaged pages, StreamError for what no other try would mend.
        """
        try:
            return self._read(group, start, rows, columns)
        except ContentFault as fault:
            log.warning("%s; reading it again", fault)
            return self._read(group, start, rows, columns)

    def _read(self, group: int, start: int, rows: int, columns: tuple[str, ...]) -> list[pa.Array]:
        groups = self.manifest.groups
        number, index = int(groups.file[group]), int(groups.index[group])
        file = self.manifest.files[number]
        footer = self._footer(number, file)
        column_numbers = self._columns(footer, file, columns)
        source = _Ranges(lambda first, end: self._fetch(file.path, first, end), file.file_bytes)
        try:
            for chunk in (footer.row_group(index).column(n) for n in column_numbers):
                first = min(filter(None, (chunk.dictionary_page_offset, chunk.data_page_offset)))
                if chunk.total_compressed_size <= WHOLE_BYTES:
                    source.preload(first, first + chunk.total_compressed_size)
            parquet = pq.ParquetFile(
                pa.PythonFile(source, mode="r"),
                metadata=footer,
                pre_buffer=False,
                buffer_size=RANGE_BYTES,
                page_checksum_verification=True,
            )
            everything, size = int(groups.rows[group]), int(groups.text_bytes[group])
            if size <= WHOLE_BYTES:
                table = parquet.read_row_group(index, columns=list(columns), use_threads=False)
                table = _cut(table, start, rows)
            else:  # decoded some at a time, bounded in bytes
                limit = max(1, min(everything, RANGE_BYTES * everything // size))
                batches = parquet.iter_batches(limit, row_groups=[index], columns=list(columns), use_threads=False)
                table = pa.Table.from_batches(_between(batches, start, start + rows))
            if table.num_rows != rows:
                raise pa.ArrowInvalid(f"{table.num_rows} rows where {rows} should be")
            return [_one_array(table.column(name)) for name in columns]
        except StreamError:
            raise
        except (pa.ArrowException, OSError, ValueError) as error:
            if source.fault is not None:
                raise source.fault from None
            raise ContentFault(f"{file.path}: row group {index}: damaged ({one_line(error)})") from None

    def _columns(self, footer: pq.FileMetaData, file: ShardFile, columns: tuple[str, ...]) -> list[int]:
        leaves = [footer.schema.column(i).path.split(".")[0] for i in range(footer.num_columns)]
        for name in columns:
            if name not in leaves:
                raise StreamUsageError(
                    f"{file.path} has no column {name!r}: curate with publish.tokenize, or give a tokenizer"
                )
        return [i for i, leaf in enumerate(leaves) if leaf in columns]

    def _footer(self, number: int, file: ShardFile) -> pq.FileMetaData:
        """The file's footer, checked once against the manifest."""
        with self._lock:
            if number in self._footers:
                self._footers.move_to_end(number)
                return self._footers[number]
        size = self._retried(file.path, lambda: self._fs.info(self._path(file.path)).get("size"))
        if size is not None and size != file.file_bytes:
            raise self._another(file, f"{size:,} bytes, the manifest says {file.file_bytes:,}")
        end = file.file_bytes
        tail = self._fetch(file.path, max(0, end - _TAIL_BYTES), end)
        length = int.from_bytes(tail[-8:-4], "little") + 8
        if tail[-4:] != b"PAR1" or length > end:
            raise self._another(file, "it does not end like a Parquet file")
        if length > len(tail):
            tail = self._fetch(file.path, end - length, end)
        if hashlib.sha256(tail[-length:]).hexdigest() != file.footer_sha256:
            raise self._another(file, "its footer's hash is not the manifest's")
        source = _Ranges(lambda first, last: self._fetch(file.path, first, last), end)
        source.put(end - len(tail), tail)
        footer = pq.read_metadata(pa.PythonFile(source, mode="r"))
        self._check_rows(number, file, footer)
        with self._lock:
            self._footers[number] = footer
            if len(self._footers) > _KEPT_FOOTERS:
                self._footers.popitem(last=False)
        return footer

    def _check_rows(self, number: int, file: ShardFile, footer: pq.FileMetaData) -> None:
        """What the manifest counts is what the file holds: rows it does not count would be left out unsaid."""
        groups = self.manifest.groups
        mine = groups.file == number
        listed = dict(zip(groups.index[mine].tolist(), groups.rows[mine].tolist(), strict=True))
        held = {i: footer.row_group(i).num_rows for i in range(footer.num_row_groups)}
        for index in sorted({*listed, *held}):
            if listed.get(index, 0) != held.get(index, 0):
                raise self._another(
                    file,
                    f"row group {index} has {held.get(index, 0):,} rows, the manifest says {listed.get(index, 0):,}",
                )

    def _another(self, file: ShardFile, why: str) -> StreamError:
        return StreamError(f"{file.path} is not the file that the manifest lists: {why}; restore it or curate again")

    def _path(self, path: str) -> str:
        return f"{self._root}/{path}"

    def _fetch(self, path: str, start: int, end: int) -> bytes:
        data: bytes = self._retried(path, lambda: self._fs.cat_file(self._path(path), start=start, end=end))
        if len(data) != end - start:
            raise StreamError(f"{path}: {len(data):,} bytes at {start:,} where {end - start:,} should be; restore it")
        return data

    def _retried(self, path: str, attempt: Callable[[], T]) -> T:
        for wait in (*RETRY_AFTER, None):
            try:
                return attempt()
            except Exception as error:
                if is_missing(error):
                    where = self.manifest.folder
                    raise StreamError(f"{path} is missing from {where}; restore it or curate again") from None
                if wait is None:
                    raise StreamError(f"{path}: cannot be read ({one_line(error)}); the run stops here") from None
                log.warning("%s: %s; trying again in %s s", path, one_line(error), wait)
                time.sleep(wait)
        raise AssertionError("unreachable")

    def sha256(self, file: ShardFile) -> str:
        """Of the whole file as it is now."""
        digest = hashlib.sha256()
        size = self._retried(file.path, lambda: self._fs.info(self._path(file.path)).get("size")) or file.file_bytes
        for start in range(0, size, RANGE_BYTES):
            digest.update(self._fetch(file.path, start, min(size, start + RANGE_BYTES)))
        return digest.hexdigest()


class _Ranges(io.RawIOBase):
    """A file of which some ranges are at hand and the rest is fetched; keeps the fault of a fetch that failed."""

    def __init__(self, fetch: Callable[[int, int], bytes], size: int) -> None:
        self._fetch = fetch
        self._size = size
        self._at = 0
        self._held: list[tuple[int, bytes]] = []
        self.fault: StreamError | None = None

    def preload(self, start: int, end: int) -> None:
        self.put(start, self._fetched(start, end))

    def put(self, start: int, data: bytes) -> None:
        self._held.append((start, data))

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int | None = -1) -> Any:
        end = self._size if size is None or size < 0 else min(self._size, self._at + size)
        start, self._at = self._at, max(self._at, end)
        for first, data in self._held:
            if first <= start and end <= first + len(data):
                return memoryview(data)[start - first : end - first]
        return self._fetched(start, end) if end > start else b""

    def _fetched(self, start: int, end: int) -> bytes:
        try:
            return self._fetch(start, end)
        except StreamError as error:
            self.fault = error
            raise


def _between(batches: Iterator[pa.RecordBatch], start: int, end: int) -> list[pa.RecordBatch]:
    """The rows [start, end) of all batches together."""
    found = []
    at = 0
    for batch in batches:
        first, last = max(start - at, 0), min(end - at, batch.num_rows)
        if first < last:
            found.append(_cut(batch, first, last - first))
        at += batch.num_rows
        if at >= end:
            break
    return found


def _cut(rows: Any, start: int, count: int) -> Any:
    """Some rows of a table or batch; copied if few, for a slice holds all that was decoded with it."""
    part = rows.slice(start, count)
    return part if 2 * count > rows.num_rows else part.take(pa.array(np.arange(part.num_rows)))


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
