"""Gristmill's own engine: one pass over the page's bytes, a small model that says which blocks to keep, their text.

There is no depth or size at which it gives up (pipeline/extract/scan.py). Where a browser without scripts would show
next to nothing, the text is taken from the page's JSON, or else from what stands in <noscript>.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from pipeline import recipe
from pipeline.extract import Found, tags
from pipeline.extract.emit import emit
from pipeline.extract.model import cut, predict, shipped
from pipeline.extract.page_json import json_text
from pipeline.extract.scan import CHARS, HIDDEN, LINK_CHARS, WORDS, Blocks, scan
from pipeline.extract.structure import structure
from pipeline.extract.tidy import without_surrogates

#: A page with fewer characters, and fewer outside links, is looked at for text elsewhere
FEW_CHARS, FEW_PLAIN_CHARS = 1500, 300
#: Blocks this many levels or fewer below what is called comments are comments
COMMENT_LEVELS = 4
#: Least probability of a kept block with `favor = "precision"`
PRECISION_FLOOR = 0.6
_NOSCRIPT = re.compile(rb"<(/?)noscript", re.IGNORECASE)


def extract(html: str, settings: recipe.Extract) -> Found:
    """The main text of a page, with the model's expected F1 as confidence (None for text out of JSON)."""
    data = without_surrogates(html).encode()
    blocks = scan(data)
    chars, linked, hidden = blocks.counts[:, [CHARS, LINK_CHARS, HIDDEN]].sum(axis=0).tolist()
    text, confidence = _main_text(blocks, settings)
    if chars < FEW_CHARS and chars - linked < FEW_PLAIN_CHARS:
        if _NOSCRIPT.search(data):
            text, confidence = _main_text(scan(_NOSCRIPT.sub(rb"<\1div", data)), settings)
        from_json = json_text(html)
        if from_json is not None and len(from_json) > 2 * len(text):
            return Found(blocks.title, from_json, None, "json", chars - hidden)
    return Found(blocks.title, text, confidence, "page", chars - hidden)


def _main_text(blocks: Blocks, settings: recipe.Extract) -> tuple[str, float]:
    """(text, expected F1) of the blocks that the model keeps."""
    floor = PRECISION_FLOOR if settings.favor == "precision" else 0.0
    kept, confidence = cut(predict(shipped(), blocks), blocks.counts[:, WORDS], floor=floor)
    return emit(blocks, _wanted(blocks, kept, settings)), confidence


def _wanted(blocks: Blocks, kept: npt.NDArray[np.bool_], settings: recipe.Extract) -> npt.NDArray[np.bool_]:
    """The kept blocks without what the settings leave out."""
    if not settings.comments:
        kept = kept & (blocks.categories[blocks.owner, tags.COMMENT_CATEGORY] > COMMENT_LEVELS)
    if not settings.tables:
        kept = kept & (structure(blocks, kept).row[blocks.owner] < 0)
    return kept
