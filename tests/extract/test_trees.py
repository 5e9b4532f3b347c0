"""Trees evaluated by masks give what walking them gives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.extractor.boosting import Boosting, trees_of
from pipeline.extract.trees import MAX_LEAVES, evaluate

N_FEATURES = 6
values = st.sampled_from([-2.0, -1.0, -0.5, 0.0, 0.25, 0.1, 1.0, 3.0])
PLAIN = Boosting(0, MAX_LEAVES, 0.1, floor=-1e9)


@st.composite
def trees(draw: st.DrawFn) -> dict[str, Any]:
    """A tree as LightGBM tells it, of up to MAX_LEAVES leaves and of any shape."""
    left = draw(st.integers(1, MAX_LEAVES))
    return grow(draw, left)


def grow(draw: st.DrawFn, leaves: int) -> dict[str, Any]:
    if leaves == 1:
        return {"leaf_value": draw(values)}
    share = draw(st.integers(1, leaves - 1))
    return {
        "split_feature": draw(st.integers(0, N_FEATURES - 1)),
        "threshold": draw(values),
        "decision_type": "<=",
        "missing_type": "None",
        "left_child": grow(draw, share),
        "right_child": grow(draw, leaves - share),
    }


def walked(node: dict[str, Any], row: np.ndarray) -> float:
    while "split_feature" in node:
        node = node["left_child" if float(row[node["split_feature"]]) <= node["threshold"] else "right_child"]
    return float(node["leaf_value"])


def dump(forest: list[dict[str, Any]]) -> dict[str, Any]:
    return {"tree_info": [{"tree_structure": tree} for tree in forest]}


@settings(max_examples=60, deadline=None)
@given(st.lists(trees(), min_size=1, max_size=5), st.integers(0, 200), st.integers(0, 2**32 - 1))
def test_masks_find_the_leaf_that_walking_finds(forest: list[dict[str, Any]], n: int, seed: int) -> None:
    choice = np.array([-3, -2, -1, -0.5, -0.25, 0, 0.1, 0.25, 1, 3, 7], np.float32)
    columns = np.random.default_rng(seed).choice(choice, (N_FEATURES, n)).astype(np.float32)
    expected = [np.float32(sum(np.float32(walked(tree, row)) for tree in forest)) for row in columns.T]
    assert evaluate(trees_of(dump(forest), PLAIN), columns).tolist() == expected


def test_a_float32_falls_on_the_side_of_a_float64_threshold_that_it_is_on() -> None:
    tree = {"split_feature": 0, "threshold": 0.1, "decision_type": "<=", "missing_type": "None",
            "left_child": {"leaf_value": 1.0}, "right_child": {"leaf_value": 2.0}}  # fmt: skip
    tenth = np.float32(0.1)  # more than 0.1
    columns = np.array([[np.nextafter(tenth, np.float32(0)), tenth]], np.float32)
    assert evaluate(trees_of(dump([tree]), PLAIN), columns).tolist() == [1, 2]


def test_a_sure_block_is_left_alone_and_the_others_do_not_notice() -> None:
    def tree(low: float, high: float) -> dict[str, Any]:
        return {"split_feature": 0, "threshold": 0.0, "decision_type": "<=", "missing_type": "None",
                "left_child": {"leaf_value": low}, "right_child": {"leaf_value": high}}  # fmt: skip

    forest = dump([tree(-4, 1), tree(9, 1), tree(9, 1)])
    columns = np.array([np.tile([-1, 1, 1], 100)], np.float32)
    whole = evaluate(trees_of(forest, PLAIN), columns)
    early = evaluate(trees_of(forest, replace(PLAIN, stops=(1,), floor=-3.0)), columns)
    assert whole.tolist() == [14, 3, 3] * 100
    assert early.tolist() == [-4, 3, 3] * 100


def test_a_split_that_masks_cannot_hold_is_refused() -> None:
    tree = {"split_feature": 0, "threshold": "1||2", "decision_type": "==", "missing_type": "None"}
    with pytest.raises(ValueError, match="=="):
        trees_of(dump([tree]), PLAIN)
