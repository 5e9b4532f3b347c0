"""Character references (&amp; &#228; &eacute), decoded as `html.unescape` does, in compiled code."""

from __future__ import annotations

import html
from functools import cache
from html import entities
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.compiled import njit
from pipeline.text import hash_table
from pipeline.text_kernels import lookup

#: What `entity` returns for a reference to a character that no text may hold: it stands for nothing.
REMOVED = -1

_LEGACY = 1 << 42  #: a name that is known without its semicolon
_OFFSET, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
_LONGEST = 32
_C1 = tuple(ord(html.unescape(f"&#{code};") or "\0") for code in range(0x80, 0xA0))


@cache
def names() -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
    """For text_kernels.lookup, the FNV-1a-64 of each name; at its slot its one or two code points."""
    known: dict[int, int] = {}
    for name, text in entities.html5.items():
        key = 0xCBF29CE484222325
        for byte in name.removesuffix(";").encode():
            key = (key ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
        value = ord(text[0]) | (ord(text[1]) << 21 if len(text) > 1 else 0)
        known[key] = known.get(key, 0) | value | (0 if name.endswith(";") else _LEGACY)
    keys, index = hash_table(np.array(list(known), np.uint64))
    return keys, np.where(index >= 0, np.array(list(known.values()), np.int64)[index], 0)


@njit
def _look_up(key: Any, keys: Any, values: Any) -> Any:
    slot = lookup(key, keys)
    return values[slot] if slot >= 0 else 0


@njit
def entity(html: Any, i: int, end: int, keys: Any, values: Any) -> Any:
    """(code point or REMOVED, a second one or 0, bytes) of the reference in html[i:end] at i, an `&`; 0 bytes: none."""
    if i + 2 < end and html[i + 1] == 35:
        return _number(html, i, end)
    key, length, longest, value = _OFFSET, 0, 0, 0
    j = i + 1
    while j < end and length < _LONGEST:
        b = html[j]
        if not (97 <= b <= 122 or 65 <= b <= 90 or 48 <= b <= 57):
            break
        key = (key ^ np.uint64(b)) * _PRIME
        length += 1
        j += 1
        if 2 <= length <= 6:
            known = _look_up(key, keys, values)
            if known & _LEGACY:
                longest, value = length, known
    if j < end and html[j] == 59:  # ;
        known = _look_up(key, keys, values)
        if known:
            return known & 0x1FFFFF, known >> 21 & 0x1FFFFF, length + 2
    if longest:
        return value & 0x1FFFFF, 0, longest + 1
    return 0, 0, 0


@njit
def _number(html: Any, i: int, end: int) -> Any:
    j, base = i + 2, 10
    if html[j] == 120 or html[j] == 88:  # x X
        base = 16
        j += 1
    start = j
    code: Any = 0
    while j < end:
        b = np.int64(html[j])
        if 48 <= b <= 57:
            digit = b - 48
        elif base == 16 and (97 <= b <= 102 or 65 <= b <= 70):
            digit = (b | 32) - 87
        else:
            break
        code = min(code * base + digit, 0x110000)
        j += 1
    if j == start:
        return 0, 0, 0
    if j < end and html[j] == 59:
        j += 1
    return _allowed(code), 0, j - i


@njit
def _allowed(code: int) -> int:
    """The character that a number stands for."""
    if 0x80 <= code < 0xA0:  # meant for windows-1252
        return _C1[code - 0x80]
    if code == 0 or 0xD800 <= code < 0xE000 or code > 0x10FFFF:
        return 0xFFFD
    if code < 0x20:
        return code if 9 <= code <= 13 and code != 11 else REMOVED
    if code == 0x7F or 0xFDD0 <= code < 0xFDF0 or code & 0xFFFE == 0xFFFE:
        return REMOVED
    return code
