"""One source in one lane as a stream of documents, read and encoded ahead by threads.

Rows of the stream are numbered through all epochs: number = epoch * rows of the lane + place in that epoch's order.
A row that is excluded or in quarantine keeps its number and comes as None.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trainer.stream.errors import ContentFault
from trainer.stream.manifest import Ints
from trainer.stream.plan import Order, Pieces, Window
from trainer.stream.reader import Reader
from trainer.stream.tokens import Array, Encoder, check_ids

log = logging.getLogger("gristmill")
T = TypeVar("T")
P = ParamSpec("P")
#: (position in the run, ids without the end-of-document id, or None for a row that is skipped)
Row = tuple[int, Array | None]
#: Rows put into quarantine: (source, position of the first, how many).
Fault = tuple[int, int, int]

#: What is encoded as one task: enough to be worth it, little enough to be soon there.
_CHUNK_ROWS = 32
_CHUNK_BYTES = 1 << 20
#: Chunks in work per stream, so that the threads never wait for the packer.
_CHUNKS_AHEAD = 3


@dataclass
class Feed:
    """What the lanes of one source share."""

    source: int
    reader: Reader
    encoder: Encoder
    lanes: list[Pieces]
    seed: int
    window: int
    epochs: int | None
    pool: ThreadPoolExecutor | None
    excluded_positions: Ints
    excluded_ids: Collection[str]
    quarantine: dict[Fault, None] = field(default_factory=dict)  # an ordered set, shared by all feeds of a loader

    def rows(self, lane: int) -> int:
        return int(self.lanes[lane].rows.sum())

    def load(self, window: Window) -> Loaded:
        """Reads a window's rows."""
        groups = self.reader.manifest.groups
        columns = (self.encoder.column, *(["record_id"] if self.excluded_ids else []))
        loaded = Loaded(window)
        for group, start, rows in zip(
            window.pieces.group.tolist(), window.pieces.start.tolist(), window.pieces.rows.tolist(), strict=True
        ):
            first = int(groups.first[group]) + start
            keep = ~np.isin(np.arange(first, first + rows), self.excluded_positions)
            try:
                if (self.source, first, rows) in self.quarantine:
                    raise ContentFault("in quarantine")
                arrays = self.reader.read(group, start, rows, columns)
                values, offsets = _flat(arrays[0])
                if self.excluded_ids:
                    ids = pc.is_in(arrays[1], value_set=pa.array(sorted(self.excluded_ids), pa.string()))
                    keep &= ~ids.to_numpy(zero_copy_only=False)
            except ContentFault as fault:
                if (self.source, first, rows) not in self.quarantine:
                    log.error("%s; %s rows from position %s on are put into quarantine", fault, f"{rows:,}", first)
                loaded.faults.append((self.source, first, rows))
                values, offsets, keep = np.zeros(0, np.uint8), np.zeros(rows + 1, np.int64), np.zeros(rows, bool)
            loaded.add(first, values, offsets, keep)
        loaded.finish()
        return loaded

    def encode(self, loaded: Loaded, start: int, end: int) -> list[Row]:
        """The rows from `start` to `end` in the window's order."""
        rows = loaded.window.order[start:end]
        positions = loaded.positions[rows].tolist()
        kept = loaded.keep[rows].tolist()
        pieces, starts, ends = (a[rows].tolist() for a in (loaded.piece, loaded.starts, loaded.ends))
        values = [
            loaded.values[piece][first:last]
            for piece, first, last, wanted in zip(pieces, starts, ends, kept, strict=True)
            if wanted
        ]
        documents = iter(self.encoder.encode(values))
        return [(at, next(documents) if wanted else None) for at, wanted in zip(positions, kept, strict=True)]


class Loaded:
    """A window's rows in memory: values of each piece and, per row, which of them are the row's."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self.values: list[Array] = []
        self.faults: list[Fault] = []
        self._parts: list[tuple[Ints, Ints, Ints, Ints, npt.NDArray[np.bool_]]] = []

    def add(self, first: int, values: Array, offsets: Ints, keep: npt.NDArray[np.bool_]) -> None:
        rows = len(keep)
        piece = np.full(rows, len(self.values))
        self._parts.append((np.arange(first, first + rows), piece, offsets[:-1], offsets[1:], keep))
        self.values.append(values)

    def finish(self) -> None:
        self.positions, self.piece, self.starts, self.ends, self.keep = (
            np.concatenate(column) for column in zip(*self._parts, strict=True)
        )
        self._parts.clear()
        self._size = np.cumsum((self.ends - self.starts)[self.window.order])

    def chunk_end(self, start: int) -> int:
        """Where a chunk that starts at `start` ends: bounded in rows and, but for a single row, in bytes."""
        before = int(self._size[start - 1]) if start else 0
        within = int(np.searchsorted(self._size, before + _CHUNK_BYTES, side="right"))
        return min(len(self.window), start + _CHUNK_ROWS, max(start + 1, within))


def _flat(array: pa.Array) -> tuple[Array, Ints]:
    """A column of strings, lists of ids or numbers as (values, offsets [rows + 1])."""
    kind = array.type
    if pa.types.is_integer(kind):
        return array.to_numpy(zero_copy_only=False), np.arange(len(array) + 1)
    width = np.int64 if pa.types.is_large_string(kind) or pa.types.is_large_list(kind) else np.int32
    if not len(array):
        return np.zeros(0, np.uint8), np.zeros(1, np.int64)
    offsets = np.frombuffer(array.buffers()[1], width)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        data = array.buffers()[2]
        return np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8), offsets
    return check_ids(array.values.to_numpy(zero_copy_only=False)), offsets


class Documents:
    """The stream of one lane from row `number` on: an iterator of Row that ends with the last epoch."""

    def __init__(self, feed: Feed, lane: int, number: int) -> None:
        self._feed = feed
        self._lane = lane
        self._rows = feed.rows(lane)
        self._end = None if feed.epochs is None else feed.epochs * self._rows
        self._orders: dict[int, Order] = {}
        self._coming: dict[int, Callable[[], Loaded]] = {}
        self._iterator = self._stream(number)
        self._expect(number)

    def __iter__(self) -> Iterator[Row]:
        return self._iterator

    def __next__(self) -> Row:
        return next(self._iterator)

    def _stream(self, number: int) -> Iterator[Row]:
        feed = self._feed
        pool = feed.pool if feed.encoder.heavy else None
        while self._more(number):
            self._expect(number)
            loaded = self._coming.pop(number)()
            for fault in loaded.faults:
                feed.quarantine[fault] = None
            at = number % self._rows - loaded.window.start
            number += len(loaded.window) - at
            chunks: deque[Callable[[], list[Row]]] = deque()
            while chunks or at < len(loaded.window):
                while at < len(loaded.window) and len(chunks) < (_CHUNKS_AHEAD if pool else 1):
                    end = loaded.chunk_end(at)
                    chunks.append(_submit(pool, feed.encode, loaded, at, end))
                    at = end
                if 4 * at >= 3 * len(loaded.window):
                    self._expect(number)
                yield from chunks.popleft()()

    def _more(self, number: int) -> bool:
        return self._rows > 0 and (self._end is None or number < self._end)

    def _expect(self, number: int) -> None:
        """Has the window of row `number` read."""
        if number in self._coming or not self._more(number):
            return
        epoch, place = divmod(number, self._rows)
        if epoch not in self._orders:
            feed = self._feed
            order = Order(feed.lanes[self._lane], feed.window, feed.seed, feed.source, self._lane, epoch)
            self._orders = {epoch: order}
        window = self._orders[epoch].window_at(place)
        self._coming[number] = _submit(self._feed.pool, self._feed.load, window)


def _submit(
    pool: ThreadPoolExecutor | None, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> Callable[[], T]:
    """Work whose result is asked for later; without a pool it is done then."""
    if pool is None:
        return lambda: work(*args, **kwargs)
    return pool.submit(work, *args, **kwargs).result
