"""Documents to rows. A row is a list of pieces; a piece of k positions has k inputs and the k targets behind them.

A document of n ids and its end-of-document id takes n positions: its first id is never a target, its last never an
input, so no position predicts across documents and none is masked but padding. A continuation starts with the last
token of the piece before it: each token after a document's first is a target exactly once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from trainer.stream.documents import Documents, Feed, Row
from trainer.stream.errors import StreamUsageError
from trainer.stream.plan import permutation
from trainer.stream.tokens import Array

#: Documents among which the best fit is sought, and how far ahead of the oldest they may stand.
PENDING = 32
REACH = 64
_SMALLEST_BUCKET = 5  # 2**5 = 32 positions


class Cursor(NamedTuple):
    """Where one source of one lane stands: all that a resumed run needs. JSON: a list of six numbers."""

    epoch: int = 0
    base: int = 0  # place in the epoch of the first row that is not used up
    mask: int = 0  # bit i: the row i after it is used up
    open: int = -1  # the partly used document, counted from base
    offset: int = 0  # positions of it that are used
    emitted: int = 0  # what its weight is measured by: targets or documents


class Piece(NamedTuple):
    source: int
    position: int
    ids: Array
    start: int
    length: int


@dataclass
class PackedRow:
    width: int
    pieces: list[Piece]
    #: no document was left to fill it with
    last: bool


class Supply:
    """One source's documents in one lane that are read and not used up, oldest first.

    `base` is the oldest of them where `sliding`, else the first row of a window of REACH rows that goes as a whole.
    """

    def __init__(self, feed: Feed, lane: int, cursor: Cursor, sliding: bool) -> None:
        self.source = feed.source
        self._sliding = sliding
        self._rows = feed.rows(lane)
        self.base = cursor.epoch * self._rows + cursor.base
        self._next = self.base
        self._used = {self.base + bit for bit in range(REACH) if cursor.mask >> bit & 1}
        self._open = self.base + cursor.open if cursor.open >= 0 else -1
        self.offset = cursor.offset
        self.emitted = cursor.emitted
        self.ended = False
        self._skipped = 0
        self._documents = Documents(feed, lane, self.base)
        self._numbers: list[int] = []
        self._read: list[tuple[int, Array]] = []
        #: positions that each pending document still needs
        self.needs: list[int] = []

    def fill(self, count: int, reach: int) -> bool:
        """Reads on until `count` documents are pending or `reach` rows from base are read. False if none is pending."""
        self._advance()
        while len(self.needs) < count and self._next < self.base + reach and not self.ended:
            row: Row | None = next(self._documents, None)
            if row is None or self._skipped > 2 * self._rows:  # not one in a whole epoch
                self.ended = True
                break
            number, self._next = self._next, self._next + 1
            position, ids = row
            if number in self._used:
                self._used.remove(number)
                self._advance()
                continue
            if ids is None or not len(ids):
                self._skipped += 1
                if number == self._open:  # excluded in the middle
                    self._open, self.offset = -1, 0
                self._advance()
                continue
            self._skipped = 0
            need = len(ids) - (self.offset if number == self._open else 0)
            if need <= 0:
                raise StreamUsageError(
                    f"the saved data state is damaged (token {self.offset:,} of a document of {len(ids):,}); "
                    "take another checkpoint, or start the data anew (--reset-data)"
                )
            self._numbers.append(number)
            self._read.append((position, ids))
            self.needs.append(need)
        return bool(self.needs)

    @property
    def at_reach(self) -> bool:
        """No further document is read until the oldest is used up."""
        return self._next >= self.base + REACH

    @property
    def open_index(self) -> int | None:
        """Which pending document is partly used; reads up to it after a resume."""
        if self._open < 0:
            return None
        while self._next <= self._open and not self.ended:
            self.fill(len(self.needs) + 1, REACH)
        return self._numbers.index(self._open) if self._open >= 0 else None

    def take(self, index: int, room: int, by_documents: bool) -> Piece:
        """The next piece of a pending document, at most `room` long."""
        number, need = self._numbers[index], self.needs[index]
        position, ids = self._read[index]
        length = min(need, room)
        start = len(ids) - need
        self.emitted += int(start == 0) if by_documents else length
        if length < need:
            self._open, self.offset = number, start + length
            self.needs[index] = need - length
        else:
            if number == self._open:
                self._open, self.offset = -1, 0
            del self._numbers[index], self._read[index], self.needs[index]
            self._advance()
        return Piece(self.source, position, ids, start, length)

    def _advance(self) -> None:
        if self._sliding:
            self.base = self._numbers[0] if self._numbers else self._next
        elif not self._numbers and self._next == self.base + REACH:
            self.base = self._next

    def cursor(self) -> Cursor:
        mask = (1 << (self._next - self.base)) - 1
        for number in self._numbers:
            mask ^= 1 << (number - self.base)
        for number in self._used:
            mask |= 1 << (number - self.base)
        epoch, base = divmod(self.base, self._rows) if self._rows else (0, 0)
        opened = self._open - self.base if self._open >= 0 else -1
        return Cursor(epoch, base, mask, opened, self.offset, self.emitted)


class Lane:
    """A lane's sources and the row under way. `weights`: one per source; the one furthest behind its share is next."""

    def __init__(
        self,
        feeds: list[Feed],
        weights: list[float],
        by_documents: bool,
        lane: int,
        cursors: list[Cursor],
        width: int,
        sliding: bool,
    ) -> None:
        self.number = lane
        self.supplies = [Supply(feed, lane, cursor, sliding) for feed, cursor in zip(feeds, cursors, strict=True)]
        self._weights = weights
        self._by_documents = by_documents
        self.width = width

    def cursors(self) -> list[Cursor]:
        return [supply.cursor() for supply in self.supplies]

    def next_supply(self, count: int, reach: int = REACH) -> Supply | None:
        """The source whose turn it is, with its pending documents read; None where none has any left."""
        for index in sorted(range(len(self.supplies)), key=lambda i: self.supplies[i].emitted / self._weights[i]):
            if self.supplies[index].fill(count, reach):
                return self.supplies[index]
        return None

    def opened(self) -> tuple[Supply, int] | None:
        for supply in self.supplies:
            if (index := supply.open_index) is not None:
                return supply, index
        return None

    def take(self, supply: Supply, index: int, room: int) -> Piece:
        return supply.take(index, room, self._by_documents)


def packed_row(lane: Lane) -> PackedRow:
    """Whole documents by best fit, one long document cut to fill the rest.

    Order: the document cut before, unless it is kept back; the oldest other one; best fits; then the one kept back, or
    if none is cut yet, the oldest of those longer than a row. What is left of a cut document is kept back while no
    other long one is pending, so that rows can still be filled. No document that fits a row is split, none waits for
    more than REACH others, at most one per lane is open.
    """
    row = PackedRow(lane.width, [], last=False)
    room = lane.width

    def put(supply: Supply, index: int) -> None:
        nonlocal room
        row.pieces.append(lane.take(supply, index, room))
        room -= row.pieces[-1].length

    if (opened := lane.opened()) is not None and not _kept_back(*opened, lane.width):
        put(*opened)
    supply = lane.next_supply(PENDING) if room else None
    if supply is not None:
        needs = supply.needs
        started = False
        while room and supply.fill(PENDING, REACH):
            kept = supply.open_index
            index = (1 if kept == 0 else 0) if not started else -1
            started = True
            if not 0 <= index < len(needs) or (needs[index] > room and (row.pieces or lane.opened() is not None)):
                index, best = -1, 0
                for i, need in enumerate(needs):
                    if best < need <= room and i != kept:
                        best, index = need, i
                if index < 0:
                    break
            put(supply, index)
        if room and (opened := lane.opened()) is not None:
            put(*opened)
        if room and lane.opened() is None:
            index = next((i for i, need in enumerate(needs) if need > lane.width), -1)
            if index >= 0:
                put(supply, index)
    row.last = room > 0 and (supply is None or supply.ended)
    return row


def _kept_back(supply: Supply, index: int, width: int) -> bool:
    supply.fill(PENDING, REACH)
    return supply.needs[index] <= width and max(supply.needs) <= width and not (index == 0 and supply.at_reach)


def concatenated_row(lane: Lane) -> PackedRow:
    """Documents one after another, cut wherever the row ends."""
    room = lane.width
    pieces: list[Piece] = []
    while room:
        opened = lane.opened()
        if opened is None:
            supply = lane.next_supply(1)
            if supply is None:
                break
            opened = supply, 0
        pieces.append(lane.take(*opened, room))
        room -= pieces[-1].length
    return PackedRow(lane.width, pieces, last=room > 0)


def bucketed_rows(lane: Lane, budget: int, seed: int) -> list[PackedRow]:
    """Rows of one width, a power of two, of one document each: at most `budget` positions in all.

    The REACH documents of a window are taken bucket by bucket, the buckets in shuffled order. A document longer than
    the widest bucket is cut, one at a time. None left: one empty row of the smallest width.
    """
    opened = lane.opened()
    if opened is not None:
        supply, index = opened
        supply.fill(REACH, REACH)
        bucket = _bucket(supply.needs[index], lane.width)
    else:
        chosen = lane.next_supply(REACH)
        if chosen is None:
            return [PackedRow(min(lane.width, 1 << _SMALLEST_BUCKET), [], last=True)]
        supply = chosen
        present = {_bucket(need, lane.width) for need in supply.needs}
        order = permutation(64, seed, supply.source, lane.number, 3, supply.base).tolist()
        bucket = next(b for b in order if b in present)
    width = min(lane.width, 1 << bucket)
    rows: list[PackedRow] = []
    for _ in range(max(1, budget // width)):
        found = _next_in(supply, bucket, lane.width)
        if found is None:
            break
        rows.append(PackedRow(width, [lane.take(supply, found, width)], last=False))
    return rows


def _next_in(supply: Supply, bucket: int, widest: int) -> int | None:
    """The document to go on with in a bucket: the open one, else the oldest, unless a second one would be opened."""
    opened = supply.open_index
    if opened is not None and _bucket(supply.needs[opened], widest) == bucket:
        return opened
    fits = (i for i, need in enumerate(supply.needs) if _bucket(need, widest) == bucket)
    return next((i for i in fits if i != opened and (supply.needs[i] <= widest or opened is None)), None)


def _bucket(need: int, widest: int) -> int:
    return max(_SMALLEST_BUCKET, (min(need, widest) - 1).bit_length())
