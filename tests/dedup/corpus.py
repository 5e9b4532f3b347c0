"""Made-up documents of known likeness, and what dedup needs of them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.dedup import DuplicatesResult, Earlier, find_duplicates
from pipeline.dedup.signature import signature, stored_minima
from pipeline.dedup.verify import comparable
from pipeline.recipe import Dedup
from pipeline.shingles import Hashes, shingle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = (
    "record_id string, lang string, exact_hash string, signature array<bigint>, quality_score double, "
    "n_words bigint, n_chars bigint, part string, row bigint"
)


@dataclass
class Documents:
    """Texts by id; the position in `texts` is the row of part `part-0` or `part-1`."""

    texts: list[str]
    ids: list[str] = field(default_factory=list)
    scores: list[float | None] = field(default_factory=list)
    langs: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ids = self.ids or [f"{i:032x}" for i in range(len(self.texts))]
        self.scores = self.scores or [0.5] * len(self.texts)
        self.langs = self.langs or ["en"] * len(self.texts)

    def rows(self, settings: Dedup) -> list[tuple[Any, ...]]:
        rows = []
        for i, text in enumerate(self.texts):
            shingles = shingle(text, settings)
            numbers = signature(shingles.hashes, settings).tolist() or None
            part, row = f"part-{i % 2}", i // 2
            words = len(text.split())
            rows.append(
                (self.ids[i], self.langs[i], shingles.exact_hash, numbers, self.scores[i], words, len(text), part, row)
            )
        return rows

    def reader(self) -> Reader:
        return Reader({f"part-{k}": self.texts[k::2] for k in (0, 1)})


@dataclass
class Reader:
    """Texts by part, as the caller of dedup gives them; it travels into tasks."""

    parts: dict[str, list[str]]

    def __call__(self, part: str, rows: list[int]) -> list[str]:
        return [self.parts[part][row] for row in rows]


@dataclass(frozen=True)
class Found:
    removed: dict[str, dict[str, Any]]
    counts: dict[str, Any]

    def kept(self, ids: Iterable[str]) -> list[str]:
        return [i for i in ids if i not in self.removed]


def dedup(
    spark: SparkSession,
    documents: Documents,
    settings: Dedup,
    partitions: int = 2,
    shuffle: int | None = None,
    **options: Any,
) -> Found:
    rows = documents.rows(settings)
    if shuffle is not None:
        random.Random(shuffle).shuffle(rows)
    frame = spark.createDataFrame(rows, SCHEMA).repartition(partitions)
    result: DuplicatesResult = find_duplicates(frame, settings, documents.reader(), **options)
    removed = [row.asDict() for row in result.duplicates.collect()]
    result.release()
    found = {row["record_id"]: row for row in removed}
    assert len(found) == len(removed), "a document was removed twice"
    return Found(found, result.counts)


def words(seed: int, n: int, vocabulary: int = 5000) -> list[str]:
    generator = random.Random(seed)
    return [f"w{generator.randrange(vocabulary):x}" for _ in range(n)]


def jaccard(a: str, b: str, settings: Dedup) -> float:
    """Exact Jaccard by the definition, independent of the code under test where n is 5."""
    first, second = (set(_tuples(t, settings.shingle)) for t in (a, b))
    return len(first & second) / len(first | second)


def _tuples(text: str, n: int) -> list[tuple[str, ...]]:
    units = text.lower().split()
    return [tuple(units[i : i + n]) for i in range(max(1, len(units) - n + 1))]


def greedy(documents: Documents, settings: Dedup, pairs: Sequence[tuple[int, int]] | None = None) -> dict[str, str]:
    """removed id -> kept id, by brute force over all pairs: the rule itself."""
    kept: list[int] = []
    removed: dict[str, str] = {}
    for i in order(documents):
        for k in kept:
            if jaccard(documents.texts[i], documents.texts[k], settings) >= settings.threshold:
                removed[documents.ids[i]] = documents.ids[k]
                break
        else:
            kept.append(i)
    return removed


@dataclass
class Stored:
    """(record id, numbers) by part, as an earlier run keeps them: shingle hashes, or minima of signatures."""

    parts: dict[str, list[tuple[str, Hashes]]]

    def __call__(self, part: str, rows: list[int]) -> list[tuple[str, Hashes]]:
        return [self.parts[part][row] for row in rows]


def stored(documents: Documents, settings: Dedup, exact: bool) -> Stored:
    parts: dict[str, list[tuple[str, Hashes]]] = {"part-0": [], "part-1": []}
    for i, (record_id, text) in enumerate(zip(documents.ids, documents.texts, strict=True)):
        hashes = shingle(text, settings)
        numbers = np.frombuffer(comparable(text, settings, hashes.exact_hash, "here")[0], np.uint32)
        if not exact:
            numbers = signature(hashes.hashes, settings)[: stored_minima(settings)]
        parts[f"part-{i % 2}"].append((record_id, numbers))
    return Stored(parts)


def earlier_run(
    spark: SparkSession, documents: Documents, settings: Dedup, run_id: str, *, exact: bool = True, partitions: int = 2
) -> Earlier:
    """`documents` as the survivors of a finished run, with shingle hashes (`exact`) or without."""
    frame = spark.createDataFrame(documents.rows(settings), SCHEMA).repartition(partitions)
    return Earlier(run_id, frame, stored(documents, settings, exact), exact)


def order(documents: Documents) -> list[int]:
    """Positions in the default priority: quality score, words, id."""

    def priority(i: int) -> tuple[float, int, str]:
        score = documents.scores[i]
        return (-(float("-inf") if score is None else score), -len(documents.texts[i].split()), documents.ids[i])

    return sorted(range(len(documents.texts)), key=priority)


def greedy_after(
    earlier: dict[str, Documents], documents: Documents, settings: Dedup
) -> dict[str, tuple[str | None, str]]:
    """removed id -> (kept run, kept id), by brute force: earlier runs' documents first, then the best first."""
    kept: list[tuple[str | None, str, str]] = []
    for run_id in sorted(earlier):
        one = earlier[run_id]
        kept += [(run_id, one.ids[i], one.texts[i]) for i in order(one)]
    removed: dict[str, tuple[str | None, str]] = {}
    for i in order(documents):
        text = documents.texts[i]
        same = [k for k in kept if k[2].split() == text.split()]
        near = [k for k in kept if jaccard(text, k[2], settings) >= settings.threshold]
        if same or near:
            removed[documents.ids[i]] = (same or near)[0][:2]
        else:
            kept.append((None, documents.ids[i], text))
    return removed
