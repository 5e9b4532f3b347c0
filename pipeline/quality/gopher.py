"""Gopher quality (Rae et al. 2021, appendix A) as datatrove's gopher_quality_filter.py measures it; rules.md 3.1.

Departures from that reference:
- No words, no lines: a ratio is null and its rule does not apply; gopher_short_doc ends such a text.
- Mean word length is null where most letters are of a script written without spaces: there a word is one letter.
- Stop words are those of the document's language, English keeping the eight words; null where there is no list. In
  languages without spaces they are looked for as substrings, up to STOP_WORD_CAP of them.
- A bound of 0 is a bound (in the reference it switches a rule off).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline import line_kernels as lk
from pipeline import text_kernels as tk
from pipeline.compiled import njit
from pipeline.quality.word_lists import SPACELESS_LANGUAGES, StopWords
from pipeline.text import Units
from pipeline.text_kernels import lookup

STOP_WORD_CAP = 20


def ratio(part: float, whole: float) -> float | None:
    """part / whole, or null where there is nothing to divide by."""
    return part / whole if whole else None


def words(units: Units) -> int:
    """Words with at least one character outside the punctuation set."""
    return units.n_words


def mean_word_length(units: Units) -> float | None:
    """Characters per word, of the same words."""
    return None if units.spaceless else ratio(units.count(tk.REAL_WORD_CHARS), units.n_words)


def hash_ratio(units: Units) -> float | None:
    """'#' in the text / words, punctuation counted as words."""
    return ratio(units.text.count("#"), units.count(tk.N_WORDS))


def ellipsis_ratio(units: Units) -> float | None:
    """'...' and '…' in the text / words, punctuation counted as words."""
    return ratio(units.text.count("...") + units.text.count("…"), units.count(tk.N_WORDS))


def bullet_lines_frac(units: Units) -> float | None:
    """Lines whose first visible character is • or - / lines (blank ones count, as in the reference)."""
    return ratio(units.line_count(lk.BULLET_LINES), units.line_count(lk.N_LINES))


def ellipsis_lines_frac(units: Units) -> float | None:
    """Lines whose visible end is ... or … / lines."""
    return ratio(units.line_count(lk.ELLIPSIS_LINES), units.line_count(lk.N_LINES))


def alpha_words_frac(units: Units) -> float | None:
    """Words with at least one letter / words, punctuation counted as words."""
    return ratio(units.count(tk.N_ALPHA_WORDS), units.count(tk.N_WORDS))


def count_stop_words(units: Units, lang: str, stop_words: StopWords | None) -> tuple[int, int] | None:
    """(distinct stop words as the list writes them, occurrences in any case), null without a list."""
    if stop_words is None:
        return None
    if lang in SPACELESS_LANGUAGES:
        found = 0
        for word in stop_words.words:
            found += word in units.text
            if found == STOP_WORD_CAP:
                break
        return found, found
    counts = np.zeros(2, np.int64)
    seen = np.zeros(len(stop_words.words), np.uint8)
    _count_stop_words(units.hashes, stop_words.keys, stop_words.ids, seen, counts)
    return int(counts[0]), int(counts[1])


def signals(units: Units, stop_words: tuple[int, int] | None) -> dict[str, Any]:
    return {
        "gopher_words": words(units),
        "gopher_mean_word_length": mean_word_length(units),
        "gopher_hash_ratio": hash_ratio(units),
        "gopher_ellipsis_ratio": ellipsis_ratio(units),
        "gopher_bullet_lines_frac": bullet_lines_frac(units),
        "gopher_ellipsis_lines_frac": ellipsis_lines_frac(units),
        "gopher_alpha_words_frac": alpha_words_frac(units),
        "gopher_stop_words": None if stop_words is None else stop_words[0],
    }


@njit
def _count_stop_words(hashes: Any, keys: Any, ids: Any, seen: Any, counts: Any) -> None:
    for key in hashes:
        slot = lookup(key, keys)
        if slot >= 0:
            counts[1] += 1
            if ids[slot] & 3 == 0 and not seen[ids[slot] >> 2]:
                seen[ids[slot] >> 2] = 1
                counts[0] += 1
