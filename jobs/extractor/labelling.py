"""Gold pages to labelled blocks."""

from __future__ import annotations

from functools import cache
from html import unescape
from itertools import pairwise

import numpy as np

from jobs.extractor import labels
from jobs.extractor.pages import Page
from jobs.extractor.training import Labelled
from pipeline.extract import characters, state
from pipeline.extract.scan import Blocks


def label(gold: list[Page]) -> list[Labelled]:
    """The pages that have blocks and are not too large to be aligned."""
    found = []
    for page in gold:
        blocks = page.blocks
        aligned = labels.align(block_texts(blocks), page.gold or "")
        if aligned is not None and len(blocks.owner):
            share, words = aligned
            weight = labels.weights(words, len(labels.words_of(page.gold or "")))
            found.append(Labelled(page.url, blocks, share, weight, words))
    return found


def block_texts(blocks: Blocks) -> list[str]:
    """The words of each block, in one line: where they stand in the page and where they are apart, as `emit` has it."""
    page = blocks.html.tobytes()
    apart = (blocks.span_kind & (state.SPACED | state.BROKEN)) != 0
    pieces = [
        (" " if gap else "") + page[start:end].decode("utf-8", "replace")
        for start, end, gap in zip(blocks.span_start.tolist(), blocks.span_end.tolist(), apart.tolist(), strict=True)
    ]
    first = blocks.first_span.tolist()
    texts = ("".join(pieces[a:b]) for a, b in pairwise(first))
    return [" ".join(unescape(text).translate(_unseen()).split()) for text in texts]


@cache
def _unseen() -> dict[int, None]:
    return dict.fromkeys(np.flatnonzero(characters.character_kinds() & characters.NOTHING).tolist())
