"""Reading tags: names, attributes, comments and what is skipped whole. Nothing here knows the tree.

Kernels read beyond a page's end, so `html` has MARGIN or more bytes after its `n`; `words` are the same as uint64.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.compiled import njit
from pipeline.extract import class_words, tags
from pipeline.extract import state as st
from pipeline.text_kernels import lookup

at = np.uintp  #: of an index that is not negative: spares numba the look whether it is
MARGIN = 16
_FACTOR = np.uint64(tags.NAME_FACTOR)
_CLASS, _ID, _ROLE, _ITEMPROP = (np.uint64(tags.packed(name)) for name in ("class", "id", "role", "itemprop"))
_STYLE, _HIDDEN, _ARIA_HIDDEN, _HREF, _START, _VALUE = (
    np.uint64(tags.packed(name)) for name in ("style", "hidden", "aria-hidden", "href", "start", "value")
)
_DISPLAY, _VISIBILITY, _NONE, _TRUE = (
    np.uint64(tags.packed(name)) for name in ("display", "visibility", "none", "true")
)
_FNV, _FNV_PRIME, _32_BITS = np.uint64(0x811C9DC5), np.uint64(0x01000193), np.uint64(0xFFFFFFFF)
_SEED, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
_ONES, _HIGHS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
_PLACES = np.uint64(0x0001020304050607)  #: times 256^k has k in its highest byte
#: Tokens of one attribute that are stored: more say nothing more
_MAX_TOKENS = 64
_SEPARATOR, _SMALL, _CAPITAL, _DIGIT = range(4)
_BYTES = np.array([_SEPARATOR] * 128 + [_SMALL] * 128, np.uint8)
_BYTES[ord("a") : ord("z") + 1], _BYTES[ord("A") : ord("Z") + 1] = _SMALL, _CAPITAL
_BYTES[ord("0") : ord("9") + 1] = _DIGIT


@njit
def is_letter(b: Any) -> Any:
    return 97 <= (b | 32) <= 122


@njit
def find(words: Any, byte: Any, i: int, n: int) -> Any:
    """Where `byte` is next, from i on, or n: eight bytes at a time. `words` are the page's bytes as uint64."""
    pattern = np.uint64(byte) * _ONES
    shift = np.uint64((i & 7) * 8)
    rest = np.uint64(63) - shift
    while i < n:
        k = i >> 3
        word = words[at(k)] >> shift | words[at(k + 1)] << np.uint64(1) << rest
        word ^= pattern
        hit = (word - _ONES) & ~word & _HIGHS
        if hit != np.uint64(0):
            lowest = (hit & (~hit + np.uint64(1))) >> np.uint64(7)
            return min(i + np.int64(lowest * _PLACES >> np.uint64(56)), n)
        i += 8
    return n


@njit
def tag_name(html: Any, i: int, n: int) -> Any:
    """(id, end) of the tag name at i."""
    key, start, hyphen = np.uint64(0), i, False
    while i < n:
        b = np.int64(html[at(i)])
        if b <= 62 and (b == 62 or b == 47 or b <= 32):
            break
        if 65 <= b <= 90:
            b |= 32
        elif b == 45:
            hyphen = True
        if i - start < 7:
            key |= np.uint64(b) << np.uint64(8 * (i - start))
        i += 1
    key |= np.uint64(min(i - start, 255)) << np.uint64(56)
    slot = np.int64(key * _FACTOR >> np.uint64(55))
    while tags.NAME_KEYS[at(slot)] != np.uint64(0):
        if tags.NAME_KEYS[at(slot)] == key:
            return np.int64(tags.NAME_IDS[at(slot)]), i
        slot = (slot + 1) & 511
    return (tags.CUSTOM if hyphen else tags.UNKNOWN), i


@njit
def tokens(
    html: Any, i: int, end: int, element: int, mixed: Any, room: Any, hashes: Any, categories: Any, s: Any
) -> Any:
    """Store the hashes of the words of an attribute value; a category that lists one is at distance 0.

    Words end at what is no letter or digit, and before a capital after a small letter; digits at their end are dropped.
    Returns `mixed` with the words' hashes mixed in.
    """
    value, kept, length, small, stored = _FNV, _FNV, 0, False, 0
    while True:
        b = np.int64(html[at(i)]) if i < end else 32
        kind = _BYTES[at(b)]
        if kind == _SEPARATOR or (kind == _CAPITAL and small):
            if length and stored < _MAX_TOKENS:
                n = s[st.N_TOKENS]
                if n < room.size:
                    room[n], hashes[n] = element, kept
                s[st.N_TOKENS] = n + 1
                stored += 1
                mixed = (mixed ^ kept) * _PRIME
                _set_categories(kept, element, categories)
            if i >= end:
                return mixed
            value, length = _FNV, 0
        if kind == _CAPITAL:
            b |= 32
        small = kind in (_SMALL, _DIGIT)
        if kind != _SEPARATOR:
            value = (value ^ np.uint64(b)) * _FNV_PRIME & _32_BITS
            if kind != _DIGIT:
                kept, length = value, 1
        i += 1


@njit
def _set_categories(token: Any, element: int, categories: Any) -> None:
    slot = lookup(token, class_words.WORD_KEYS)
    if slot < 0:
        return
    bits, column = class_words.WORD_CATEGORIES[slot], 0
    while bits:
        if bits & 1:
            categories[element, column] = 0
        bits >>= 1
        column += 1


@njit
def tag_hash(tag: int) -> Any:
    return (_SEED ^ np.uint64(tag)) * _PRIME


@njit
def _letters(html: Any, i: int, end: int) -> Any:
    """(the letters at i in `packed` form, where they end)."""
    key, start = np.uint64(0), i
    while i < end and is_letter(html[i]):
        if i - start < 7:
            key |= np.uint64(html[i] | 32) << np.uint64(8 * (i - start))
        i += 1
    return key | np.uint64(min(i - start, 255)) << np.uint64(56), i


@njit
def _hides(html: Any, i: int, end: int) -> bool:
    """Whether a style value holds display:none or visibility:hidden."""
    while i < end:
        name, i = _letters(html, i, end)
        if name in (_DISPLAY, _VISIBILITY):
            while i < end and (html[i] == 58 or html[i] <= 32):
                i += 1
            value, i = _letters(html, i, end)
            if (name == _DISPLAY and value == _NONE) or (name == _VISIBILITY and value == _HIDDEN):
                return True
        else:
            i += 1
    return False


@njit
def _number(html: Any, i: int, end: int) -> Any:
    """The number in an attribute value; more than six digits are no number of a list's item."""
    number: Any = 0
    digits = 0
    while i < end and 48 <= html[i] <= 57 and digits < 7:
        number, digits = number * 10 + np.int64(html[i]) - 48, digits + 1
        i += 1
    return number if digits < 7 else 0


@njit
def attributes(
    html: Any, words: Any, i: int, n: int, element: int, room: Any, hashes: Any, categories: Any, signature: Any, s: Any
) -> int:
    """Read the attributes from i on; returns where the tag has ended. An element < 0 is none: nothing is stored."""
    s[st.LINKED] = s[st.NUMBERED] = 0
    while i < n:
        b = np.int64(html[at(i)])
        if b == 62:  # >
            return i + 1
        if b == 47 or b <= 32:
            i += 1
            continue
        start, key = i, np.uint64(0)
        while True:
            if 65 <= b <= 90:
                b |= 32
            if i - start < 7:
                key |= np.uint64(b) << np.uint64(8 * (i - start))
            i += 1
            if i >= n:
                return n
            b = np.int64(html[at(i)])
            if b <= 62 and (b == 61 or b == 62 or b == 47 or b <= 32):
                break
        key |= np.uint64(min(i - start, 255)) << np.uint64(56)
        while i < n and html[at(i)] <= 32:
            i += 1
        value, end = i, i
        if i < n and html[at(i)] == 61:  # =
            i += 1
            while i < n and html[at(i)] <= 32:
                i += 1
            if i >= n:
                return n
            b = np.int64(html[at(i)])
            if b == 34 or b == 39:
                value = i + 1
                end = find(words, b, value, n)
                if end == n:  # never closed: the tag ends where it would without the quotation mark
                    end = find(words, 62, value, n)
                    i = end
                else:
                    i = end + 1
            else:
                value = i
                while i < n and html[at(i)] > 32 and html[at(i)] != 62:
                    i += 1
                end = i
        if element >= 0:
            if key == _CLASS:
                mixed = signature[element]
                signature[element] = tokens(html, value, end, element, mixed, room, hashes, categories, s)
            elif key in (_ID, _ROLE, _ITEMPROP):
                tokens(html, value, end, element, _SEED, room, hashes, categories, s)
            elif key == _HREF:
                s[st.LINKED] = 1
            elif (
                key == _HIDDEN
                or (key == _STYLE and _hides(html, value, end))
                or (key == _ARIA_HIDDEN and _letters(html, value, end)[0] == _TRUE)
            ):
                categories[element, tags.HIDDEN_CATEGORY] = 0
            elif key in (_START, _VALUE):
                s[st.NUMBERED], s[st.NUMBER] = 1, _number(html, value, end)
    return n


@njit
def comment_end(html: Any, words: Any, i: int, n: int) -> Any:
    """Where the comment, declaration or instruction at i (`<!`, `<?`, `</` before no letter) has ended."""
    if not (html[i + 1] == 33 and html[i + 2] == 45 and html[i + 3] == 45):
        return min(find(words, 62, i + 2, n) + 1, n)
    if html[i + 4] == 62:
        return min(i + 5, n)
    i += 4
    start = i
    while True:
        i = find(words, 62, i, n)
        if i >= n:
            return n
        k = i - 2 if html[i - 1] == 33 else i - 1  # --!>
        if html[k] == 45 and html[k - 1] == 45 and (k > start or k == i - 1):
            return i + 1
        i += 1


@njit
def raw_end(html: Any, words: Any, i: int, n: int, tag: int) -> int:
    """Where the end tag of a raw text element stands, or n."""
    while True:
        i = find(words, 60, i, n)
        if i >= n:
            return n
        if html[i + 1] == 47 and is_letter(html[i + 2]):
            found, _ = tag_name(html, i + 2, n)
            if found == tag:
                return i
        i += 1


@njit
def subtree_end(html: Any, words: Any, i: int, n: int, tag: int) -> int:
    """Where the end tag of an element stands that may hold others of its name, or n."""
    depth = 1
    while True:
        i = find(words, 60, i, n)
        if i >= n:
            return n
        end_tag = html[i + 1] == 47
        name = i + 2 if end_tag else i + 1
        if is_letter(html[name]):
            found, _ = tag_name(html, name, n)
            if found == tag:
                depth += -1 if end_tag else 1
                if depth == 0:
                    return i
        i += 1
