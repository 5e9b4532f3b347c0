"""How much of a text is bytes of one charset read as another: 0 for sound text, near 1 where nobody can read it.

Counted are, as code points of the text:

- U+FFFD;
- UTF-8 read as Latin-1 or Windows-1252 ("GrÃ¶ÃŸe", "â€™"): what stands for a lead byte of a common script, then what
  stands for as many trail bytes as it asks for;
- UTF-8 Cyrillic read as Windows-1251 ("РџСЂРё"): Р or С before a character that no Russian word has there;
- a legacy charset read as Latin-1 ("Ïðèâåò", "ÖÐÎÄ"): four letters of U+00C0 to U+00FF and more in a row;
- KOI8-R read as Windows-1251 or the other way round ("рТЙЧЕФ"): a small Cyrillic letter before two capital ones.

Each of these is next to absent from sound text (0.006 % of the characters of 2,878 real pages, one of which is
mojibake), so one bound serves all languages. ftfy's badness takes a hundred times as long (1.16 against 0.011 ms).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.compiled import njit
from pipeline.text import Units
from pipeline.text_kernels import flag
from pipeline.text_tables import TABLE_SIZE

REPLACEMENT = 0xFFFD
#: Kinds of a character, as flags
TRAIL, LEAD_2, LEAD_3, CYRILLIC_LEAD, NOT_RUSSIAN, LATIN, SMALL_CYRILLIC, CAPITAL_CYRILLIC = (1 << i for i in range(8))

#: Lead bytes of Latin, Greek, Cyrillic letters; of punctuation, kana, Han and U+FFFD or a byte-order mark
_LEADS_2, _LEADS_3 = (0xC2, 0xC3, 0xC4, 0xC5, 0xCE, 0xCF, 0xD0, 0xD1), (0xE2, *range(0xE3, 0xEA), 0xEF)
_LEGACY_RUN = 4


@cache
def _kinds() -> npt.NDArray[np.uint8]:
    table = np.zeros(TABLE_SIZE + 2, np.uint8)
    for byte in range(0x80, 0xC0):
        table[byte] |= TRAIL
        for charset, kind in (("cp1252", TRAIL), ("cp1251", NOT_RUSSIAN)):
            for letter in bytes([byte]).decode(charset, "ignore"):
                table[ord(letter)] |= kind
    for sound in "\xa0\xab\xbb\u2013\u2014\u2018\u2019\u201c\u201d\u201e\u2026\u2116Ёё":
        table[ord(sound)] &= 0xFF - NOT_RUSSIAN  # may follow a capital Р or С in a sound text
    table[list(_LEADS_2)] |= LEAD_2
    table[list(_LEADS_3)] |= LEAD_3
    table[[ord("Р"), ord("С")]] |= CYRILLIC_LEAD
    table[0xC0:0x100] |= LATIN
    table[[0xD7, 0xF7]] &= 0xFF - LATIN
    table[0x430:0x450] |= SMALL_CYRILLIC
    table[0x410:0x430] |= CAPITAL_CYRILLIC
    return table


def score(units: Units) -> float | None:
    """Characters in such sequences / characters; null for an empty text."""
    if not units.n_chars:
        return None
    return int(_count(units.codes, _kinds())) / units.n_chars


@njit
def _kind(codes: Any, i: int, kinds: Any) -> Any:
    return flag(codes[i], kinds) if i < len(codes) else kinds[0]


@njit
def _count(codes: Any, kinds: Any) -> int:
    n, i, found, run = len(codes), 0, 0, 0
    while i < n:
        code = codes[i]
        if code < 0x80:
            run = 0
            i += 1
            continue
        kind = _kind(codes, i, kinds)
        length = 0
        if code == REPLACEMENT:
            length = 1
        elif kind & LEAD_2 and _kind(codes, i + 1, kinds) & TRAIL:
            length = 2
        elif kind & LEAD_3 and _kind(codes, i + 1, kinds) & TRAIL and _kind(codes, i + 2, kinds) & TRAIL:
            length = 3
        elif kind & CYRILLIC_LEAD and _kind(codes, i + 1, kinds) & NOT_RUSSIAN:
            length = 2
        elif (
            kind & SMALL_CYRILLIC
            and _kind(codes, i + 1, kinds) & CAPITAL_CYRILLIC
            and _kind(codes, i + 2, kinds) & CAPITAL_CYRILLIC
        ):
            length = 3
        if length:
            found += length
            run = 0
            i += length
            continue
        if kind & LATIN:
            run += 1
            found += _LEGACY_RUN if run == _LEGACY_RUN else run > _LEGACY_RUN
        else:
            run = 0
        i += 1
    return found
