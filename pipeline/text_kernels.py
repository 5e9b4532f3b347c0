"""Words, sentences and lines of a text in one pass each over its code points, compiled.

All kernels take `codes` (uint32 code points) and are linear in its length. Words are spaCy's blank English ones: split at
white space, then affixes, web addresses, exceptions and infixes, see the comments; a run of letters of a script written
without spaces is further cut into one word per letter with its combining marks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline import text_tables as t
from pipeline.compiled import njit

Codes = npt.NDArray[np.uint32]
Hashes = npt.NDArray[np.uint64]
Positions = npt.NDArray[np.int32]

#: Indices into the counts that `words` fills.
(
    N_WORDS,  # all words, punctuation too
    N_REAL_WORDS,  # words with a character that is not punctuation
    REAL_WORD_CHARS,
    N_ALPHA_WORDS,
    N_SENTENCES,
    N_CHUNKS,  # words as white space divides them
    N_ALPHA_CHUNKS,
    CHUNK_CHARS,  # characters that are not white space
    N_LETTERS,
    N_UPPER,
    N_DIGITS,
    N_PUNCTUATION,
    ADDRESS_LETTERS,  # letters inside web and mail addresses
    N_WORD_CHARS,
    SPACELESS_CHARS,
    N_COUNTS,
) = range(16)

#: Kinds of a word, as flags
REAL, ALPHABETIC = 1, 2

#: No more suffixes than this are split off one word: bounds the scratch space.
MAX_SUFFIXES = 1024
LONGEST_EXCEPTION = 16

_SEED = np.uint64(0xCBF29CE484222325)
_PRIME = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xBF58476D1CE4E5B9)
_32 = np.uint64(32)
_29 = np.uint64(29)


@njit
def flag(code: Any, table: Any) -> Any:
    if code < t.TABLE_SIZE:
        return table[code]
    return table[t.TABLE_SIZE] if code < 0x40000 else table[t.TABLE_SIZE + 1]


@njit
def mix(h: Any) -> Any:
    h ^= h >> _32
    h *= _MIX
    return h ^ (h >> _29)


@njit
def string_hash(codes: Any, start: int, end: int) -> Any:
    """64-bit hash of codes[start:end], never 0, which marks an empty slot."""
    h = _SEED
    for i in range(start, end):
        h = (h ^ np.uint64(codes[i])) * _PRIME
    h = mix(h)
    return h if h != np.uint64(0) else np.uint64(1)


@njit
def lookup(key: Any, keys: Any) -> int:
    """Slot of `key` in an open-addressing table (size a power of two), or -1."""
    mask = len(keys) - 1
    slot = np.int64(key & np.uint64(mask))
    while keys[slot] != np.uint64(0):
        if keys[slot] == key:
            return slot
        slot = (slot + 1) & mask
    return -1


@njit
def _exception(codes: Any, start: int, end: int, keys: Any) -> int:
    if end - start > LONGEST_EXCEPTION:
        return -1
    return lookup(string_hash(codes, start, end), keys)


@njit
def _dots_from(codes: Any, start: int, end: int) -> int:
    i = start
    while i < end and codes[i] == 46:
        i += 1
    return i - start


@njit
def _prefix(codes: Any, a: int, b: int, table: Any) -> int:
    """Length of what is split off the front of codes[a:b], or 0."""
    c = codes[a]
    if flag(c, table) & t.PREFIX:
        return 1
    if c == 46:  # ..
        dots = _dots_from(codes, a, b)
        return dots if dots > 1 else 0
    if c == 43:  # + not before a digit
        return 0 if a + 1 < b and flag(codes[a + 1], table) & t.ASCII_DIGIT else 1
    if a + 1 < b:  # C$ A$ US$
        if (c == 67 or c == 65) and codes[a + 1] == 36:
            return 2
        if c == 85 and codes[a + 1] == 83 and a + 2 < b and codes[a + 2] == 36:
            return 3
    return 0


@njit
def _suffix(codes: Any, a: int, b: int, table: Any, unit_keys: Any) -> int:
    """Length of what is split off the end of codes[a:b], or 0."""
    if a >= b:
        return 0
    c = codes[b - 1]
    kind = flag(c, table)
    if kind & t.SUFFIX:
        return 2 if c == 0x2026 and b - 2 >= a and codes[b - 2] == 0x2026 else 1
    if (c == 115 or c == 83) and b - 2 >= a and (codes[b - 2] == 39 or codes[b - 2] == 0x2019):  # 's
        return 2
    if c == 46:
        i = b - 1
        while i > a and codes[i - 1] == 46:
            i -= 1
        if b - i > 1:
            return b - i
        if b - 2 < a:
            return 0
        before = flag(codes[b - 2], table)
        if before & t.STOP_SIDE:
            return 1
        if b - 3 >= a:
            if before & t.UPPER_SIDE and flag(codes[b - 3], table) & t.UPPER_SIDE:
                return 1
            if codes[b - 3] == 0xB0 and (codes[b - 2] | 32 == 102 or codes[b - 2] | 32 == 99 or codes[b - 2] | 32 == 107):
                return 1
        return 0
    if b - 2 < a:
        return 0
    if c == 43:
        return 1 if flag(codes[b - 2], table) & t.ASCII_DIGIT else 0
    if kind & t.ASCII_DIGIT:
        return 0
    for i in range(b - 1, max(a, b - 5), -1):  # a unit after a digit
        if flag(codes[i - 1], table) & t.ASCII_DIGIT:
            return b - i if lookup(string_hash(codes, i, b), unit_keys) >= 0 else 0
    return 0


@njit
def _infix(codes: Any, i: int, a: int, b: int, table: Any) -> int:
    """Length of what splits codes[a:b] at i, or 0."""
    c = codes[i]
    kind = flag(c, table)
    if kind & (t.LETTER | t.ASCII_DIGIT) and not kind & t.ICON:
        return 0
    if kind & t.ICON or c == 0x2026:
        return 1
    if c == 46:
        dots = _dots_from(codes, i, b)
        if dots > 1:
            return dots
    if i == a or i + 1 >= b:
        return 0
    before, after = flag(codes[i - 1], table), flag(codes[i + 1], table)
    if c == 46:
        return 1 if before & t.LOWER_SIDE and after & t.UPPER_SIDE else 0
    if (c == 43 or c == 45 or c == 42 or c == 94) and before & t.ASCII_DIGIT and (after & t.ASCII_DIGIT or codes[i + 1] == 45):
        return 1
    if c == 44:
        return 1 if before & t.LETTER and after & t.LETTER else 0
    if not before & (t.LETTER | t.ASCII_DIGIT):
        return 0
    if c == 58 or c == 60 or c == 62 or c == 61 or c == 47:  # : < > = /
        return 1 if after & t.LETTER else 0
    if kind & t.HYPHEN:
        if after & t.LETTER:
            return 1
        same = 1
        while i + same < b and codes[i + same] == c:
            same += 1
        fits = (c == 45 and same <= 3) or (c == 0x2014 and same == 2)
        return same if fits and i + same < b and flag(codes[i + same], table) & t.LETTER else 0
    return 0


@njit
def _host(codes: Any, start: int, end: int, table: Any) -> bool:
    """Whether codes[start:end] is host[:port][/path]: labels and dots, then a lower-case ending; or four numbers."""
    i, last_dot, label, dots, numeric = start, -1, start, 0, True
    while i < end:
        c = codes[i]
        if c == 46:
            if i == label or i - label > 64 or not flag(codes[i - 1], table) & t.HOST:
                return False
            last_dot, label = i, i + 1
            dots += 1
        elif c == 58 or c == 47 or c == 63 or c == 35:  # : / ? #
            break
        else:
            kind = flag(c, table)
            inner = c == 95 or c == 45
            if not (kind & t.HOST or (inner and i > label)):
                return False
            numeric = numeric and kind & t.ASCII_DIGIT != 0
        i += 1
    if last_dot < 0:
        return False
    if not (numeric and dots == 3):
        if not 2 <= i - label <= 63:
            return False
        for j in range(label, i):
            if not (flag(codes[j], table) & t.LOWER_SIDE and flag(codes[j], table) & t.LETTER):
                return False
    if i < end and codes[i] == 58:
        j = i + 1
        while j < end and flag(codes[j], table) & t.ASCII_DIGIT:
            j += 1
        if not 2 <= j - i - 1 <= 5:
            return False
        i = j
    return i == end or codes[i] == 47 or codes[i] == 63 or codes[i] == 35


@njit
def _address(codes: Any, a: int, b: int, table: Any) -> bool:
    """Whether codes[a:b] is a web or mail address: it stays one word."""
    first_at, last_at, scheme, dot = -1, -1, -1, False
    for i in range(a, b):
        c = codes[i]
        if c == 46:
            dot = True
        elif c == 64:
            first_at = i if first_at < 0 else first_at
            last_at = i
        elif c == 58 and scheme < 0 and i + 2 < b and codes[i + 1] == 47 and codes[i + 2] == 47 and i - a >= 2:
            scheme = i + 3
    if not dot:
        return False
    if _host(codes, a, b, table) or (scheme >= 0 and _host(codes, scheme, b, table)):
        return True
    return last_at >= 0 and (_host(codes, last_at + 1, b, table) or _host(codes, first_at + 1, b, table))


@njit
def _emit(codes: Any, a: int, b: int, table: Any, out: Any, counts: Any, state: Any) -> None:
    """Write the word codes[a:b], cut at letters of scripts without spaces, to `out`.

    `state` is [a sentence has ended, this line has a word]. A full `out` counts on, so that the caller can start anew.
    """
    hashes, starts, ends, kinds = out
    start = a
    while start < b:
        end = start + 1
        if flag(codes[start], table) & t.SPACELESS:
            while end < b and flag(codes[end], table) & t.MARK:
                end += 1
        else:
            while end < b and not flag(codes[end], table) & t.SPACELESS:
                end += 1
        seen = np.uint32(0)
        always = np.uint32(0xFFFFFFFF)
        for i in range(start, end):
            kind = flag(codes[i], table)
            seen |= kind
            always &= kind
        n = counts[N_WORDS]
        word = 0
        if not always & t.PUNCT:
            word = REAL
            counts[N_REAL_WORDS] += 1
            counts[REAL_WORD_CHARS] += end - start
        if seen & t.ALPHA:
            word |= ALPHABETIC
            counts[N_ALPHA_WORDS] += 1
        if n < len(hashes):
            hashes[n] = string_hash(codes, start, end)
            starts[n], ends[n], kinds[n] = start, end, word
        counts[N_WORDS] = n + 1
        stop = end - start == 1 and seen & t.SENTENCE != 0
        if state[1] == 0:
            state[1] = 1
            state[0] = 1 if stop else 0
            counts[N_SENTENCES] += 1
        elif stop:
            state[0] = 1
        elif state[0] and not always & t.CATEGORY_P:
            state[0] = 0
            counts[N_SENTENCES] += 1
        start = end


@njit
def _emit_parts(codes: Any, a: int, parts: Any, table: Any, out: Any, counts: Any, state: Any) -> None:
    """`parts`: lengths of the words from a on, 8 bits each, first one lowest."""
    while parts:
        length = parts & 255
        _emit(codes, a, a + length, table, out, counts, state)
        a += length
        parts >>= 8


@njit
def _split(
    codes: Any, a: int, b: int, table: Any, keys: Any, parts: Any, unit_keys: Any, out: Any, counts: Any, state: Any,
    suffixes: Any,
) -> bool:  # fmt: skip
    """Words of codes[a:b], which holds no white space. Returns whether it is an address."""
    n_suffixes = 0
    found = _exception(codes, a, b, keys)
    while found < 0 and a < b and n_suffixes < MAX_SUFFIXES:
        prefix = _prefix(codes, a, b, table)
        if prefix:
            if a + prefix < b:
                found = _exception(codes, a + prefix, b, keys)
            if found >= 0:
                _emit(codes, a, a + prefix, table, out, counts, state)
                a += prefix
                break
        suffix = _suffix(codes, a + prefix, b, table, unit_keys)
        if suffix:
            if a < b - suffix:
                found = _exception(codes, a, b - suffix, keys)
            if found >= 0:
                prefix = 0
        if not prefix and not suffix:
            break
        if prefix:
            _emit(codes, a, a + prefix, table, out, counts, state)
            a += prefix
        if suffix:
            b -= suffix
            suffixes[n_suffixes] = suffix
            n_suffixes += 1
        if found < 0 and a < b:
            found = _exception(codes, a, b, keys)
    address = False
    if a < b:
        if found >= 0:
            _emit_parts(codes, a, parts[found], table, out, counts, state)
        elif _address(codes, a, b, table):
            address = True
            _emit(codes, a, b, table, out, counts, state)
        else:
            start, i = a, a
            while i < b:
                infix = _infix(codes, i, a, b, table)
                if infix == 0:
                    i += 1
                    continue
                if i > a:
                    if i > start:
                        _emit(codes, start, i, table, out, counts, state)
                    _emit(codes, i, i + infix, table, out, counts, state)
                    start = i + infix
                i += infix
            if start < b:
                _emit(codes, start, b, table, out, counts, state)
    for k in range(n_suffixes - 1, -1, -1):
        _emit(codes, b, b + suffixes[k], table, out, counts, state)
        b += suffixes[k]
    return address


@njit
def words(codes: Any, table: Any, keys: Any, parts: Any, unit_keys: Any, out: Any, counts: Any) -> None:
    """Fill `out` (hashes u64, starts i32, ends i32, kinds u8: all of one length) and `counts` (int64[N_COUNTS]).

    counts[N_WORDS] larger than the length of `out` means that `out` was too small.
    """
    suffixes = np.empty(MAX_SUFFIXES, np.int32)
    state = np.zeros(2, np.int64)
    n, i = len(codes), 0
    while i < n:
        kind = flag(codes[i], table)
        if kind & t.SPACE:
            if codes[i] == 10:
                state[:] = 0
            i += 1
            continue
        start, letters, seen = i, 0, np.uint32(0)
        while i < n:
            kind = flag(codes[i], table)
            if kind & t.SPACE:
                break
            seen |= kind
            if kind & t.ALPHA:
                letters += 1
                if kind & t.UPPER:
                    counts[N_UPPER] += 1
            elif kind & t.DIGIT:
                counts[N_DIGITS] += 1
            elif kind & t.CATEGORY_P:
                counts[N_PUNCTUATION] += 1
            if kind & t.WORD_CHAR:
                counts[N_WORD_CHARS] += 1
            if kind & t.SPACELESS:
                counts[SPACELESS_CHARS] += 1
            i += 1
        counts[N_CHUNKS] += 1
        counts[CHUNK_CHARS] += i - start
        counts[N_LETTERS] += letters
        if seen & t.ALPHA:
            counts[N_ALPHA_CHUNKS] += 1
        if _split(codes, start, i, table, keys, parts, unit_keys, out, counts, state, suffixes) or _has_scheme(codes, start, i):
            counts[ADDRESS_LETTERS] += letters


@njit
def _has_scheme(codes: Any, start: int, end: int) -> bool:
    for i in range(start, end - 2):
        if codes[i] == 58 and codes[i + 1] == 47 and codes[i + 2] == 47:
            return True
    return False
