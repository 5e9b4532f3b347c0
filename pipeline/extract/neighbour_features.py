"""What stands before and after a block on the page."""

from __future__ import annotations

from typing import Any

from pipeline.compiled import njit
from pipeline.extract import state as s

_OFFSETS = (-1, 1, -2, 2)
NAMES = (
    *(f"at{offset:+}_{name}" for offset in _OFFSETS for name in ("words", "link_density", "same", "sentences")),
    "window_words", "window_link_density", "from_long", "to_long", "long_before_same", "long_after_same",
    "from_heading", "from_h1", "run",
)  # fmt: skip
_N_BESIDE = 16
(
    _WINDOW_WORDS, _WINDOW_LINK_DENSITY, _FROM_LONG, _TO_LONG, _LONG_BEFORE_SAME, _LONG_AFTER_SAME,
    _FROM_HEADING, _FROM_H1, _RUN,
) = range(_N_BESIDE, len(NAMES))  # fmt: skip

NONE = 999  #: a distance to nothing
_REACH = 3


@njit
def neighbours(counts: Any, owner: Any, tag: Any, group: Any, headings: Any, h1: int, out: Any) -> None:
    """Fill float32[len(NAMES), n]; distances are in blocks. `headings`: by tag, whether it is h1 to h6; `h1`: its tag.

    A long block has 15 words or more, less than 30 % of them links.
    """
    n = owner.size
    _beside(counts, group, -1, 0, out)
    _beside(counts, group, 1, 4, out)
    _beside(counts, group, -2, 8, out)
    _beside(counts, group, 2, 12, out)
    long, heading, first_h1 = -1, -1, -1
    for b in range(n):
        words = links = 0
        for i in range(max(b - _REACH, 0), min(b + _REACH + 1, n)):
            words += counts[i, s.WORDS]
            links += counts[i, s.LINK_WORDS]
        out[_WINDOW_WORDS, b] = words
        out[_WINDOW_LINK_DENSITY, b] = links / max(words, 1)
        out[_FROM_LONG, b] = b - long if long >= 0 else NONE
        out[_LONG_BEFORE_SAME, b] = 1 if long >= 0 and group[long] == group[b] else 0
        if _is_long(counts, b):
            long = b
        kind = tag[owner[b]]
        out[_FROM_HEADING, b] = b - heading if heading >= 0 else NONE
        if headings[kind]:
            heading = b
        if kind == h1 and first_h1 < 0:
            first_h1 = b
    long, start = -1, 0
    for b in range(n - 1, -1, -1):
        out[_TO_LONG, b] = long - b if long >= 0 else NONE
        out[_LONG_AFTER_SAME, b] = 1 if long >= 0 and group[long] == group[b] else 0
        if _is_long(counts, b):
            long = b
        out[_FROM_H1, b] = b - first_h1 if first_h1 >= 0 else -NONE
    while start < n:
        end = start + 1
        while end < n and group[end] == group[start]:
            end += 1
        for b in range(start, end):
            out[_RUN, b] = end - start
        start = end


@njit
def _is_long(counts: Any, b: int) -> Any:
    words = counts[b, s.WORDS]
    return words >= 15 and 10 * counts[b, s.LINK_WORDS] < 3 * words


@njit
def _beside(counts: Any, group: Any, offset: int, row: int, out: Any) -> None:
    n = group.size
    for b in range(n):
        i = b + offset
        if 0 <= i < n:
            words = counts[i, s.WORDS]
            out[row, b] = words
            out[row + 1, b] = counts[i, s.LINK_CHARS] / max(counts[i, s.CHARS], 1)
            out[row + 2, b] = 1 if group[i] == group[b] else 0
            out[row + 3, b] = counts[i, s.SENTENCES]
        else:
            out[row, b], out[row + 1, b], out[row + 2, b], out[row + 3, b] = -1, -1, 0, 0
