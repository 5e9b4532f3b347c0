from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.report.counting import Breakdown, Lengths, Sample, bucket, skew

lengths = st.lists(st.integers(0, 3_000_000), min_size=1, max_size=200)


def _of(values: list[int]) -> Lengths:
    result = Lengths()
    result.add(np.array(values, np.int64))
    return result


@given(lengths, st.integers(0, 200))
def test_lengths_do_not_depend_on_the_split(values: list[int], cut: int) -> None:
    whole, halves = _of(values), _of(values[:cut])
    halves.update(_of(values[cut:]))
    assert whole.buckets() == halves.buckets()
    assert (whole.n, whole.total) == (halves.n, halves.total) == (len(values), sum(values))
    for percent in (1, 50, 95, 99, 100):
        nearest_rank = sorted(values)[max(1, -(-len(values) * percent // 100)) - 1]
        assert whole.percentile(percent) == halves.percentile(percent) == nearest_rank


@pytest.mark.parametrize(("length", "expected"), [(0, 0), (1, 0), (2, 1), (127, 6), (128, 7), (255, 7), (256, 8)])
def test_bucket(length: int, expected: int) -> None:
    assert bucket(length) == expected


def test_skew_is_0_for_the_same_shape_and_1_for_nothing_in_common() -> None:
    assert skew(_of([1, 2, 200]), _of([1, 1, 2, 2, 200, 200])) == pytest.approx(0)
    assert skew(_of([1, 1]), _of([100, 90])) == pytest.approx(1)
    # buckets (1/2, 1/2) and (1, 0): JS divergence = H(3/4, 1/4) - H(1/2, 1/2) / 2
    expected = (-(0.75 * np.log2(0.75) + 0.25 * np.log2(0.25)) - 0.5) ** 0.5
    assert skew(_of([1, 2]), _of([1])) == pytest.approx(expected)
    assert skew(_of([1]), Lengths()) is None


@given(st.permutations(range(60)), st.integers(1, 7))
def test_a_sample_is_the_same_in_any_order_and_split(order: list[int], size: int) -> None:
    straight, mixed = Sample(size), Sample(size)
    straight.add("quality/x", [f"{i:032x}" for i in range(60)], 0, range(60))
    for i in order:
        mixed.add("quality/x", [f"{i:032x}"], 0, [i])
    assert straight.chosen() == mixed.chosen()
    assert len(straight.chosen()["quality/x"]) == size


def test_samples_of_two_reasons_are_chosen_apart() -> None:
    sample = Sample(5)
    for key in ("a/b", "a/c"):
        sample.add(key, [f"{i:032x}" for i in range(500)], 0, range(500))
    chosen = sample.chosen()
    assert [i for i, _ in chosen["a/b"]] != [i for i, _ in chosen["a/c"]]


def test_breakdown_folds_the_rare_and_loses_nothing() -> None:
    breakdown = Breakdown(2, cap=10)
    dice = random.Random(1)
    names = [f"h{min(99, int(dice.paretovariate(1)))}" for _ in range(2000)] + [None] * 7
    for start in range(0, len(names), 100):
        chunk = names[start : start + 100]
        breakdown.add(pa.array(chunk, pa.string()), np.ones((len(chunk), 2), np.int64))
    total = sum(row[0] for row in breakdown.rows.values()) + breakdown.others[0]
    assert total == len(names)
    assert breakdown.folded > 0
    assert len(breakdown.rows) <= 20
    assert breakdown.ranked(0)[0] == ("h1", pytest.approx(np.array([names.count("h1")] * 2)))
