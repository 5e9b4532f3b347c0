"""Dedup through its public door: who is removed, by whom, and why."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from pipeline.recipe import Dedup
from tests.dedup.corpus import Documents, dedup, greedy, jaccard, words

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: 40 bands of 2 rows: what is similar meets in some bucket for certain (0.36^40), so brute force is the truth.
CERTAIN = Dedup(permutations=80, bands=40, rows=2)


def edit(text: list[str], n: int, seed: int) -> list[str]:
    generator = random.Random(seed)
    out = list(text)
    for at in generator.sample(range(len(text)), n):
        out[at] = f"x{seed}_{at}"
    return out


def trees(seed: int, n: int, size: int = 80) -> Documents:
    """Documents grown from earlier ones by small edits: many pairs near the threshold, chains and stars."""
    generator = random.Random(seed)
    texts: list[list[str]] = []
    for i in range(n):
        if not texts or generator.random() < 0.15:
            texts.append(words(seed * 1000 + i, size))
        else:
            texts.append(edit(generator.choice(texts), generator.randint(0, 3), seed * 1000 + i))
    scores: list[float | None] = [generator.choice([0.1, 0.5, 0.9, None]) for _ in texts]
    return Documents([" ".join(t) for t in texts], scores=scores)


@pytest.mark.parametrize("seed", [1, 2])
def test_survivors_are_those_of_the_greedy_over_all_pairs(spark: SparkSession, seed: int) -> None:
    documents = trees(seed, 300)
    truth = greedy(documents, CERTAIN)
    found = dedup(spark, documents, CERTAIN)
    assert {i: row["kept_id"] for i, row in found.removed.items()} == truth
    assert found.counts["rounds"] >= 1
    text = dict(zip(documents.ids, documents.texts, strict=True))
    for i, row in found.removed.items():
        similarity = jaccard(text[i], text[row["kept_id"]], CERTAIN)
        assert row["similarity"] == pytest.approx(similarity)
        assert (row["kind"] == "exact") == (text[i] == text[row["kept_id"]])
        assert row["cluster_size"] == 1 + sum(r["kept_id"] == row["kept_id"] for r in found.removed.values())
