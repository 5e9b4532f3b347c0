"""What a block's surroundings in the tree hold: blocks of the same make, its ancestors, the page's best container."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.compiled import njit
from pipeline.extract import state as s
from pipeline.extract.scan import Blocks
from pipeline.line_kernels import table_size

Ints = npt.NDArray[np.int32]

GROUP_NAMES = (
    "copies", "group_blocks", "group_words", "group_mean", "group_link_density", "group_share", "group_sentences",
    "group_spread", "siblings", "sibling_words",
)  # fmt: skip
(
    _COPIES, _BLOCKS, _WORDS, _MEAN, _LINK_DENSITY, _SHARE, _SENTENCES, _SPREAD, _SIBLINGS, _SIBLING_WORDS,
) = range(len(GROUP_NAMES))  # fmt: skip

LEVELS = 5  #: the owner and four ancestors
_OF_LEVEL = ("share", "link_density", "blocks", "sentences", "mean")
LEVEL_NAMES = tuple(f"level{level}_{name}" for level in range(LEVELS) for name in _OF_LEVEL)

TOP_NAMES = ("top_up", "top_down", "top_share", "top_place", "top_link_density", "top_depth")
_TOP_UP, _TOP_DOWN, _TOP_SHARE, _TOP_PLACE, _TOP_LINK_DENSITY, _TOP_DEPTH = range(len(TOP_NAMES))

#: Columns of `Layout.inside`
IN_WORDS, IN_LINK_WORDS, IN_BLOCKS, IN_SENTENCES = range(4)
_PRIME = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xBF58476D1CE4E5B9)
_31 = np.uint64(31)


@dataclass(frozen=True, slots=True)
class Layout:
    """What both stages of the model look at beyond the blocks: made once per page."""

    group: Ints  #: [n] first block of the same make: owner, parent and grandparent of equal signature
    inside: Ints  #: [m, 4] sums over the blocks below each element


def layout(blocks: Blocks) -> Layout:
    n, m = len(blocks.owner), len(blocks.parent)
    group, inside = np.empty(n, np.int32), np.zeros((m, 4), np.int32)
    room = np.full(table_size(n), -1, np.int32)
    _layout(blocks.counts, blocks.owner, blocks.parent, blocks.signature, np.empty(n, np.uint64), room, group, inside)
    return Layout(group, inside)


@njit
def _layout(
    counts: Any, owner: Any, parent: Any, signature: Any, keys: Any, table: Any, group: Any, inside: Any
) -> None:
    """Fill `group` and `inside`; `keys` uint64[n] and `table` int32[table_size(n)] of -1 are room to work in."""
    for b in range(owner.size):
        e = owner[b]
        key = signature[e]
        inside[e, IN_WORDS] += counts[b, s.WORDS]
        inside[e, IN_LINK_WORDS] += counts[b, s.LINK_WORDS]
        inside[e, IN_BLOCKS] += 1
        inside[e, IN_SENTENCES] += counts[b, s.SENTENCES]
        for _ in range(2):
            e = parent[e] if e > 0 else 0
            key = (key ^ (key >> _31)) * _PRIME + signature[e]
        keys[b] = (key ^ (key >> _31)) * _MIX
    first_alike(keys, table, group)
    for e in range(parent.size - 1, 0, -1):
        for column in range(4):
            inside[parent[e], column] += inside[e, column]


@njit
def first_alike(keys: Any, table: Any, first: Any) -> None:
    """For each of uint64[n] `keys` the index of the first that equals it; `table` int32 of -1, a power of two."""
    mask = table.size - 1
    for i in range(keys.size):
        key = keys[i]
        slot = np.int64((key ^ (key >> _31)) & np.uint64(mask))
        while table[slot] >= 0 and keys[table[slot]] != key:
            slot = (slot + 1) & mask
        if table[slot] < 0:
            table[slot] = i
        first[i] = table[slot]


@njit
def groups(counts: Any, owner: Any, parent: Any, alike: Any, group: Any, sums: Any, next_to: Any, out: Any) -> None:
    """Fill float32[len(GROUP_NAMES), n]. `alike`: first block of the same text.

    Room to work in: `sums` int32[n, 6] and `next_to` int32[m, 2], zeros.
    """
    n, words = owner.size, 0
    for b in range(n):
        g, w = group[b], counts[b, s.WORDS]
        words += w
        sums[g, 0] += 1
        sums[g, 1] += w
        sums[g, 2] += counts[b, s.LINK_WORDS]
        sums[g, 3] += counts[b, s.SENTENCES]
        sums[g, 4] = b
        sums[alike[b], 5] += 1
        above = parent[owner[b]] if owner[b] > 0 else 0
        next_to[above, 0] += 1
        next_to[above, 1] += w
    for b in range(n):
        g = group[b]
        in_group = max(sums[g, 1], 1)
        out[_COPIES, b] = sums[alike[b], 5]
        out[_BLOCKS, b] = sums[g, 0]
        out[_WORDS, b] = sums[g, 1]
        out[_MEAN, b] = sums[g, 1] / sums[g, 0]
        out[_LINK_DENSITY, b] = sums[g, 2] / in_group
        out[_SHARE, b] = sums[g, 1] / max(words, 1)
        out[_SENTENCES, b] = sums[g, 3] / in_group
        out[_SPREAD, b] = (sums[g, 4] - g + 1) / n
        above = parent[owner[b]] if owner[b] > 0 else 0
        out[_SIBLINGS, b] = next_to[above, 0]
        out[_SIBLING_WORDS, b] = next_to[above, 1]


@njit
def levels(owner: Any, parent: Any, inside: Any, out: Any) -> None:
    """Fill float32[len(LEVEL_NAMES), n]: what the owner and four ancestors hold; above the root is the root again."""
    for b in range(owner.size):
        e = owner[b]
        for level in range(LEVELS):
            words, blocks = max(inside[e, IN_WORDS], 1), max(inside[e, IN_BLOCKS], 1)
            out[5 * level, b] = inside[e, IN_WORDS] / max(inside[0, IN_WORDS], 1)
            out[5 * level + 1, b] = inside[e, IN_LINK_WORDS] / words
            out[5 * level + 2, b] = inside[e, IN_BLOCKS]
            out[5 * level + 3, b] = inside[e, IN_SENTENCES] / words
            out[5 * level + 4, b] = inside[e, IN_WORDS] / blocks
            e = parent[e] if e > 0 else 0


@njit
def top(
    counts: Any, owner: Any, parent: Any, tag: Any, depth: Any, inside: Any, p: int, points: Any, steps: Any, out: Any
) -> None:
    """Fill float32[len(TOP_NAMES), n]: where each block stands to the element with most running text around it.

    Text in long blocks that are no links gives points to its element (for `p`, a tag, to the one around it) and, less
    by .6 at each level, to three more. Room to work in: `points` float64[m] of zeros, `steps` int32[m, 2].
    """
    for b in range(owner.size):
        words, links = counts[b, s.WORDS], counts[b, s.LINK_WORDS]
        if words < 8 or 2 * links >= words:
            continue
        value = min(counts[b, s.SENTENCES], words / 4) + 0.5 * counts[b, s.COMMAS] + words / 25
        value *= 1 - links / words
        e = owner[b]
        if tag[e] == p and e > 0:
            e = parent[e]
        for _ in range(4):
            points[e] += value
            value *= 0.6
            if e == 0:
                break
            e = parent[e]
    best = 0
    for e in range(1, points.size):
        if points[e] > points[best]:
            best = e
    steps_to(parent, best, steps)
    first, last = owner.size, -1
    for b in range(owner.size):
        if steps[owner[b], 1] == 0:
            first = min(first, b)
            last = b
    words = max(inside[best, IN_WORDS], 1)
    for b in range(owner.size):
        out[_TOP_UP, b] = steps[owner[b], 0]
        out[_TOP_DOWN, b] = steps[owner[b], 1]
        out[_TOP_SHARE, b] = inside[best, IN_WORDS] / max(inside[0, IN_WORDS], 1)
        out[_TOP_PLACE, b] = min(b - first, 0) + max(b - last, 0)
        out[_TOP_LINK_DENSITY, b] = inside[best, IN_LINK_WORDS] / words
        out[_TOP_DEPTH, b] = depth[best]


@njit
def steps_to(parent: Any, goal: int, steps: Any) -> None:
    """Fill int32[m, 2]: levels up from each element to an ancestor-or-self of `goal`, and from there down to it."""
    for e in range(parent.size):
        steps[e, 0] = -1
    e, down = goal, 0
    while True:
        steps[e, 0], steps[e, 1] = 0, down
        if e == 0:
            break
        e = parent[e]
        down += 1
    for e in range(1, parent.size):
        if steps[e, 0] < 0:
            steps[e, 0], steps[e, 1] = steps[parent[e], 0] + 1, steps[parent[e], 1]
