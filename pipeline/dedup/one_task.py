"""The whole of dedup inside one task, for as many documents as one task holds with ease.

It takes the steps of `rounds` with the same kernels on the same order, so the result is the same to the last count (a
test compares them); what it saves is a dozen small Spark jobs, which cost more than the work. Documents are numbered in
key order, so a smaller number is a higher priority and those of earlier runs come first; and as all are here,
components are not needed.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.datasets import DUPLICATES
from pipeline.dedup.candidates import MAX_PAIRS, SPLITS, Bounds, Integers, Sketches, meet, split_buckets
from pipeline.dedup.documents import PREPARED, RUN_BYTES, THIS_RUN, key_bytes
from pipeline.dedup.signature import SKETCH
from pipeline.dedup.store import ShingleStore
from pipeline.dedup.verify import Readers, equal_share, jaccard, run_number
from pipeline.errors import GristmillError
from pipeline.recipe import Dedup
from pipeline.spark import map_in_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Documents x bands that one task holds: about 400 bytes each at worst; shingles beyond 256 MiB go to a file.
MAX_ROWS = 700_000
MAX_ROUNDS = 50

#: `counts` is JSON in one last row without a record.
_RESULT = DUPLICATES.append(pa.field("counts", pa.string()))

Pairs = set[tuple[int, int]]  # (document, leader)


def in_one_task(
    prepared: DataFrame, settings: Dedup, readers: Readers, run_ids: tuple[str, ...], limits: Bounds
) -> DataFrame:
    """Rows of datasets.DUPLICATES with a `counts` column, for `prepared` documents of `documents.prepare`.

    `run_ids`: of the earlier runs, in the keys' order.
    """
    return map_in_arrow(prepared.repartition(1), partial(settle_batches, settings, readers, run_ids, limits), _RESULT)


def settle_batches(
    settings: Dedup,
    readers: Readers,
    run_ids: tuple[str, ...],
    limits: Bounds,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    table = pa.Table.from_batches(batches, schema=PREPARED).sort_by("key")
    first_of: dict[str, int] = {}
    firsts = [first_of.setdefault(text, i) for i, text in enumerate(table.column("exact").to_pylist())]
    with ShingleStore() as store:
        task = _Task(table, settings, readers, limits, store)
        task.settle(sorted(first_of.values()))
    yield _result(firsts, task, run_ids)


@dataclass
class _Task:
    table: pa.Table
    settings: Dedup
    readers: Readers
    limits: Bounds
    store: ShingleStore  # by document: its numbers; by ~document: its minima, where needed
    keys: list[bytes] = field(init=False)
    earlier: int = field(init=False)  # so many documents, the first, are of earlier runs
    leaders: dict[int, list[int]] = field(default_factory=dict)  # document -> leaders, ascending
    absorbed: set[int] = field(default_factory=set)
    similarity: dict[tuple[int, int], float | None] = field(default_factory=dict)  # every pair ever compared
    removed: dict[int, int] = field(default_factory=dict)  # document -> the kept one
    compared: list[float] = field(default_factory=list)
    estimated: int = 0
    counts: dict[str, Any] = field(default_factory=dict)
    stored: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.keys = self.table.column("key").to_pylist()
        self.earlier = sum(not key.startswith(THIS_RUN) for key in self.keys)

    def settle(self, distinct: list[int]) -> None:
        """Fill `removed` and `counts` for the documents `distinct`, one per text."""
        sketch = self.table.column("sketch").to_pylist()
        documents = np.array([i for i in distinct if sketch[i] is not None], np.int64)
        n_bands = self.settings.bands
        width = min(SKETCH, self.settings.permutations)
        sketches = np.frombuffer(b"".join(sketch[i] for i in documents.tolist()), np.uint8).reshape(-1, width)
        lists = self.table.column("buckets").take(pa.array(documents)).combine_chunks()
        buckets = lists.flatten().to_numpy(zero_copy_only=False).reshape(-1, n_bands)
        place = np.zeros(self.table.num_rows, np.int64)  # document -> its line in `sketches`
        place[documents] = np.arange(len(documents))
        rounds = uncompared = n_pairs = 0
        rows, row_buckets = np.repeat(documents, n_bands), buckets.reshape(-1)
        while len(documents):
            new, left_over = self._pairs(rows, row_buckets, sketches, place)
            uncompared = max(uncompared, left_over)
            if not new:
                break
            rounds += 1
            if rounds > MAX_ROUNDS:
                raise GristmillError(f"dedup: survivors did not settle in {MAX_ROUNDS} rounds; report this")
            n_pairs += len(new)
            self._learn(new)
            self._decide()
            waiting = np.array([i for i in sorted(self.absorbed) if i not in self.removed], np.int64)
            if not len(waiting):
                break
            stay = np.array([i for i in documents.tolist() if i not in self.removed], np.int64)
            rows, row_buckets = np.repeat(stay, n_bands), buckets[place[stay]].reshape(-1)
            hot = np.isin(row_buckets, buckets[place[waiting]])
            rows, row_buckets = rows[hot], row_buckets[hot]
        percents = Counter(int(np.floor(np.float32(s) * 100 + 1e-4)) for s in self.compared)
        self.counts = {
            "documents": self.table.num_rows - self.earlier,
            "distinct_texts": sum(i >= self.earlier for i in distinct),
            "candidate_pairs": n_pairs,
            "verified_pairs": len(self.compared),
            "estimated_pairs": self.estimated,
            "uncompared": uncompared,
            "rounds": rounds,
            "near_removed": len(self.removed),
            "similarities": {str(k): percents[k] for k in sorted(percents)},
        }

    def _pairs(self, rows: Integers, row_buckets: Integers, sketches: Sketches, place: Integers) -> tuple[Pairs, int]:
        """New pairs among documents `rows` in their buckets, and how many rows stayed uncompared."""
        new: Pairs = set()
        left = 0
        for split in range(SPLITS + 1):
            order = np.lexsort((rows, row_buckets))
            rows, row_buckets = rows[order], row_buckets[order]
            shared = self._shared(rows, row_buckets)
            rows, row_buckets = rows[shared], row_buckets[shared]
            if not len(rows):
                return new, 0
            row_sketches = sketches[place[rows]]
            found, leaders, absorbed, full = self._meet(rows, row_buckets, row_sketches)
            new.update(zip(rows[found].tolist(), rows[leaders].tolist(), strict=True))
            self.absorbed.update(rows[found[absorbed]].tolist())
            over = np.flatnonzero(full)
            left = int(np.count_nonzero(rows[over] >= self.earlier))
            if not len(over):
                break
            smaller = np.empty(len(over), np.int64)
            split_buckets(row_buckets[over], row_sketches[over], split, smaller)
            rows, row_buckets = rows[over], smaller
        return new, left

    def _shared(self, rows: Integers, row_buckets: Integers) -> npt.NDArray[np.bool_]:
        """Which of the sorted rows are in a bucket with another one, and with one of this run."""
        shared = np.zeros(len(rows), np.bool_)
        if len(rows):
            same = row_buckets[1:] == row_buckets[:-1]
            shared[1:] = same
            shared[:-1] |= same
            ends = np.flatnonzero(np.append(~same, True))
            shared &= np.repeat(rows[ends] >= self.earlier, np.diff(ends, prepend=-1))
        return shared

    def _meet(
        self, rows: Integers, row_buckets: Integers, row_sketches: Sketches
    ) -> tuple[Integers, Integers, npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        n = len(rows)
        known = [self.leaders.get(i, ()) for i in rows.tolist()] if self.leaders else []
        ends = np.cumsum([len(k) for k in known], dtype=np.int64) if known else np.zeros(n, np.int64)
        flat = np.array([leader for k in known for leader in k], np.int64)
        ids = np.empty(self.limits.max_leaders, np.int64)
        leader_sketches = np.empty((len(ids), row_sketches.shape[1]), np.uint8)
        found, leaders = np.empty(n * MAX_PAIRS, np.int64), np.empty(n * MAX_PAIRS, np.int64)
        absorbed, full = np.empty(n * MAX_PAIRS, np.bool_), np.zeros(n, np.bool_)
        n_found, _ = meet(
            row_buckets,
            row_sketches,
            rows,
            rows < self.earlier,
            flat,
            ends,
            ids,
            np.empty(len(ids), np.int64),
            leader_sketches,
            0,
            np.int64(0),
            self.limits.pair,
            self.limits.absorb,
            found,
            leaders,
            absorbed,
            full,
        )
        return found[:n_found], leaders[:n_found], absorbed[:n_found], full

    def _learn(self, new: Pairs) -> None:
        """Add pairs, and read what documents not met before are compared by."""
        for document, leader in new:
            self.leaders.setdefault(document, []).append(leader)
        for document in {document for document, _ in new}:
            self.leaders[document].sort()
        wanted = sorted({i for pair in new for i in pair} - self.stored)
        self.stored.update(wanted)
        parts, rows, hashes = (self.table.column(c).to_pylist() for c in ("part", "row", "exact_hash"))
        by_part: defaultdict[tuple[bytes, str], list[int]] = defaultdict(list)
        for i in wanted:
            by_part[self.keys[i][:RUN_BYTES], parts[i]].append(i)
        for (_, part), documents in sorted(by_part.items()):
            documents.sort(key=lambda i: rows[i])
            places = [(rows[i], self.record_id(i), hashes[i]) for i in documents]
            read = self.readers.read(self.keys[documents[0]], self.settings, part, places)
            for i, (numbers, minima) in zip(documents, read, strict=True):
                self.store.add(i, np.frombuffer(numbers, np.uint32))
                if minima is not None:
                    self.store.add(~i, np.frombuffer(minima, np.uint32))

    def record_id(self, document: int) -> str:
        return self.keys[document][key_bytes(self.settings) :].decode("utf-8", "surrogatepass")

    def _decide(self) -> None:
        """The greedy: see `survivors`."""
        self.removed.clear()
        self.compared.clear()
        self.estimated = 0
        for document in sorted(self.leaders):
            for leader in self.leaders[document]:
                if leader in self.removed:
                    continue
                similarity = self._similarity(document, leader)
                if similarity is None:
                    continue
                if self.readers.estimated(self.keys[leader]):
                    self.estimated += 1
                else:
                    self.compared.append(similarity)
                if similarity >= self.settings.threshold:
                    self.removed[document] = leader
                    break

    def _similarity(self, document: int, leader: int) -> float | None:
        """None where only an estimate could be made, and `document` has no minima."""
        pair = document, leader
        if pair not in self.similarity:
            estimated = self.readers.estimated(self.keys[leader])
            a, b = self.store.get(~document if estimated else document), self.store.get(leader)
            assert b is not None
            if estimated:
                self.similarity[pair] = None if a is None else equal_share(a, b)
            else:
                assert a is not None
                self.similarity[pair] = float(jaccard(a, b))
        return self.similarity[pair]


def _result(firsts: list[int], task: _Task, run_ids: tuple[str, ...]) -> pa.RecordBatch:
    rows: list[tuple[int, int, float | None, str]] = []
    for i, first in enumerate(firsts):
        if i < task.earlier:
            continue
        kept = task.removed.get(first)
        if kept is not None:
            kind = "near_estimated" if task.readers.estimated(task.keys[kept]) else "near"
            rows.append((i, kept, task.similarity[first, kept], kind))
        elif first != i:
            rows.append((i, first, 1.0, "exact"))
    sizes = Counter(kept for _, kept, _, _ in rows)
    columns: list[list[Any]] = [
        [task.record_id(i) for i, _, _, _ in rows],
        [task.record_id(kept) for _, kept, _, _ in rows],
        [run_ids[run_number(task.keys[kept])] if kept < task.earlier else None for _, kept, _, _ in rows],
        [similarity for _, _, similarity, _ in rows],
        [kind for _, _, _, kind in rows],
        [sizes[kept] + 1 for _, kept, _, _ in rows],
        [None] * len(rows),
    ]
    for column in columns:
        column.append(None)
    columns[-1][-1] = json.dumps(task.counts)
    arrays = [pa.array(values, f.type) for values, f in zip(columns, _RESULT, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_RESULT)
