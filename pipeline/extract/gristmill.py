"""Gristmill's own engine: one pass over the page's bytes, a small model that says which blocks to keep, their text.

There is no depth or size at which it gives up (pipeline/extract/scan.py). Where a page shows next to nothing without
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
from pipeline.extract.scan import WORDS, Blocks, is_bare, scan, visible_chars
from pipeline.extract.structure import structure
from pipeline.extract.tidy import without_surrogates

#: Blocks this many levels or fewer below what is called comments are comments
COMMENT_LEVELS = 4
#: Least probability of a kept block with `favor = "precision"`
PRECISION_FLOOR = 0.6


def extract(html: str, settings: recipe.Extract) -> Found:
    """The main text of a page, with the model's expected F1 as confidence (None for text out of JSON)."""
    blocks = scan(without_surrogates(html).encode())
    visible = visible_chars(blocks)
    floor = PRECISION_FLOOR if settings.favor == "precision" else 0.0
    kept, confidence = cut(predict(shipped(), blocks), blocks.counts[:, WORDS], floor=floor)
    text = emit(blocks, _wanted(blocks, kept, settings))
    if is_bare(blocks):
        from_json = json_text(html)
        if from_json is not None and len(from_json) > 2 * len(text):
            return Found(blocks.title, from_json, None, "json", visible)
    return Found(blocks.title, text, confidence, "page", visible)


def _wanted(blocks: Blocks, kept: npt.NDArray[np.bool_], settings: recipe.Extract) -> npt.NDArray[np.bool_]:
    """The kept blocks without what the settings leave out."""
    if not settings.comments:
        kept = kept & (blocks.categories[blocks.owner, tags.COMMENT_CATEGORY] > COMMENT_LEVELS)
    if not settings.tables:
        kept = kept & (structure(blocks, kept).row[blocks.owner] < 0)
    return kept
