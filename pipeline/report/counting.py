"""Bounded, exact, order-free counting: what a report needs of any number of rows, without holding them."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

Integers = npt.NDArray[np.int64]


def bucket(length: int) -> int:
    """floor(log2(max(1, length))): the length bucket of design.md."""
    return max(1, length).bit_length() - 1


class Lengths:
    """An exact multiset of lengths. Memory is bounded by the number of different lengths, not of documents."""

    def __init__(self) -> None:
        self.values: Integers = np.empty(0, np.int64)
        self.counts: Integers = np.empty(0, np.int64)

    def add(self, lengths: Integers) -> None:
        if lengths.size:
            values, counts = np.unique(lengths, return_counts=True)
            self._merge(values, counts.astype(np.int64))

    def update(self, other: Lengths) -> None:
        if other.values.size:
            self._merge(other.values, other.counts)

    def _merge(self, values: Integers, counts: Integers) -> None:
        merged, inverse = np.unique(np.concatenate([self.values, values]), return_inverse=True)
        total = np.zeros(len(merged), np.int64)
        np.add.at(total, inverse, np.concatenate([self.counts, counts]))
        self.values, self.counts = merged, total

    @property
    def n(self) -> int:
        return int(self.counts.sum())

    @property
    def total(self) -> int:
        return int((self.values * self.counts).sum())

    def percentile(self, percent: float) -> int | None:
        """Nearest rank: the smallest length that at least `percent` % of documents do not exceed."""
        if not self.values.size:
            return None
        cumulative = np.cumsum(self.counts)
        rank = max(1, -(-self.n * percent // 100))
        return int(self.values[int(np.searchsorted(cumulative, rank))])

    def buckets(self) -> dict[int, tuple[int, int]]:
        """Bucket -> (documents, sum of their lengths), ascending."""
        result: dict[int, tuple[int, int]] = {}
        for length, n in zip(self.values.tolist(), self.counts.tolist(), strict=True):
            documents, total = result.get(bucket(length), (0, 0))
            result[bucket(length)] = (documents + n, total + n * length)
        return result


def skew(before: Lengths, after: Lengths) -> float | None:
    """Jensen-Shannon distance (base 2, 0 to 1) between two distributions of documents over length buckets."""
    if not before.n or not after.n:
        return None
    first, second = before.buckets(), after.buckets()
    keys = sorted(first.keys() | second.keys())
    p = np.array([first.get(k, (0, 0))[0] for k in keys], float) / before.n
    q = np.array([second.get(k, (0, 0))[0] for k in keys], float) / after.n
    middle = (p + q) / 2

    def divergence(a: npt.NDArray[np.float64]) -> float:
        present = a > 0
        return float(np.sum(a[present] * np.log2(a[present] / middle[present])))

    return math.sqrt(max(0.0, (divergence(p) + divergence(q)) / 2))


class Breakdown:
    """Value of a column -> one vector of numbers. Keeps the `cap` largest values; the rest is folded into `others`."""

    def __init__(self, columns: int, cap: int = 50_000) -> None:
        self.columns = columns
        self.cap = cap
        self.rows: dict[str | None, Integers] = {}
        self.others: Integers = np.zeros(columns, np.int64)
        self.folded = 0

    def add(self, values: pa.Array, numbers: Integers) -> None:
        """`numbers` has shape (rows, columns)."""
        encoded = pc.dictionary_encode(values, null_encoding="encode")
        names = encoded.dictionary.to_pylist()
        sums = np.zeros((len(names), self.columns), np.int64)
        np.add.at(sums, np.asarray(encoded.indices), numbers)
        for name, row in zip(names, sums, strict=True):
            known = self.rows.get(name)
            self.rows[name] = row.copy() if known is None else known + row
        if len(self.rows) > 2 * self.cap:
            self._prune()

    def _prune(self) -> None:
        ranked = self.ranked(0)
        for name, row in ranked[self.cap :]:
            self.others += row
            del self.rows[name]
        self.folded += len(ranked) - self.cap

    def ranked(self, by: int) -> list[tuple[str | None, Integers]]:
        """Rows by column `by`, largest first, ties by name; null last among equals."""
        return sorted(self.rows.items(), key=lambda item: (-int(item[1][by]), item[0] is None, item[0] or ""))


@dataclass(slots=True)
class Sample:
    """The `size` ids of each key that have the smallest xxh3 of (id, key): the same rows however they are split."""

    size: int
    heaps: dict[str, list[tuple[int, str, tuple[int, int]]]] = field(default_factory=dict)

    def add(self, key: str, ids: Iterable[str], part: int, rows: Iterable[int]) -> None:
        """Offer records of one part, with their rows in it."""
        heap = self.heaps.setdefault(key, [])
        suffix = key.encode()
        for record_id, row in zip(ids, rows, strict=True):
            rank = -xxhash.xxh3_64_intdigest(record_id.encode() + suffix)
            if len(heap) < self.size:
                heapq.heappush(heap, (rank, record_id, (part, row)))
            elif rank > heap[0][0]:
                heapq.heapreplace(heap, (rank, record_id, (part, row)))

    def chosen(self) -> dict[str, list[tuple[str, tuple[int, int]]]]:
        """Key -> (id, place), smallest hash first."""
        return {
            key: [(i, place) for rank, i, place in sorted(heap, key=lambda e: (-e[0], e[1]))]
            for key, heap in self.heaps.items()
        }
