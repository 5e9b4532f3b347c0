"""Who reads what, in which order: pure functions of the manifest and (seed, source, lane, epoch).

Nothing here knows a rank, a world size, a thread or a directory listing.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trainer.stream.manifest import Ints, Manifest

#: Row groups with more text are read in parts by rows: no window holds more than some parts of this size.
PART_BYTES = 64 << 20


def mix(*numbers: int) -> int:
    """One 64-bit number of several; splitmix64 over each in turn."""
    state = 0x9E3779B97F4A7C15
    for number in numbers:
        state = int(_splitmix(np.array([(state ^ number) % (1 << 64)], dtype=np.uint64))[0])
    return state


def permutation(size: int, *key: int) -> Ints:
    """int64[size]: a shuffle of range(size) that depends on the key alone. Own arithmetic, for NumPy's generators may
    change their streams between versions, and a resumed run must not."""
    numbers = np.arange(size, dtype=np.uint64) * np.uint64(0xD1342543DE82EF95) ^ np.uint64(mix(*key))
    return np.argsort(_splitmix(numbers), kind="stable")


def _splitmix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@dataclass(frozen=True, slots=True)
class Pieces:
    """Runs of neighbouring rows, each inside one row group. int64 arrays of one length."""

    group: Ints  # number in Manifest.groups
    start: Ints  # first row, counted within the group
    rows: Ints

    def __len__(self) -> int:
        return len(self.rows)

    def positions(self, first: Ints) -> Ints:
        """Of all rows; `first` as in RowGroups."""
        begins = first[self.group] + self.start
        return np.arange(self.rows.sum()) + np.repeat(begins - np.cumsum(self.rows) + self.rows, self.rows)


def deal(
    manifest: Manifest, lanes: int, seed: int, source: int, languages: tuple[str, ...] | None = None
) -> list[Pieces]:
    """The rows of a run, dealt to its lanes once and for all epochs.

    Row groups are put in a line in shuffled order; each lane takes its L-th part of the characters, a row counted at
    its group's mean. At most L - 1 groups are cut there; the few rows that no lane could take go one by one to the lane
    that has least, so two lanes' totals, so counted, differ by at most one row.
    """
    groups = manifest.groups
    chosen = np.arange(len(groups.rows))
    if languages is not None:
        of_language = np.array([file.lang in languages for file in manifest.files], dtype=bool)
        chosen = chosen[of_language[groups.file]] if len(chosen) else chosen
    parts = _parts(manifest, chosen)
    parts = [parts[i] for i in permutation(len(parts), seed, source, 0).tolist()]
    share = sum(rows * weight for _, _, rows, weight in parts) / lanes
    taken: list[list[tuple[int, int, int]]] = [[] for _ in range(lanes)]
    loads = [0.0] * lanes
    over: list[tuple[int, int, int, float]] = []
    lane = 0
    for group, first, count, weight in parts:
        start, rows = first, count
        while rows:
            if lane == lanes or weight > share:
                over.append((group, start, rows, weight))
                break
            fits = min(rows, int((share - loads[lane]) / weight + 1e-9))
            if fits:
                taken[lane].append((group, start, fits))
                loads[lane] += fits * weight
                start, rows = start + fits, rows - fits
            if rows:
                lane += 1
    least = [(load, lane) for lane, load in enumerate(loads)]
    heapq.heapify(least)
    for group, start, rows, weight in over:
        for row in range(start, start + rows):
            load, lane = least[0]
            taken[lane].append((group, row, 1))
            heapq.heapreplace(least, (load + weight, lane))
    return [Pieces(*np.array(pieces, dtype=np.int64).reshape(-1, 3).T.copy()) for pieces in taken]


def _parts(manifest: Manifest, chosen: Ints) -> list[tuple[int, int, int, float]]:
    """(group, first row, rows, characters per row) of each row group or, of a huge one, of each part."""
    found = []
    groups = manifest.groups
    columns = (chosen, groups.rows[chosen], groups.n_chars[chosen], groups.text_bytes[chosen])
    for group, rows, chars, size in zip(*(column.tolist() for column in columns), strict=True):
        cuts = min(rows, -(-size // PART_BYTES) or 1)
        weight = chars / rows or 1e-6
        for part in range(cuts):
            start, end = rows * part // cuts, rows * (part + 1) // cuts
            found.append((group, start, end - start, weight))
    return found


@dataclass(frozen=True, slots=True)
class Window:
    """Some pieces read together and the order of their rows: row `order[k]`, counted through the pieces, comes k-th."""

    start: int  # where in the epoch
    pieces: Pieces
    order: Ints

    def __len__(self) -> int:
        return len(self.order)


class Order:
    """One source's rows in one lane and epoch: pieces shuffled, cut into windows, rows shuffled in each."""

    def __init__(self, pieces: Pieces, window: int, seed: int, source: int, lane: int, epoch: int) -> None:
        self._key = (seed, source, lane, epoch)
        shuffled = permutation(len(pieces), *self._key, 1)
        self._pieces = Pieces(pieces.group[shuffled], pieces.start[shuffled], pieces.rows[shuffled])
        count = max(1, len(pieces) // window)
        self._cuts = np.arange(count + 1) * len(pieces) // count
        self._ends = np.concatenate([[0], np.cumsum(self._pieces.rows)])[self._cuts[1:]]

    def window_at(self, position: int) -> Window:
        """The window that holds the row at `position` of this epoch."""
        number = int(np.searchsorted(self._ends, position, side="right"))
        cut = slice(int(self._cuts[number]), int(self._cuts[number + 1]))
        inside = Pieces(self._pieces.group[cut], self._pieces.start[cut], self._pieces.rows[cut])
        rows = int(inside.rows.sum())
        return Window(int(self._ends[number]) - rows, inside, permutation(rows, *self._key, 2, number))
