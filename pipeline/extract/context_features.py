"""What the first stage's probabilities say about each other: the features of the second stage, and the cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.compiled import njit
from pipeline.extract import state as s
from pipeline.extract.container_features import IN_WORDS, LEVELS, Layout, steps_to
from pipeline.extract.scan import Blocks

Floats = npt.NDArray[np.float32]

CONTEXT = (
    "p", "p-1", "p+1", "p-2", "p+2", "p-3", "p+3", "mean2", "mean5", "mean10", "expected", "highest", "of_highest",
    "above_it", *(f"level{level}_mean" for level in range(LEVELS)), "group_mean", "from_first", "from_last",
    "kept_before", "kept_after", "kept_total", "kept_share", "core_up", "core_down", "mass_before", "kept_gap_before",
    "kept_gap_after", "chars", "words", "link_density", "tag",
)  # fmt: skip
_P, _BESIDE, _MEANS = 0, 1, 7
_EXPECTED, _HIGHEST, _OF_HIGHEST, _ABOVE_IT, _LEVEL0 = range(10, 15)
(
    _GROUP_MEAN, _FROM_FIRST, _FROM_LAST, _KEPT_BEFORE, _KEPT_AFTER, _KEPT_TOTAL, _KEPT_SHARE, _CORE_UP, _CORE_DOWN,
    _MASS_BEFORE, _GAP_BEFORE, _GAP_AFTER, _CHARS, _WORDS, _LINK_DENSITY, _TAG,
) = range(_LEVEL0 + LEVELS, len(CONTEXT))  # fmt: skip

#: Probabilities are told apart in this many steps when blocks are ranked.
STEPS = 1024
KEPT = 0.4  #: a block this probable counts as kept, for the features
CORE = 0.7  #: the core is the last element that holds this much of the probable words
_NONE = 999


def context(blocks: Blocks, layout: Layout, probability: Floats) -> Floats:
    """float32[len(CONTEXT), n] of the first stage's probabilities; n > 0."""
    n, m = len(blocks.owner), len(blocks.parent)
    out = np.empty((len(CONTEXT), n), np.float32)
    _context(
        probability,
        blocks.counts,
        blocks.owner,
        blocks.parent,
        blocks.tag,
        layout.group,
        layout.inside,
        np.zeros(n + 1),
        np.zeros(n + 1),
        np.zeros((STEPS, 2)),
        np.zeros((n, 2)),
        np.zeros(m),
        np.empty((m, 2), np.int32),
        out,
    )
    return out


def best_cut(
    probability: Floats, words: npt.NDArray[np.int32], floor: float = 0.0, recall: float = 1.0
) -> tuple[float, float]:
    """The probability from which blocks are kept, at least `floor`, and the F1 to be expected of that.

    Of blocks with w words (.5 at least) the expected F1 is 2 sum(kept p w) / (sum(kept w) + sum(all p w)); the cut is
    the best by F-beta with `recall` = the square of beta. Without a block to keep: 1 and 0.
    """
    steps = np.zeros((STEPS, 2))
    threshold, expected = _best_cut(probability, np.ascontiguousarray(words, np.int32), floor, recall, steps)
    return float(threshold), float(expected)


@njit
def _best_cut(probability: Any, words: Any, floor: float, recall: float, steps: Any) -> Any:
    """`steps`: float64[STEPS, 2] of zeros."""
    for b in range(probability.size):
        step, w = min(int(probability[b] * STEPS), STEPS - 1), max(float(words[b]), 0.5)
        steps[step, 0] += w
        steps[step, 1] += w * probability[b]
    return _search(steps, floor, recall)


@njit
def _search(steps: Any, floor: float, recall: float) -> Any:
    """Threshold and expected F1 of the best cut; `steps`: words and probable words by step of probability."""
    probable = 0.0
    for step in range(STEPS):
        probable += steps[step, 1]
    kept = right = best = expected = 0.0
    threshold = 1.0
    for step in range(STEPS - 1, -1, -1):
        if step < floor * STEPS:
            break
        kept += steps[step, 0]
        right += steps[step, 1]
        if kept > 0 and (1 + recall) * right / (kept + recall * probable) > best:
            best = (1 + recall) * right / (kept + recall * probable)
            threshold, expected = step / STEPS, 2 * right / (kept + probable)
    return threshold, expected


@njit
def _context(
    p: Any, counts: Any, owner: Any, parent: Any, tag: Any, group: Any, inside: Any,
    weights: Any, masses: Any, steps: Any, in_group: Any, below: Any, to_core: Any, out: Any,
) -> None:  # fmt: skip
    """Fill `out`. Room to work in, zeros: `weights`, `masses` [n + 1], `steps` [STEPS, 2], `in_group` [n, 2],
    `below` [m], all float64; `to_core` int32[m, 2], of any content."""
    n = p.size
    highest = 0.0
    for b in range(n):
        w = float(counts[b, s.WORDS])
        weights[b + 1] = weights[b] + w
        masses[b + 1] = masses[b] + w * p[b]
        in_group[group[b], 0] += w
        in_group[group[b], 1] += w * p[b]
        below[owner[b]] += w * p[b]
        level, least = min(int(p[b] * STEPS), STEPS - 1), max(w, 0.5)
        steps[level, 0] += least
        steps[level, 1] += least * p[b]
        highest = max(highest, p[b])
    for e in range(parent.size - 1, 0, -1):
        below[parent[e]] += below[e]
    core, enough = 0, CORE * below[0]
    for e in range(1, parent.size):
        if below[e] >= enough:
            core = e
    steps_to(parent, core if below[0] > 0 else 0, to_core)
    _, expected = _search(steps, 0.0, 1.0)
    above = 0.0
    for level in range(STEPS - 1, -1, -1):  # from here on column 0 holds the words of all more probable steps
        own = steps[level, 0]
        steps[level, 0] = above
        above += own
    first, last, kept = n, -1, 0.0
    for b in range(n):
        if p[b] > KEPT:
            first = min(first, b)
            last = b
            kept += counts[b, s.WORDS]
    before = 0.0
    for b in range(n):
        w = counts[b, s.WORDS]
        out[_P, b] = p[b]
        for k in range(3):
            out[_BESIDE + 2 * k, b] = p[b - k - 1] if b - k - 1 >= 0 else -1
            out[_BESIDE + 2 * k + 1, b] = p[b + k + 1] if b + k + 1 < n else -1
        out[_MEANS, b] = _mean(weights, masses, p, b, 2)
        out[_MEANS + 1, b] = _mean(weights, masses, p, b, 5)
        out[_MEANS + 2, b] = _mean(weights, masses, p, b, 10)
        out[_EXPECTED, b] = expected
        out[_HIGHEST, b] = highest
        out[_OF_HIGHEST, b] = p[b] / highest if highest > 0 else 0
        out[_ABOVE_IT, b] = steps[min(int(p[b] * STEPS), STEPS - 1), 0] / max(above, 1.0)
        e = owner[b]
        for level in range(LEVELS):
            out[_LEVEL0 + level, b] = below[e] / max(inside[e, IN_WORDS], 1)
            e = parent[e] if e > 0 else 0
        g = group[b]
        out[_GROUP_MEAN, b] = in_group[g, 1] / in_group[g, 0] if in_group[g, 0] > 0 else p[b]
        out[_FROM_FIRST, b] = b - first if last >= 0 else -_NONE
        out[_FROM_LAST, b] = b - last if last >= 0 else _NONE
        out[_KEPT_BEFORE, b] = before
        if p[b] > KEPT:
            before += w
        out[_KEPT_AFTER, b] = kept - before
        out[_KEPT_TOTAL, b] = kept
        out[_KEPT_SHARE, b] = kept / max(weights[n], 1.0)
        out[_CORE_UP, b] = to_core[owner[b], 0]
        out[_CORE_DOWN, b] = to_core[owner[b], 1]
        out[_MASS_BEFORE, b] = masses[b] / masses[n] if masses[n] > 0 else 0
        out[_CHARS, b] = counts[b, s.CHARS]
        out[_WORDS, b] = w
        out[_LINK_DENSITY, b] = counts[b, s.LINK_CHARS] / max(counts[b, s.CHARS], 1)
        out[_TAG, b] = tag[owner[b]]
    _gaps(p, out)


@njit
def _mean(weights: Any, masses: Any, p: Any, b: int, reach: int) -> Any:
    """Mean probability of the words at most `reach` blocks away."""
    first, end = max(b - reach, 0), min(b + reach + 1, p.size)
    weight = weights[end] - weights[first]
    return (masses[end] - masses[first]) / weight if weight > 0 else p[b]


@njit
def _gaps(p: Any, out: Any) -> None:
    last = -1
    for b in range(p.size):
        out[_GAP_BEFORE, b] = b - last if last >= 0 else _NONE
        if p[b] > KEPT:
            last = b
    last = -1
    for b in range(p.size - 1, -1, -1):
        out[_GAP_AFTER, b] = last - b if last >= 0 else _NONE
        if p[b] > KEPT:
            last = b
