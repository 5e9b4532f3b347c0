"""Gopher repetition (Rae et al. 2021, table A1) as datatrove's gopher_repetition_filter.py measures it; rules.md 3.2.

Departures from that reference:
- Lines and paragraphs without a visible character are neither duplicates nor counted; a line of spaces also ends a
  paragraph. (There, text spaced by lines of blanks is rejected as repetitive.)
- Equal lines, paragraphs and n-grams are found by 64-bit hashes of their words, so "ab c" and "a bc" differ, which the
  reference joins without spaces.
- Empty text has null signals (there: ZeroDivisionError or a reason of its own).
- Above MAX_WORDS words, n-grams are measured in windows spread evenly over the whole text; that bounds memory.
Kept as it is there: a top n-gram may occur once, so a text of some 35 words can fail a top n-gram rule.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline import line_kernels as lk
from pipeline import text_kernels as tk
from pipeline.compiled import njit
from pipeline.line_kernels import add
from pipeline.quality.gopher import ratio
from pipeline.text import Units
from pipeline.text_kernels import finish

TOP_N = (2, 3, 4)
DUPLICATE_N = (5, 6, 7, 8, 9, 10)
MAX_WORDS, WINDOW = 1_000_000, 10_000

_BASE = np.uint64(0xD6E8FEB86659FD93)


def duplicate_paragraph_frac(units: Units) -> float | None:
    """Paragraphs equal to an earlier one / paragraphs."""
    return ratio(units.feed_count(lk.DUPLICATE_PARAGRAPHS), units.feed_count(lk.N_PARAGRAPHS))


def duplicate_paragraph_char_frac(units: Units) -> float | None:
    """Characters of those / characters of the text."""
    return ratio(units.feed_count(lk.DUPLICATE_PARAGRAPH_CHARS), units.n_chars)


def duplicate_line_frac(units: Units) -> float | None:
    """Lines equal to an earlier one / lines."""
    return ratio(units.feed_count(lk.DUPLICATE_LINES), units.feed_count(lk.N_FULL_LINES))


def duplicate_line_char_frac(units: Units) -> float | None:
    """Characters of those / characters of the text."""
    return ratio(units.feed_count(lk.DUPLICATE_LINE_CHARS), units.n_chars)


def n_gram_char_fracs(units: Units) -> dict[int, float | None]:
    """Characters / characters of the text, by n; null for an empty text.

    For TOP_N those of the most frequent n-gram, joined by spaces, times its count (of several the first met); for
    DUPLICATE_N those of n-grams met before, none overlapping.
    """
    hashes, lengths, chars = _sample(units)
    if not chars:
        return dict.fromkeys((*TOP_N, *DUPLICATE_N))
    n = len(hashes)
    prefixes, lengths_to = np.empty(n + 1, np.uint64), np.empty(n + 1, np.int64)
    _accumulate(hashes, lengths, prefixes, lengths_to)
    size = lk.table_size(n)
    keys, counts, firsts = np.empty(size, np.uint64), np.empty(size, np.int32), np.empty(size, np.int32)
    found = {k: _top(prefixes, lengths_to, k, keys, counts, firsts) for k in TOP_N}
    found |= {k: _duplicates(prefixes, lengths_to, k, keys) for k in DUPLICATE_N}
    return {k: int(v) / chars for k, v in found.items()}


def signals(units: Units) -> dict[str, Any]:
    n_grams = n_gram_char_fracs(units)
    return {
        "gopher_rep_dup_para_frac": duplicate_paragraph_frac(units),
        "gopher_rep_dup_para_char_frac": duplicate_paragraph_char_frac(units),
        "gopher_rep_dup_line_frac": duplicate_line_frac(units),
        "gopher_rep_dup_line_char_frac": duplicate_line_char_frac(units),
        **{f"gopher_rep_top_{n}_gram_char_frac": n_grams[n] for n in TOP_N},
        **{f"gopher_rep_dup_{n}_gram_char_frac": n_grams[n] for n in DUPLICATE_N},
    }


def _sample(units: Units) -> tuple[tk.Hashes, tk.Positions, float]:
    """Word hashes, word lengths, and the characters of the text that they stand for."""
    lengths = units.ends - units.starts
    n = len(units.hashes)
    if n <= MAX_WORDS:
        return units.hashes, lengths, units.n_chars
    starts = np.linspace(0, n - WINDOW, MAX_WORDS // WINDOW).astype(np.int64)
    chosen = (starts[:, None] + np.arange(WINDOW)).ravel()
    return units.hashes[chosen], lengths[chosen], units.n_chars * len(chosen) / n


@njit
def _accumulate(hashes: Any, lengths: Any, prefixes: Any, lengths_to: Any) -> None:
    prefixes[0] = 0
    lengths_to[0] = 0
    for i in range(len(hashes)):
        prefixes[i + 1] = prefixes[i] * _BASE + hashes[i]
        lengths_to[i + 1] = lengths_to[i] + lengths[i]


@njit
def _power(n: int) -> Any:
    power = np.uint64(1)
    for _ in range(n):
        power *= _BASE
    return power


@njit
def _top(prefixes: Any, lengths_to: Any, n: int, keys: Any, counts: Any, firsts: Any) -> int:
    """Characters of the most frequent n-gram times its count; of several the one that is met first."""
    keys[:] = 0
    mask, power = len(keys) - 1, _power(n)
    best, best_first = 0, 0
    for i in range(len(prefixes) - n):
        key = finish(prefixes[i + n] - prefixes[i] * power)
        slot = np.int64(key & np.uint64(mask))
        while keys[slot] != np.uint64(0) and keys[slot] != key:
            slot = (slot + 1) & mask
        if keys[slot] == np.uint64(0):
            keys[slot] = key
            counts[slot] = 0
            firsts[slot] = i
        counts[slot] += 1
        if counts[slot] > best or (counts[slot] == best and firsts[slot] < best_first):
            best = counts[slot]
            best_first = firsts[slot]
    return best * (lengths_to[best_first + n] - lengths_to[best_first] + n - 1) if best else 0


@njit
def _duplicates(prefixes: Any, lengths_to: Any, n: int, keys: Any) -> int:
    """Characters of n-grams that were met before: after one, the scan goes on behind it."""
    keys[:] = 0
    power = _power(n)
    chars, i = 0, 0
    while i < len(prefixes) - n:
        if add(finish(prefixes[i + n] - prefixes[i] * power), keys):
            chars += lengths_to[i + n] - lengths_to[i]
            i += n
        else:
            i += 1
    return chars
