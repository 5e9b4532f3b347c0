"""Pages that nobody has marked up in full: what can be learnt from snippets, and from engines that agree."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jobs.extractor.labels import Floats, Ints, overlap, weights, words_of

#: Engines' texts agree when each pair's F1 is at least this.
AGREEMENT = 0.9


def snippet_labels(texts: Sequence[str], wanted: Sequence[str], unwanted: Sequence[str]) -> Floats:
    """Per block: 1 if a wanted snippet stands in its text or its text in a snippet of some length, 0 if an unwanted
    one, NaN where neither or both do."""
    label = np.full(len(texts), np.nan, np.float32)
    flat = [" ".join(text.split()) for text in texts]
    good, bad = (["".join(" ".join(s.split())) for s in snippets if s.strip()] for snippets in (wanted, unwanted))
    for b, text in enumerate(flat):
        right, wrong = (any(snippet in text for snippet in snippets) for snippets in (good, bad))
        if right != wrong:
            label[b] = float(right)
    return label


def agreed(engine_texts: Sequence[str], least: float = AGREEMENT) -> str | None:
    """The text that agrees best with the others where all agree, else None."""
    if not all(engine_texts):
        return None
    f1 = [[overlap(a, b)[2] for b in engine_texts] for a in engine_texts]
    if min(map(min, f1)) < least:
        return None
    return engine_texts[max(range(len(f1)), key=lambda i: sum(f1[i]))]


def weak_weights(texts: Sequence[str], probability: Floats, factor: float) -> tuple[Ints, Floats]:
    """Words of each block, and weights as for a page whose main text is the probable part of this one."""
    words = np.array([len(words_of(text)) for text in texts], np.int32)
    return words, factor * weights(words, int((probability * words).sum()))
