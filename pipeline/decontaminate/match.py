"""One text against the index: which benchmarks it holds words of, where, and of which entry."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline.compiled import njit
from pipeline.decontaminate import ngrams
from pipeline.decontaminate.index import Index, same_words
from pipeline.decontaminate.ngrams import Positions, Units
from pipeline.shingles import Hashes, Longs

#: Longer texts are taken in windows of so many characters, so that one huge page costs no memory of its size.
WINDOW = 4_000_000
_NEAR = 10_000  #: how far back from a window's end a space to cut at is looked for


@dataclass(frozen=True, slots=True)
class Overlap:
    """`start`, `end`: characters of the text that run along with the entry; `ngrams`: all that match the benchmark."""

    benchmark: str
    file: str
    entry: int
    field: str
    start: int
    end: int
    ngrams: int


def overlaps(text: str, index: Index) -> list[Overlap]:
    """At most one per benchmark, in the recipe's order: its first match, as far as text and entry go on alike.

    Where the n-gram stands in several entries, the first of them is named. A match is one of words: hashes only find
    candidates.
    """
    found: dict[int, Overlap] = {}
    for offset, window, units in _windows(text, index.ngram):
        for number, first, slot, count in _hits(units, index):
            known = found.get(number)
            if known is None:
                known = _described(window, offset, units, index, number, first, slot)
            found[number] = _with_more(known, count)
    return [found[number] for number in sorted(found)]


def _windows(text: str, n: int) -> Iterator[tuple[int, str, Units]]:
    """(offset, window, its units); each window begins with the first n-gram that the one before it does not hold.

    Lost is only an n-gram that holds a word of nearly a window's length.
    """
    offset = 0
    while True:
        window = text[offset : offset + WINDOW]
        last = offset + len(window) == len(text)
        if not last:
            near = max(window.rfind(" ", len(window) - _NEAR), window.rfind("\n", len(window) - _NEAR))
            window = window[: near if near > 0 else len(window)]
        units = ngrams.split(window)
        yield offset, window, units
        if last:
            return
        begun = len(units) - n + 1  # the first unit of the first n-gram that the window does not hold
        offset += (locate(window, begun) if begun > 0 else 0) or len(window)


def _hits(units: Units, index: Index) -> Iterator[tuple[int, int, int, int]]:
    """(benchmark, first unit of the first match, its place among the keys, number of matches) per benchmark."""
    hashes = ngrams.ngram_hashes(units.hashes, index.ngram)
    if not len(hashes):
        return
    positions = np.empty(len(hashes), np.int64)
    count = _candidates(hashes, index.bits, index.shift, index.keys, positions)
    if not count:
        return
    counts, firsts, slots = (np.zeros(len(index.names), np.int64) for _ in range(3))
    _verify(
        positions[:count],
        hashes,
        units.stream,
        units.begins,
        index.ngram,
        index.keys,
        index.at,
        index.of,
        index.stream,
        index.begins,
        counts,
        firsts,
        slots,
    )
    for number in np.flatnonzero(counts).tolist():
        yield number, int(firsts[number]), int(slots[number]), int(counts[number])


def _described(window: str, offset: int, units: Units, index: Index, number: int, first: int, slot: int) -> Overlap:
    unit = int(index.at[slot])
    text = index.text_of(unit)
    length = index.ngram
    most = min(len(units) - first, int(index.text_begins[text + 1]) - unit)
    while length < most and _same_unit(units, first + length, index, unit + length):
        length += 1
    start = locate(window, first)
    next_one = locate(window, first + length) if first + length < len(units) else len(window)
    end = next_one
    while end > start + 1 and not _of_a_word(window[end - 1]):
        end -= 1
    while end < next_one and unicodedata.category(window[end])[0] == "M":  # accents that stand apart from their letter
        end += 1
    return Overlap(
        index.names[number],
        index.files[index.text_file[text]],
        int(index.text_entry[text]),
        index.fields[index.text_field[text]],
        offset + start,
        offset + end,
        0,
    )


def _with_more(one: Overlap, count: int) -> Overlap:
    return Overlap(one.benchmark, one.file, one.entry, one.field, one.start, one.end, one.ngrams + count)


def _same_unit(units: Units, i: int, index: Index, j: int) -> bool:
    ours = units.stream[units.begins[i] : units.begins[i + 1] - 1]
    theirs = index.stream[index.begins[j] : index.begins[j + 1] - 1]
    return np.array_equal(ours, theirs)


def locate(text: str, unit: int) -> int:
    """The character at which this unit begins: the last one without which the text holds `unit` units or fewer.

    Normalising moves characters, so the place is found by splitting ever nearer beginnings of the text; only for the
    few texts that match.
    """
    low, high = 0, len(text)  # splits of text[:low] <= unit < splits of text[:high]
    while high - low > 1:
        middle = (low + high) // 2
        if len(ngrams.split(text[:middle])) > unit:
            high = middle
        else:
            low = middle
    return low


def _of_a_word(char: str) -> bool:
    return any(c.isalnum() or c == "_" for c in unicodedata.normalize("NFKC", char.lower()))


# --------------------------------------------------------------------------------------------------------- kernels


@njit
def _first_at(keys: Longs, wanted: np.uint64) -> int:
    """The first place among the sorted `keys` whose key is not smaller."""
    low = 0
    high = len(keys)
    while low < high:
        middle = (low + high) // 2
        if keys[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@njit
def _candidates(hashes: Longs, bits: Longs, shift: int, keys: Longs, positions: Positions) -> int:
    """How many of `hashes` are among `keys`; their positions go into `positions`."""
    count = 0
    for i in range(len(hashes)):
        bit = hashes[i] >> np.uint64(shift)
        if (bits[bit >> np.uint64(6)] >> (bit & np.uint64(63))) & np.uint64(1):
            slot = _first_at(keys, hashes[i])
            if slot < len(keys) and keys[slot] == hashes[i]:
                positions[count] = i
                count += 1
    return count


@njit
def _verify(
    positions: Positions,
    hashes: Longs,
    stream: Hashes,
    begins: Positions,
    n: int,
    keys: Longs,
    at: Positions,
    of: npt.NDArray[np.int32],
    index_stream: Hashes,
    index_begins: Positions,
    counts: Positions,
    firsts: Positions,
    slots: Positions,
) -> None:
    """Of the candidates, those with the same words: per benchmark their number, the first and its place in `keys`."""
    for p in range(len(positions)):
        i = positions[p]
        slot = _first_at(keys, hashes[i])
        while slot < len(keys) and keys[slot] == hashes[i]:
            unit = at[slot]
            if same_words(
                stream, begins[i], begins[i + n] - 1, index_stream, index_begins[unit], index_begins[unit + n] - 1
            ):
                number = of[slot]
                if counts[number] == 0:
                    firsts[number] = i
                    slots[number] = slot
                counts[number] += 1
            slot += 1
