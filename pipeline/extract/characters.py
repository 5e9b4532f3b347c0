"""What a character is to the scan, by code point, and how the kernels read one out of UTF-8."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline import text_tables as t
from pipeline.compiled import njit

WORD = 1 << 0  #: a letter or digit
SPACELESS = 1 << 1  #: of a script written without spaces: a letter of these is a word
MARK = 1 << 2  #: belongs to the character before it
SPACE = 1 << 3
DIGIT = 1 << 4
UPPER = 1 << 5  #: the bit by which small and capital letters of ASCII differ
ENDER = 1 << 6  #: may end a sentence
COMMA = 1 << 7
PUNCTUATION = 1 << 8  #: the rest of it
CLOSER = 1 << 9  #: a quotation mark or bracket, which may follow a sentence's end
COLON = 1 << 10
SEMICOLON = 1 << 11
DOTS = 1 << 12  #: …
NOTHING = 1 << 13  #: controls, soft hyphen, byte order mark: not seen, not written

_ENTITY_SIGN = 38  # &


@cache
def character_kinds() -> npt.NDArray[np.uint16]:
    """uint16[TABLE_SIZE + 2]: kinds by code point, read with text_kernels.flag."""
    flags = t.character_flags()
    kinds = np.zeros(len(flags), np.uint16)
    for flag, kind in (
        (t.ALPHA | t.WORD_CHAR | t.DIGIT, WORD),
        (t.SPACELESS, SPACELESS),
        (t.MARK, MARK),
        (t.SPACE, SPACE),
        (t.DIGIT, DIGIT),
        (t.UPPER, UPPER),
        (t.SENTENCE, ENDER),
        (t.PUNCT | t.CATEGORY_P, PUNCTUATION),
    ):
        kinds[(flags & flag) != 0] |= kind

    def put(chars: str, kind: int) -> None:
        kinds[[ord(char) for char in chars]] = kind

    put("…‥", ENDER | DOTS | PUNCTUATION)
    put(",،、，､߸፣᠂᠈꓾", COMMA)
    put(";؛；", SEMICOLON | PUNCTUATION)
    put(":：", COLON | PUNCTUATION)
    put("\"')]}»”’›」』）】》〉", CLOSER | PUNCTUATION)
    put("|+<>=~^`$", PUNCTUATION)
    put("\u200c\u200d", MARK)
    put("\t\n\v\f\r \x85", SPACE)
    controls = [*range(9), *range(14, 32), *range(127, 133), *range(134, 160), 0xAD, 0xFEFF, 0xFFFE, 0xFFFF]
    kinds[controls] = NOTHING
    kinds[_ENTITY_SIGN] = PUNCTUATION
    kinds.flags.writeable = False
    return kinds


@njit
def decode(html: Any, i: int, end: int) -> Any:
    """(code point, bytes) of the character of html[i:end] at i; what is not UTF-8 is U+FFFD, byte by byte."""
    b = np.int64(html[i])
    if b < 0xE0:
        if b >= 0xC2 and i + 1 < end:
            return (b & 31) << 6 | (np.int64(html[i + 1]) & 63), 2
        return (b if b < 128 else 0xFFFD), 1
    if b < 0xF0:
        if i + 2 < end:
            return (b & 15) << 12 | (np.int64(html[i + 1]) & 63) << 6 | (np.int64(html[i + 2]) & 63), 3
    elif b < 0xF5 and i + 3 < end:
        high = (b & 7) << 18 | (np.int64(html[i + 1]) & 63) << 12
        return high | (np.int64(html[i + 2]) & 63) << 6 | (np.int64(html[i + 3]) & 63), 4
    return 0xFFFD, 1
