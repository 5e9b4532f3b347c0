"""Made-up documents of known likeness, and what dedup needs of them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pipeline.dedup import DuplicatesResult, find_duplicates
from pipeline.dedup.signature import signature
from pipeline.recipe import Dedup
from pipeline.shingles import shingle

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
    n = len(documents.texts)

    def priority(i: int) -> tuple[float, int, str]:
        score = documents.scores[i]
        low = float("-inf")
        return (-(low if score is None else score), -len(documents.texts[i].split()), documents.ids[i])

    order = sorted(range(n), key=priority)
    kept: list[int] = []
    removed: dict[str, str] = {}
    for i in order:
        for k in kept:
            if jaccard(documents.texts[i], documents.texts[k], settings) >= settings.threshold:
                removed[documents.ids[i]] = documents.ids[k]
                break
        else:
            kept.append(i)
    return removed
