"""A text as a row of units, and the 64-bit hashes of its n-grams.

A *unit* is a word as in shingles (lower case, NFKC, runs of `\\w`), but a character of a script without spaces is
always a unit of its own. Shingles decide that by the majority of a document; here it must not depend on what stands
around a passage, or a Chinese question would hide in an English page.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from pipeline.compiled import njit
from pipeline.shingles import SEPARATOR, UNSPACED, Hashes, Longs, word_stream

Positions = npt.NDArray[np.int64]

_BASE = np.uint64(0x9FB21C651E98DF25)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class Units:
    """`stream`: code points, one separator between units; unit i is stream[begins[i] : begins[i + 1] - 1]."""

    stream: Hashes
    begins: Positions
    hashes: Longs

    def __len__(self) -> int:
        return len(self.hashes)


def split(text: str) -> Units:
    """The units of `text`, in linear time."""
    words, _, unspaced = word_stream(text)
    room = 2 * len(words) if unspaced else len(words)
    most = len(words) if unspaced else (len(words) + 1) // 2
    stream = np.empty(room, np.uint32)
    begins = np.empty(most + 1, np.int64)
    hashes = np.empty(most, np.uint64)
    length, count = _split(words, _unspaced(), stream, begins, hashes)
    return Units(stream[:length], begins[: count + 1], hashes[:count])


def ngram_hashes(units: Longs, n: int) -> Longs:
    """uint64[len(units) - n + 1]: the hash of each run of `n` units, given the units' hashes; the order counts."""
    hashes = np.empty(max(0, len(units) - n + 1), np.uint64)
    if len(hashes):
        _roll(units, n, hashes)
    return hashes


@cache
def _unspaced() -> npt.NDArray[np.bool_]:
    table = np.zeros(0x110000, np.bool_)
    for first, last in UNSPACED:
        table[first : last + 1] = True
    return table


@njit
def _split(
    words: Hashes, unspaced: npt.NDArray[np.bool_], stream: Hashes, begins: Positions, hashes: Longs
) -> tuple[int, int]:
    """(length of the stream, units), into the three arrays."""
    length = 0
    count = 0
    open_unit = False
    h = np.uint64(0)
    for i in range(len(words)):
        point = words[i]
        if point == SEPARATOR:
            if open_unit:
                hashes[count - 1] = h
            open_unit = False
            continue
        alone = unspaced[point]
        if alone or not open_unit:
            if open_unit:
                hashes[count - 1] = h
            if count:
                stream[length] = SEPARATOR
                length += 1
            begins[count] = length
            count += 1
            h = np.uint64(0)
        stream[length] = point
        length += 1
        h = (h * _BASE) ^ np.uint64(point)
        open_unit = not alone
        if alone:
            hashes[count - 1] = h
    if open_unit:
        hashes[count - 1] = h
    begins[count] = length + 1 if count else 0
    return length, count


@njit
def _mix(x: np.uint64) -> np.uint64:
    """The finalizer of splitmix64."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@njit
def _roll(units: Longs, n: int, hashes: Longs) -> None:
    """A rolling polynomial of mixed units, mixed once more: the cost does not depend on `n`."""
    power = np.uint64(1)
    for _ in range(n):
        power *= _BASE
    rolling = np.uint64(0)
    for i in range(len(units)):
        rolling = rolling * _BASE + _mix(units[i] + _GOLDEN)
        if i >= n:
            rolling -= _mix(units[i - n] + _GOLDEN) * power
        if i >= n - 1:
            hashes[i - n + 1] = _mix(rolling)
