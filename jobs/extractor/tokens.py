"""What the tokens in class and id attributes are worth: how often the text below them is kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.compiled import njit
from pipeline.extract.features import TokenScores, token_scores
from pipeline.extract.scan import Blocks

Floats = npt.NDArray[np.float64]

_PRIOR = 1.5  #: pages' worth of text kept and dropped that every token begins with
_LIMIT = 3.5
MIN_SITES = 8


@dataclass(frozen=True, slots=True)
class Shares:
    """Of one page, per token: how much of the page's kept and of its dropped text stands below it."""

    tokens: npt.NDArray[np.uint32]  #: distinct, in order
    kept: Floats
    dropped: Floats


def shares_of(blocks: Blocks, share: npt.NDArray[np.float32], words: npt.NDArray[np.int32]) -> Shares:
    """`share` of each block's words is main text."""
    order = np.lexsort((blocks.token_element, blocks.token_hash))
    m = len(blocks.parent)
    below, end = np.zeros((m, 2)), np.zeros(m, np.int32)
    kept = words * share.astype(np.float64)
    hashes, elements = blocks.token_hash[order], blocks.token_element[order]
    tokens, first = np.unique(hashes, return_index=True)
    found = np.zeros((len(tokens), 2))
    _sum_below(blocks.parent, blocks.owner, kept, words - kept, elements,
               np.append(first, len(hashes)).astype(np.int64), below, end, found)  # fmt: skip
    found /= np.maximum([kept.sum(), (words - kept).sum()], 1)
    real = tokens != 0
    return Shares(tokens[real], found[real, 0], found[real, 1])


@njit
def _sum_below(
    parent: Any, owner: Any, kept: Any, dropped: Any, elements: Any, first: Any, below: Any, end: Any, found: Any
) -> None:
    """Fill float64[tokens, 2] `found`: words kept and dropped below each token's elements, each word once.

    `elements`, in order, of token t: first[t] to first[t + 1]. Room to work in, zeros: `below` [m, 2], `end` [m].
    """
    for b in range(owner.size):
        below[owner[b], 0] += kept[b]
        below[owner[b], 1] += dropped[b]
    for e in range(parent.size - 1, -1, -1):
        end[e] = max(end[e], e + 1)
        if e > 0:
            end[parent[e]] = max(end[parent[e]], end[e])
            below[parent[e], 0] += below[e, 0]
            below[parent[e], 1] += below[e, 1]
    for t in range(first.size - 1):
        covered = 0
        for i in range(first[t], first[t + 1]):
            e = elements[i]
            if e >= covered:
                found[t, 0] += below[e, 0]
                found[t, 1] += below[e, 1]
                covered = end[e]


def learn(pages: list[Shares], sites: list[int], min_sites: int = MIN_SITES) -> TokenScores:
    """Log odds that text below a token is kept, for tokens that at least `min_sites` of the pages' sites use."""
    tokens = np.concatenate([np.empty(0, np.uint32), *(page.tokens for page in pages)])
    known, inverse = np.unique(tokens, return_inverse=True)
    kept = np.bincount(inverse, np.concatenate([np.empty(0), *(page.kept for page in pages)]), len(known))
    dropped = np.bincount(inverse, np.concatenate([np.empty(0), *(page.dropped for page in pages)]), len(known))
    site = np.repeat(np.array(sites, np.int64), [len(page.tokens) for page in pages])
    pairs = np.unique(np.stack([inverse.astype(np.int64), site]), axis=1)
    common = np.bincount(pairs[0], minlength=len(known)) >= min_sites
    score = np.clip(np.log((kept + _PRIOR) / (dropped + _PRIOR)), -_LIMIT, _LIMIT)
    return token_scores(known[common], score[common].astype(np.float32))
