"""Lines and paragraphs of a text, counted in one pass over its code points, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline import text_tables as t
from pipeline.compiled import njit
from pipeline.text_kernels import flag, string_hash

#: Indices into the counts that `lines` fills. "Lines" are those of str.splitlines.
(
    N_LINES,
    N_VISIBLE_LINES,  # with a character that is not white space
    BULLET_LINES,  # begin with • or -
    REFINEDWEB_BULLET_LINES,  # begin with ● • * or -
    ELLIPSIS_LINES,  # end in ... or …
    SPACED_ELLIPSIS_LINES,  # end in . . .
    N_LINE_COUNTS,
) = range(7)

#: Indices into the counts that `feeds` fills. "Lines" are what line feeds divide, blank ones left out.
(
    N_FULL_LINES,
    TERMINAL_LINES,  # end in terminal punctuation
    SHORT_LINES,  # of at most 30 characters
    LONG_LINES,  # of at least 200 characters
    DUPLICATE_LINES,
    DUPLICATE_LINE_CHARS,
    N_PARAGRAPHS,
    DUPLICATE_PARAGRAPHS,
    DUPLICATE_PARAGRAPH_CHARS,
    N_FEED_COUNTS,
) = range(10)

SHORT_LINE, LONG_LINE = 30, 200


@njit
def lines(codes: Any, table: Any, counts: Any) -> None:
    """Fill `counts`, int64[N_LINE_COUNTS] of zeros. A line's own white space at both ends is not looked at."""
    n, start = len(codes), 0
    while start < n:
        end = start
        while end < n and not flag(codes[end], table) & t.LINE_END:
            end += 1
        a, b = start, end
        while a < b and flag(codes[a], table) & t.SPACE:
            a += 1
        while b > a and flag(codes[b - 1], table) & t.SPACE:
            b -= 1
        counts[N_LINES] += 1
        if a < b:
            counts[N_VISIBLE_LINES] += 1
            first = flag(codes[a], table)
            counts[BULLET_LINES] += first & t.BULLET_GOPHER != 0
            counts[REFINEDWEB_BULLET_LINES] += first & t.BULLET_REFINEDWEB != 0
            last = codes[b - 1]
            if last == 0x2026 or (last == 46 and b - a >= 3 and codes[b - 2] == 46 and codes[b - 3] == 46):
                counts[ELLIPSIS_LINES] += 1
            elif (
                last == 46
                and b - a >= 5
                and codes[b - 2] == 32
                and codes[b - 3] == 46
                and codes[b - 4] == 32
                and codes[b - 5] == 46
            ):
                counts[SPACED_ELLIPSIS_LINES] += 1
        start = end + 1
        if end + 1 < n and codes[end] == 13 and codes[end + 1] == 10:
            start += 1


@njit
def add(key: Any, keys: Any) -> bool:
    """Put `key` into an open-addressing set; whether it was there already."""
    mask = len(keys) - 1
    slot = np.int64(key & np.uint64(mask))
    while keys[slot] != np.uint64(0):
        if keys[slot] == key:
            return True
        slot = (slot + 1) & mask
    keys[slot] = key
    return False


def table_size(n: int) -> int:
    """Slots of a set for up to n keys: a power of two, at least twice n."""
    return 1 << max(4, (2 * n - 1).bit_length())


@njit
def feeds(codes: Any, table: Any, seen_lines: Any, seen_paragraphs: Any, counts: Any) -> None:
    """Fill `counts`, int64[N_FEED_COUNTS] of zeros. Equal lines are found by a 64-bit hash. Blank lines end paragraphs.

    `seen_lines`, `seen_paragraphs`: sets (zeros of uint64) with room for one key per line.
    """
    n = len(codes)
    start, paragraph, paragraph_end = 0, -1, 0
    while start <= n:
        end, first, last = start, -1, 0
        while end < n and codes[end] != 10:
            if not flag(codes[end], table) & t.SPACE:
                first = end if first < 0 else first
                last = end + 1
            end += 1
        if first >= 0:
            length = end - start
            counts[N_FULL_LINES] += 1
            counts[TERMINAL_LINES] += flag(codes[end - 1], table) & t.TERMINAL != 0
            counts[SHORT_LINES] += length <= SHORT_LINE
            counts[LONG_LINES] += length >= LONG_LINE
            if add(string_hash(codes, start, end), seen_lines):
                counts[DUPLICATE_LINES] += 1
                counts[DUPLICATE_LINE_CHARS] += length
            if paragraph < 0:
                paragraph = first if counts[N_PARAGRAPHS] == 0 else start
            paragraph_end = end
        if paragraph >= 0 and (first < 0 or end >= n):
            counts[N_PARAGRAPHS] += 1
            if first >= 0:  # the last one: the text's own white space is no part of it
                paragraph_end = last
            if add(string_hash(codes, paragraph, paragraph_end), seen_paragraphs):
                counts[DUPLICATE_PARAGRAPHS] += 1
                counts[DUPLICATE_PARAGRAPH_CHARS] += paragraph_end - paragraph
            paragraph = -1
        start = end + 1
