"""The first stage's features of a page's blocks, made in time linear in blocks + elements + class and id tokens.

They are counts, ratios and distances; no word of any language is looked at. Names are in FEATURES, one per row.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from pipeline.extract import block_features, container_features, neighbour_features, tags
from pipeline.extract.block_features import PLACE_NAMES, SCORE_NAMES, TEXT_NAMES
from pipeline.extract.container_features import GROUP_NAMES, LEVEL_NAMES, TOP_NAMES, Layout, layout
from pipeline.extract.scan import Blocks
from pipeline.line_kernels import table_size
from pipeline.text import hash_table

Floats = npt.NDArray[np.float32]

_PARTS = (TEXT_NAMES, tags.CATEGORIES, SCORE_NAMES, PLACE_NAMES, GROUP_NAMES, LEVEL_NAMES, TOP_NAMES,
          neighbour_features.NAMES)  # fmt: skip
FEATURES: tuple[str, ...] = tuple(name for part in _PARTS for name in part)
_ENDS = np.cumsum([0, *map(len, _PARTS)]).tolist()
_TEXT, _CATEGORIES, _SCORES, _PLACE, _GROUP, _LEVELS, _TOP, _NEIGHBOURS = (slice(a, b) for a, b in pairwise(_ENDS))
#: Rows that a page without telling names would not have: distances to class and tag categories, learned scores
NAMED_CLASSES = slice(_CATEGORIES.start, _CATEGORIES.start + tags.N_CLASS_CATEGORIES)
NAMED_TAGS = slice(NAMED_CLASSES.stop, NAMED_CLASSES.stop + tags.N_TAG_CATEGORIES)
NAMED_SCORES = _SCORES


@dataclass(frozen=True, slots=True)
class TokenScores:
    """What class and id tokens were worth in training, by FNV-1a-32."""

    keys: npt.NDArray[np.uint64]  #: for text_kernels.lookup
    values: Floats  #: at a key's slot


def token_scores(hashes: npt.NDArray[np.uint32], values: Floats) -> TokenScores:
    """The table of these tokens (distinct, none 0)."""
    keys, index = hash_table(hashes.astype(np.uint64))
    return TokenScores(keys, np.append(values, np.float32(0))[index])  # an empty slot has index -1


def features(blocks: Blocks, tokens: TokenScores) -> Floats:
    """float32[n, len(FEATURES)] for n blocks."""
    return columns(blocks, layout(blocks), tokens).T


def columns(blocks: Blocks, around: Layout, tokens: TokenScores) -> Floats:
    """As `features`, but float32[len(FEATURES), n], which is how the trees read it."""
    n, m = len(blocks.owner), len(blocks.parent)
    out = np.empty((len(FEATURES), n), np.float32)
    if n == 0:
        return out
    counts, owner, parent, tag = blocks.counts, blocks.owner, blocks.parent, blocks.tag
    block_features.texts(counts, owner, tag, blocks.depth, out[_TEXT])
    block_features.distances(blocks.categories, owner, out[_CATEGORIES])
    own = np.zeros(m, np.float32)
    block_features.add_scores(blocks.token_element, blocks.token_hash, tokens.keys, tokens.values, own)
    block_features.scores(parent, owner, own, np.empty(m, np.float32), np.empty(m, np.float32), out[_SCORES])
    block_features.places(counts, owner, tag, tags.P, tags.ARTICLE, out[_PLACE])
    alike, room = np.empty(n, np.int32), np.full(table_size(n), -1, np.int32)
    container_features.first_alike(blocks.text_hash, room, alike)
    container_features.groups(
        counts, owner, parent, alike, around.group, np.zeros((n, 6), np.int32), np.zeros((m, 2), np.int32), out[_GROUP]
    )
    container_features.levels(owner, parent, around.inside, out[_LEVELS])
    container_features.top(
        counts, owner, parent, tag, blocks.depth, around.inside, tags.P, np.zeros(m), np.empty((m, 2), np.int32),
        out[_TOP],
    )  # fmt: skip
    neighbour_features.neighbours(counts, owner, tag, around.group, tags.HEADINGS, tags.H1, out[_NEIGHBOURS])
    return out
