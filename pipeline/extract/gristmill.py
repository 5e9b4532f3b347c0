"""Gristmill's own engine: one pass over the page's bytes, a small model that says which blocks to keep, their text.

There is no depth or size at which it gives up (pipeline/extract/scan.py). A page of a few words is kept whole but for
what is named as something else, since the model has learnt from longer ones. Of a longer page's blocks with the same
words, such as those for small screens and for large ones, the first is kept. Where a page shows next to nothing without
scripts, its text is taken from the JSON that it holds, if there is more.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pipeline import recipe
from pipeline.extract import Found, tags
from pipeline.extract.emit import emit
from pipeline.extract.model import cut, predict, shipped
from pipeline.extract.page_json import json_text
from pipeline.extract.scan import LINK_CHARS, WORDS, Blocks, is_bare, scan, visible_chars
from pipeline.extract.state import PRE
from pipeline.extract.structure import structure
from pipeline.extract.tidy import encoded

#: Blocks this many levels or fewer below what is called comments are comments, unless that is most of the page
COMMENT_LEVELS, MOST = 4, 0.7
#: Least probability of a kept block with `favor = "precision"`: changes little on pages like the model's own, but a
#: model of WCXB alone gains 0.05 of precision and 0.03 of F1 by it on waddle-daniel (tests/bench/extract.py)
PRECISION_FLOOR = 0.5
#: `favor = "recall"` cuts at the best expected F2: recall counts double
RECALL_WEIGHT = 4.0
#: A page with no more words, and no more of them in plain blocks, is kept whole. By out-of-fold answers on the gold
#: pages this changes 23 of 1,851, their F1 by +0.04 on average.
SMALL_WORDS, SMALL_PLAIN_WORDS = 400, 200
#: Blocks with this many words or more are kept once on longer pages: changes 250 pages, their F1 by +0.014 on average
ONCE_WORDS = 8
#: Levels below an element of these kinds at which a block is not plain
SERVICE_LEVELS = 6
_SERVICE_NAMES = (
    "shares", "related", "sidebars", "menus", "foots", "notices", "adverts", "forms", "nav", "aside", "footer", "form",
    "button", "hidden",
)  # fmt: skip
_SERVICES = [tags.CATEGORIES.index(name) for name in _SERVICE_NAMES]

Mask = npt.NDArray[np.bool_]


def extract(html: str, settings: recipe.Extract) -> Found:
    """The main text of a page, with the model's expected F1 as confidence (None for text out of JSON)."""
    blocks = scan(encoded(html))
    visible = visible_chars(blocks)
    floor = PRECISION_FLOOR if settings.favor == "precision" else 0.0
    kept, confidence = selected(blocks, predict(shipped(), blocks), floor, settings)
    text = emit(blocks, kept)
    if is_bare(blocks):
        from_json = json_text(html)
        if from_json is not None and len(from_json) > 2 * len(text):
            return Found(blocks.title, from_json, None, "json", visible)
    return Found(blocks.title, text, confidence, "page", visible)


def selected(
    blocks: Blocks, probability: npt.NDArray[np.float32], floor: float, settings: recipe.Extract
) -> tuple[Mask, float]:
    """Which blocks to keep, by their probability of being main text (`floor` at least), and the expected F1."""
    words = blocks.counts[:, WORDS]
    recall = RECALL_WEIGHT if settings.favor == "recall" else 1.0
    kept, confidence = cut(probability, words, floor=floor, recall=recall)
    if words.sum() > SMALL_WORDS:
        kept = _once(blocks, kept)
    elif words[plain := _plain(blocks)].sum() <= SMALL_PLAIN_WORDS:
        kept = kept | plain
    if not settings.comments:
        comments = blocks.categories[blocks.owner, tags.COMMENT_CATEGORY] <= COMMENT_LEVELS
        if words[kept & comments].sum() < MOST * words[kept].sum():
            kept = kept & ~comments
    if not settings.tables:
        kept = kept & (structure(blocks, kept).row[blocks.owner] < 0)
    return kept, confidence


def _plain(blocks: Blocks) -> Mask:
    """The blocks without links that are in nothing whose name says that it is no main text."""
    nearest = blocks.categories[blocks.owner][:, _SERVICES].min(axis=1, initial=tags.NEVER)
    plain: Mask = (blocks.counts[:, LINK_CHARS] == 0) & (nearest > SERVICE_LEVELS)
    return plain


def _once(blocks: Blocks, kept: Mask) -> Mask:
    """The kept blocks without those that have the words of an earlier one; signs of code are no words."""
    code = blocks.span_kind[blocks.first_span[:-1]] & PRE != 0
    long = np.flatnonzero(kept & ~code & (blocks.counts[:, WORDS] >= ONCE_WORDS))
    _, first = np.unique(blocks.text_hash[long], return_index=True)
    if len(first) == len(long):
        return kept
    once = kept.copy()
    once[long] = False
    once[long[first]] = True
    return once
