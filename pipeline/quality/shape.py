"""What a text looks like, apart from any recipe's rules: input to the quality score. Measured on the edited text."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline import line_kernels as lk
from pipeline import text_kernels as tk
from pipeline.compiled import njit
from pipeline.line_kernels import add
from pipeline.quality.gopher import ratio
from pipeline.text import Units

BLOCK = 100


def unique_word_frac(units: Units) -> float | None:
    """Distinct words / words in each block of 100 words, averaged, so that length alone does not move it.

    The last block counts if it has 50 words or is the only one. Punctuation is left out.
    """
    counts = np.zeros(2, np.float64)
    _unique(units.hashes, units.sorts, np.zeros(256, np.uint64), counts)
    return ratio(float(counts[0]), float(counts[1]))


def signals(edited: Units, stop_words: tuple[int, int] | None) -> dict[str, Any]:
    """Shares of characters are of those that are not white space; see pipeline/signals.py for each."""
    visible, letters = edited.count(tk.CHUNK_CHARS), edited.count(tk.N_LETTERS)
    return {
        "n_chars": edited.n_chars,
        "n_words": edited.n_words,
        "letter_frac": ratio(letters, visible),
        "upper_frac": ratio(edited.count(tk.N_UPPER), letters),
        "digit_frac": ratio(edited.count(tk.N_DIGITS), visible),
        "punct_frac": ratio(edited.count(tk.N_PUNCTUATION), visible),
        "unique_word_frac": unique_word_frac(edited),
        "stop_word_frac": None if stop_words is None or edited.spaceless else ratio(stop_words[1], edited.n_words),
        "mean_line_words": ratio(edited.n_words, edited.feed_count(lk.N_FULL_LINES)),
        "mean_sentence_words": ratio(edited.n_words, edited.count(tk.N_SENTENCES)),
    }


@njit
def _unique(hashes: Any, sorts: Any, keys: Any, counts: Any) -> None:
    """counts[0] += distinct share of each block, counts[1] += blocks."""
    words, distinct = 0, 0
    for i in range(len(hashes)):
        if not sorts[i] & tk.REAL:
            continue
        words += 1
        distinct += not add(hashes[i], keys)
        if words == BLOCK:
            counts[0] += distinct / words
            counts[1] += 1
            words = 0
            distinct = 0
            keys[:] = 0
    if words >= BLOCK // 2 or (words and counts[1] == 0):
        counts[0] += distinct / words
        counts[1] += 1
