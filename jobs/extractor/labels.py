"""Soft labels: how much of each block's text is in the main text, by aligning the whole page with it.

Words are those of the scorer: runs of letters and digits, lower case, Chinese and Japanese by character. The alignment
is the longest common subsequence with a price on each stretch, so that it follows the text and does not pick single
words out of menus.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.compiled import njit

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]

WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]|[^\W\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+")
#: Price of a stretch of matching words, in tenths of a match
_GAP, _MATCH = 7, 10
#: Cells (words of the page x words of the main text) that the table may have, one byte each
MAX_CELLS = 600_000_000


def words_of(text: str) -> list[str]:
    return WORD.findall(text.lower())


def overlap(predicted: str, gold: str) -> tuple[float, float, float]:
    """Precision, recall and F1 of the words of one text against another's, each word as often as it occurs."""
    got, want = Counter(words_of(predicted)), Counter(words_of(gold))
    common = sum((got & want).values())
    if not common:
        return 0.0, 0.0, 0.0
    precision, recall = common / sum(got.values()), common / sum(want.values())
    return precision, recall, 2 * precision * recall / (precision + recall)


def align(texts: list[str], gold: str) -> tuple[Floats, Ints] | None:
    """Per block text the share of its words that the main text holds, and their number; None for a page too large.

    A block without words takes the lower of its neighbours' shares.
    """
    wanted = words_of(gold)
    number = {word: i for i, word in enumerate(dict.fromkeys(wanted))}
    page: list[int] = []
    block: list[int] = []
    counts = np.zeros(len(texts), np.int32)
    for b, text in enumerate(texts):
        words = words_of(text)
        counts[b] = len(words)
        for word in words:
            found = number.get(word, -1)
            if found >= 0 or not page or page[-1] >= 0:  # what the main text has nowhere only separates
                page.append(found)
                block.append(b)
    if (len(page) + 1) * (len(wanted) + 1) > MAX_CELLS:
        return None
    matched = np.zeros(len(page), np.bool_)
    goal = np.array([number[word] for word in wanted], np.int32)
    trace = np.empty((len(page), len(goal)), np.uint8)
    _align(np.array(page, np.int32), goal, np.zeros((4, len(goal) + 1), np.int32), trace, matched)
    hits = np.bincount(np.array(block, np.int64)[matched], minlength=len(texts))
    share = (hits / np.maximum(counts, 1)).astype(np.float32)
    return _fill_wordless(share, counts), counts


def _fill_wordless(share: Floats, counts: Ints) -> Floats:
    with_words = np.flatnonzero(counts)
    if len(with_words):
        at = np.searchsorted(with_words, np.arange(len(counts)))
        before, after = with_words[np.maximum(at - 1, 0)], with_words[np.minimum(at, len(with_words) - 1)]
        share = np.where(counts > 0, share, np.minimum(share[before], share[after]))
    return share


_CONTINUES, _FROM_MATCH, _FROM_ABOVE = np.uint8(1), np.uint8(2), np.uint8(4)


@njit
def _align(page: Any, goal: Any, rows: Any, trace: Any, matched: Any) -> None:
    """Set `matched` where a word of the page is in the best alignment. `rows`: int32[4, len(goal) + 1] of zeros."""
    never = -(1 << 30)
    match, best, match_above, best_above = rows[0], rows[1], rows[2], rows[3]
    for j in range(goal.size + 1):
        match[j], match_above[j] = never, never
    for i in range(page.size):
        word = page[i]
        for j in range(goal.size):
            bits = np.uint8(0)
            here = never
            if word == goal[j]:
                here = match_above[j]
                if here >= best_above[j] - _GAP:
                    bits |= _CONTINUES
                else:
                    here = best_above[j] - _GAP
                here += _MATCH
            match[j + 1] = here
            top = best[j]
            if best_above[j + 1] > top:
                top = best_above[j + 1]
                bits |= _FROM_ABOVE
            if here > top:
                top = here
                bits |= _FROM_MATCH
            best[j + 1] = top
            trace[i, j] = bits
        match, match_above = match_above, match
        best, best_above = best_above, best
    i, j, inside = page.size - 1, goal.size - 1, False
    while i >= 0 and j >= 0:
        bits = trace[i, j]
        if inside or bits & _FROM_MATCH:
            matched[i] = True
            inside = bits & _CONTINUES != 0
            i -= 1
            j -= 1
        elif bits & _FROM_ABOVE:
            i -= 1
        else:
            j -= 1


def weights(counts: Ints, gold_words: int) -> Floats:
    """Per block: by its words, scaled so that pages of any length weigh about the same."""
    return np.minimum(3, (counts + 2) / max(30, gold_words)).astype(np.float32)
