"""What a block shows by itself: counters of its text as ratios, what its ancestors are called, where it stands."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.compiled import njit
from pipeline.extract import state as s
from pipeline.text_kernels import lookup

TEXT_NAMES = (
    "chars", "words", "link_density", "link_words", "sentences", "sentences_per_word", "commas", "commas_per_word",
    "digits", "upper", "cjk", "bold", "images", "title", "breaks", "end", "punctuation", "starts_upper", "word_length",
    "hidden_text", "tag", "depth",
)  # fmt: skip
(
    _CHARS, _WORDS, _LINK_DENSITY, _LINK_WORDS, _SENTENCES, _SENTENCES_PER_WORD, _COMMAS, _COMMAS_PER_WORD,
    _DIGITS, _UPPER, _CJK, _BOLD, _IMAGES, _TITLE, _BREAKS, _END, _PUNCTUATION, _STARTS_UPPER, _WORD_LENGTH,
    _HIDDEN, _TAG, _DEPTH,
) = range(len(TEXT_NAMES))  # fmt: skip

SCORE_NAMES = ("own_score", "chain_score", "chain_lowest", "parent_score", "grandparent_score")
_OWN, _CHAIN, _LOWEST, _PARENT, _GRANDPARENT = range(len(SCORE_NAMES))

PLACE_NAMES = (
    "block_place", "word_place", "words_before", "words_after", "page_blocks", "page_words", "page_link_density",
    "page_longest", "page_in_p", "page_articles", "page_elements", "page_cjk",
)  # fmt: skip
(
    _BLOCK_PLACE, _WORD_PLACE, _BEFORE, _AFTER, _PAGE_BLOCKS, _PAGE_WORDS, _PAGE_LINK_DENSITY,
    _PAGE_LONGEST, _PAGE_IN_P, _PAGE_ARTICLES, _PAGE_ELEMENTS, _PAGE_CJK,
) = range(len(PLACE_NAMES))  # fmt: skip


@njit
def texts(counts: Any, owner: Any, tag: Any, depth: Any, out: Any) -> None:
    """Fill float32[len(TEXT_NAMES), n]; shares are of the block's characters, or of its words where the name says."""
    for b in range(owner.size):
        chars, words = max(counts[b, s.CHARS], 1), max(counts[b, s.WORDS], 1)
        out[_CHARS, b] = counts[b, s.CHARS]
        out[_WORDS, b] = counts[b, s.WORDS]
        out[_LINK_DENSITY, b] = counts[b, s.LINK_CHARS] / chars
        out[_LINK_WORDS, b] = counts[b, s.LINK_WORDS] / words
        out[_SENTENCES, b] = counts[b, s.SENTENCES]
        out[_SENTENCES_PER_WORD, b] = counts[b, s.SENTENCES] / words
        out[_COMMAS, b] = counts[b, s.COMMAS]
        out[_COMMAS_PER_WORD, b] = counts[b, s.COMMAS] / words
        out[_DIGITS, b] = counts[b, s.DIGITS] / chars
        out[_UPPER, b] = counts[b, s.UPPER] / chars
        out[_CJK, b] = counts[b, s.CJK] / chars
        out[_BOLD, b] = counts[b, s.BOLD_CHARS] / chars
        out[_IMAGES, b] = counts[b, s.IMAGES]
        out[_TITLE, b] = counts[b, s.TITLE_WORDS] / words
        out[_BREAKS, b] = counts[b, s.BREAKS]
        out[_END, b] = counts[b, s.END_KIND]
        out[_PUNCTUATION, b] = counts[b, s.PUNCTUATION] / chars
        out[_STARTS_UPPER, b] = counts[b, s.STARTS_UPPER]
        out[_WORD_LENGTH, b] = counts[b, s.CHARS] / words
        out[_HIDDEN, b] = counts[b, s.HIDDEN]
        out[_TAG, b] = tag[owner[b]]
        out[_DEPTH, b] = depth[owner[b]]


@njit
def distances(categories: Any, owner: Any, out: Any) -> None:
    """Fill float32[categories, n]: levels up to the nearest element of each category."""
    for b in range(owner.size):
        e = owner[b]
        for c in range(categories.shape[1]):
            out[c, b] = categories[e, c]


@njit
def add_scores(token_element: Any, token_hash: Any, keys: Any, values: Any, own: Any) -> None:
    """Add to float32[m] `own` the learned scores of each element's class and id tokens.

    `keys` uint64 and `values` float32 are those of features.TokenScores.
    """
    for t in range(token_hash.size):
        slot = lookup(np.uint64(token_hash[t]), keys)
        if slot >= 0:
            own[token_element[t]] += values[slot]


@njit
def scores(parent: Any, owner: Any, own: Any, chain: Any, lowest: Any, out: Any) -> None:
    """Fill float32[len(SCORE_NAMES), n] from the elements' own scores; `chain`, `lowest` float32[m] are room for work.

    chain: sum over an element and its ancestors; lowest: the least of them.
    """
    if own.size:
        chain[0], lowest[0] = own[0], own[0]
    for e in range(1, own.size):
        p = parent[e]
        chain[e] = chain[p] + own[e]
        lowest[e] = min(lowest[p], own[e])
    for b in range(owner.size):
        e = owner[b]
        out[_OWN, b], out[_CHAIN, b], out[_LOWEST, b] = own[e], chain[e], lowest[e]
        e = parent[e] if e > 0 else 0
        out[_PARENT, b] = own[e]
        e = parent[e] if e > 0 else 0
        out[_GRANDPARENT, b] = own[e]


@njit
def places(counts: Any, owner: Any, tag: Any, p: int, article: int, out: Any) -> None:
    """Fill float32[len(PLACE_NAMES), n]. `p`, `article`: the tags of those names."""
    n = owner.size
    words = links = longest = chars = cjk = in_p = articles = 0
    for b in range(n):
        w = counts[b, s.WORDS]
        words += w
        links += counts[b, s.LINK_WORDS]
        chars += counts[b, s.CHARS]
        cjk += counts[b, s.CJK]
        longest = max(longest, w)
        if tag[owner[b]] == p:
            in_p += w
    for e in range(tag.size):
        if tag[e] == article:
            articles += 1
    total, before = max(words, 1), 0
    for b in range(n):
        w = counts[b, s.WORDS]
        out[_BLOCK_PLACE, b] = (b + 0.5) / n
        out[_WORD_PLACE, b] = (before + 0.5 * w) / total
        out[_BEFORE, b] = before
        before += w
        out[_AFTER, b] = words - before
        out[_PAGE_BLOCKS, b] = n
        out[_PAGE_WORDS, b] = words
        out[_PAGE_LINK_DENSITY, b] = links / total
        out[_PAGE_LONGEST, b] = longest
        out[_PAGE_IN_P, b] = in_p / total
        out[_PAGE_ARTICLES, b] = articles
        out[_PAGE_ELEMENTS, b] = tag.size
        out[_PAGE_CJK, b] = cjk / max(chars, 1)
