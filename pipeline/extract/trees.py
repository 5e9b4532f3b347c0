"""Boosted regression trees over the blocks of a page, in machine code without a branch per node.

A tree of up to 32 leaves is evaluated as in QuickScorer (Lucchese et al. 2015, SIGIR): every node whose test fails
strikes the leaves of its left side off a bit mask, and the lowest bit left is the leaf. So the order of nodes is free
and one node's test runs over a row of blocks in vector instructions; that all nodes are tested costs less than finding
the path. Comparisons are exact and each block's sum is taken tree by tree: a score depends on its block alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.compiled import njit

Floats = npt.NDArray[np.float32]

#: Blocks per pass: a whole number of vector registers
WIDTH = 64
MAX_LEAVES = 32
_ALL = np.uint32(0xFFFFFFFF)
#: (b * _DE_BRUIJN) >> 27 is a number of its own for each of the 32 powers of two b
_DE_BRUIJN = np.uint32(0x077CB531)
_27 = np.uint32(27)


@dataclass(frozen=True, slots=True)
class Trees:
    """T trees of N nodes in all; a score is `base` plus one leaf per tree."""

    feature: npt.NDArray[np.int32]  #: [N] row of the features
    threshold: Floats  #: [N] the test is `feature <= threshold`
    mask: npt.NDArray[np.uint32]  #: [N] leaves that stay when the test fails; leaf i, from the left, is bit i
    start: npt.NDArray[np.int32]  #: [T + 1] first node of each tree
    leaf: Floats  #: [T, 32] in the order of `leaf_slot`
    stop: npt.NDArray[np.int32]  #: numbers of trees after which sure blocks are left alone; the last is T
    base: float
    floor: float  #: a block whose score is below it at a stop keeps that score


def leaf_slot(leaf: int) -> int:
    """Where the value of leaf `leaf` (from the left, 0 to 31) lies in a row of `Trees.leaf`."""
    return ((int(_DE_BRUIJN) << leaf) & 0xFFFFFFFF) >> 27


def evaluate(trees: Trees, columns: Floats) -> Floats:
    """Raw scores, one per block, of features float32[F, n]."""
    n = columns.shape[1]
    scores = np.full(n, trees.base, np.float32)
    _evaluate(
        columns,
        trees.feature,
        trees.threshold,
        trees.mask,
        trees.start,
        trees.leaf,
        trees.stop,
        np.float32(trees.floor),
        np.arange(n, dtype=np.int32),
        np.zeros((columns.shape[0], WIDTH), np.float32),
        np.zeros(WIDTH, np.uint32),
        np.zeros(WIDTH, np.float32),
        scores,
    )
    return scores


@njit
def _evaluate(
    columns: Any, feature: Any, threshold: Any, mask: Any, start: Any, leaf: Any, stop: Any, floor: Any,
    alive: Any, x: Any, left: Any, sums: Any, scores: Any,
) -> None:  # fmt: skip
    """Add to `scores`. Room to work in: `alive` int32[n] = 0 ... n-1, `x` [F, WIDTH], `left` and `sums` [WIDTH]."""
    count, first = alive.size, 0
    for segment in range(stop.size):
        last = stop[segment]
        for begin in range(0, count, WIDTH):
            width = min(WIDTH, count - begin)
            for f in range(columns.shape[0]):
                for i in range(width):
                    x[f, i] = columns[f, alive[begin + i]]
            for i in range(width):
                sums[i] = scores[alive[begin + i]]
            for tree in range(first, last):
                _add_tree(x, feature, threshold, mask, start[tree], start[tree + 1], leaf[tree], left, sums)
            for i in range(width):
                scores[alive[begin + i]] = sums[i]
        first, kept = last, 0
        for i in range(count):
            if not scores[alive[i]] < floor:
                alive[kept] = alive[i]
                kept += 1
        count = kept


@njit
def _add_tree(
    x: Any, feature: Any, threshold: Any, mask: Any, begin: int, end: int, leaf: Any, left: Any, sums: Any
) -> None:
    """One tree's leaves onto `sums`. Works on all WIDTH places: those without a block hold what nobody reads."""
    for i in range(WIDTH):
        left[i] = _ALL
    for node in range(begin, end):
        row, bound, kept = x[feature[node]], threshold[node], mask[node]
        for i in range(WIDTH):
            left[i] &= kept if row[i] > bound else _ALL
    for i in range(WIDTH):
        lowest = left[i] & (~left[i] + np.uint32(1))
        slot = np.uint32(np.uint32(lowest) * _DE_BRUIJN) >> _27
        sums[i] += leaf[slot]
