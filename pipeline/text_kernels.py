"""Words and sentences of a text in one pass over its code points, compiled.

Time is linear in the length of `codes` (uint32 code points). Words are spaCy's blank English ones: split at white
space, then affixes, web addresses, exceptions and infixes, see the comments; a run of letters of a script written
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
def finish(h: Any) -> Any:
    """Spread the bits of a running hash; never 0, which marks an empty slot."""
    h ^= h >> _32
    h *= _MIX
    h ^= h >> _29
    return h if h != np.uint64(0) else np.uint64(1)


@njit
def string_hash(codes: Any, start: int, end: int) -> Any:
    """64-bit hash of codes[start:end]."""
    h = _SEED
    for i in range(start, end):
        h = (h ^ np.uint64(codes[i])) * _PRIME
    return finish(h)


@njit
def lookup(key: Any, keys: Any) -> Any:
    """Slot of `key` in an open-addressing table (size a power of two), or -1."""
    mask = len(keys) - 1
    slot = np.int64(key & np.uint64(mask))
    while keys[slot] != np.uint64(0):
        if keys[slot] == key:
            return slot
        slot = (slot + 1) & mask
    return -1


@njit
def _exception(codes: Any, start: int, end: int, keys: Any) -> Any:
    if end - start > LONGEST_EXCEPTION:
        return -1
    return lookup(string_hash(codes, start, end), keys)


@njit
def _prefix(codes: Any, kinds: Any, a: int, b: int) -> int:
    """Length of what is split off the front of codes[a:b], or 0."""
    if kinds[a] & t.PREFIX:
        return 1
    c = codes[a]
    if c == 46:  # ..
        i = a + 1
        while i < b and codes[i] == 46:
            i += 1
        return i - a if i - a > 1 else 0
    if c == 43:  # + not before a digit
        return 0 if a + 1 < b and kinds[a + 1] & t.ASCII_DIGIT else 1
    if a + 1 < b:  # C$ A$ US$
        if (c == 67 or c == 65) and codes[a + 1] == 36:
            return 2
        if c == 85 and codes[a + 1] == 83 and a + 2 < b and codes[a + 2] == 36:
            return 3
    return 0


@njit
def _suffix(codes: Any, kinds: Any, a: int, b: int, unit_keys: Any) -> int:
    """Length of what is split off the end of codes[a:b], or 0."""
    if a >= b:
        return 0
    c, kind = codes[b - 1], kinds[b - 1]
    if kind & t.SUFFIX:
        return 2 if c == 0x2026 and b - 2 >= a and codes[b - 2] == 0x2026 else 1
    if b - 2 < a:
        return 0
    before = kinds[b - 2]
    if (c == 115 or c == 83) and (codes[b - 2] == 39 or codes[b - 2] == 0x2019):  # 's
        return 2
    if c == 46:
        i = b - 1
        while i > a and codes[i - 1] == 46:
            i -= 1
        if b - i > 1:
            return b - i
        if before & t.STOP_SIDE:
            return 1
        if b - 3 < a:
            return 0
        if before & t.UPPER_SIDE and kinds[b - 3] & t.UPPER_SIDE:
            return 1
        degree = codes[b - 2] | 32
        return 1 if codes[b - 3] == 0xB0 and (degree == 102 or degree == 99 or degree == 107) else 0
    if c == 43:
        return 1 if before & t.ASCII_DIGIT else 0
    if not kind & t.ASCII_DIGIT:
        for i in range(b - 1, max(a, b - 5), -1):  # a unit after a digit
            if kinds[i - 1] & t.ASCII_DIGIT:
                return b - i if lookup(string_hash(codes, i, b), unit_keys) >= 0 else 0
    return 0


@njit
def _infix(codes: Any, kinds: Any, i: int, a: int, b: int) -> int:
    """Length of what splits codes[a:b] at i, a character that may, or 0."""
    c, kind = codes[i], kinds[i]
    if kind & t.ICON or c == 0x2026:
        return 1
    if c == 46:
        same = 1
        while i + same < b and codes[i + same] == 46:
            same += 1
        if same > 1:
            return same
    if i == a or i + 1 >= b:
        return 0
    before, after = kinds[i - 1], kinds[i + 1]
    if c == 46:
        return 1 if before & t.LOWER_SIDE and after & t.UPPER_SIDE else 0
    arithmetic = c == 43 or c == 45 or c == 42 or c == 94
    if arithmetic and before & t.ASCII_DIGIT and (after & t.ASCII_DIGIT or codes[i + 1] == 45):
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
        return same if fits and i + same < b and kinds[i + same] & t.LETTER else 0
    return 0


@njit
def _host(codes: Any, kinds: Any, start: int, end: int) -> bool:
    """Whether codes[start:end] is host[:port][/path]: labels and dots, then a lower-case ending; or four numbers."""
    i, last_dot, label, dots, numeric = start, -1, start, 0, True
    while i < end:
        c = codes[i]
        if c == 46:
            if i == label or i - label > 64 or not kinds[i - 1] & t.HOST:
                return False
            last_dot, label = i, i + 1
            dots += 1
        elif c == 58 or c == 47 or c == 63 or c == 35:  # : / ? #
            break
        else:
            if not (kinds[i] & t.HOST or ((c == 95 or c == 45) and i > label)):
                return False
            numeric = numeric and kinds[i] & t.ASCII_DIGIT != 0
        i += 1
    if last_dot < 0:
        return False
    if not (numeric and dots == 3):
        if not 2 <= i - label <= 63:
            return False
        for j in range(label, i):
            if not (kinds[j] & t.LOWER_SIDE and kinds[j] & t.LETTER):
                return False
    if i < end and codes[i] == 58:
        j = i + 1
        while j < end and kinds[j] & t.ASCII_DIGIT:
            j += 1
        if not 2 <= j - i - 1 <= 5:
            return False
        i = j
    return i == end or codes[i] == 47 or codes[i] == 63 or codes[i] == 35


@njit
def _address(codes: Any, kinds: Any, a: int, b: int) -> bool:
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
    if _host(codes, kinds, a, b) or (scheme >= 0 and _host(codes, kinds, scheme, b)):
        return True
    return last_at >= 0 and (_host(codes, kinds, last_at + 1, b) or _host(codes, kinds, first_at + 1, b))


@njit
def _write(
    position: int, length: int, key: Any, seen: Any, always: Any, hashes: Any, starts: Any, ends: Any, sorts: Any,
    counts: Any, state: Any,
) -> None:  # fmt: skip
    """Append one word, whose characters have all flags of `always` and, together, those of `seen`.

    `state` is [a sentence has ended, this line has a word]. A full output counts on, so that the caller can start anew.
    """
    n = counts[N_WORDS]
    sort = 0
    if not always & t.PUNCT:
        sort = REAL
        counts[N_REAL_WORDS] += 1
        counts[REAL_WORD_CHARS] += length
    if seen & t.ALPHA:
        sort |= ALPHABETIC
        counts[N_ALPHA_WORDS] += 1
    if n < len(hashes):
        hashes[n] = key
        starts[n] = position
        ends[n] = position + length
        sorts[n] = sort
    counts[N_WORDS] = n + 1
    stop = length == 1 and seen & t.SENTENCE != 0
    if state[1] == 0:
        state[1] = 1
        state[0] = 1 if stop else 0
        counts[N_SENTENCES] += 1
    elif stop:
        state[0] = 1
    elif state[0] and not always & t.CATEGORY_P:
        state[0] = 0
        counts[N_SENTENCES] += 1


@njit
def _emit(
    codes: Any, kinds: Any, a: int, b: int, hashes: Any, starts: Any, ends: Any, sorts: Any, counts: Any, state: Any,
    base: int,
) -> None:  # fmt: skip
    """Append the word codes[a:b]; with letters of scripts without spaces: each of them, and punctuation, by itself."""
    seen, always = np.uint32(0), np.uint32(0xFFFFFFFF)
    for i in range(a, b):
        seen |= kinds[i]
        always &= kinds[i]
    if not seen & t.SPACELESS:
        key = string_hash(codes, a, b)
        _write(base + a, b - a, key, seen, always, hashes, starts, ends, sorts, counts, state)
        return
    start = a
    while start < b:
        end = start + 1
        seen = always = kinds[start]
        alone = seen & (t.SPACELESS | t.CATEGORY_P) != 0
        while end < b and (kinds[end] & t.MARK if alone else not kinds[end] & (t.SPACELESS | t.CATEGORY_P)):
            seen |= kinds[end]
            always &= kinds[end]
            end += 1
        key = string_hash(codes, start, end)
        _write(base + start, end - start, key, seen, always, hashes, starts, ends, sorts, counts, state)
        start = end


@njit
def _split(
    codes: Any, kinds: Any, parts: Any, keys: Any, unit_keys: Any, suffixes: Any,
    hashes: Any, starts: Any, ends: Any, sorts: Any, counts: Any, state: Any, base: int,
) -> bool:  # fmt: skip
    """Words of one chunk without white space that begins at `base` in the text. Returns whether it is an address."""
    a, b, n_suffixes = 0, len(codes), 0
    found = _exception(codes, a, b, keys)
    while found < 0 and a < b and n_suffixes < MAX_SUFFIXES:
        prefix = _prefix(codes, kinds, a, b)
        if prefix and a + prefix < b:
            found = _exception(codes, a + prefix, b, keys)
        suffix = 0
        if found < 0:
            suffix = _suffix(codes, kinds, a + prefix, b, unit_keys)
            if suffix and a < b - suffix:
                found = _exception(codes, a, b - suffix, keys)
                prefix = 0 if found >= 0 else prefix
        if not prefix and not suffix:
            break
        if prefix:
            _emit(codes, kinds, a, a + prefix, hashes, starts, ends, sorts, counts, state, base)
            a += prefix
        if suffix:
            b -= suffix
            suffixes[n_suffixes] = suffix
            n_suffixes += 1
        if found < 0:
            found = _exception(codes, a, b, keys)
    address = False
    if found >= 0:
        lengths = parts[found]  # of the words from a on, 8 bits each, first one lowest
        while lengths:
            length = lengths & 255
            _emit(codes, kinds, a, a + length, hashes, starts, ends, sorts, counts, state, base)
            a += length
            lengths >>= 8
    elif a < b:
        address = _address(codes, kinds, a, b)
        start, i = a, a
        while i < b and not address:
            infix = _infix(codes, kinds, i, a, b) if kinds[i] & t.INFIX else 0
            if infix and i > a:
                if i > start:
                    _emit(codes, kinds, start, i, hashes, starts, ends, sorts, counts, state, base)
                _emit(codes, kinds, i, i + infix, hashes, starts, ends, sorts, counts, state, base)
                start = i + infix
            i += max(infix, 1)
        if start < b:
            _emit(codes, kinds, start, b, hashes, starts, ends, sorts, counts, state, base)
    for k in range(n_suffixes - 1, -1, -1):
        _emit(codes, kinds, b, b + suffixes[k], hashes, starts, ends, sorts, counts, state, base)
        b += suffixes[k]
    return address


@njit
def words(
    codes: Any, table: Any, keys: Any, parts: Any, unit_keys: Any,
    hashes: Any, starts: Any, ends: Any, sorts: Any, counts: Any, state: Any, suffixes: Any, scratch: Any,
) -> None:  # fmt: skip
    """Fill `hashes` (u64), `starts`, `ends` (i32), `sorts` (u8), all of one length, and `counts` (int64[N_COUNTS]).

    counts[N_WORDS] larger than the length of `hashes` means that there was too little room. Room to work in: `state`
    int64[2] of zeros, `suffixes` int32[MAX_SUFFIXES], `scratch` uint32[as long as the longest run without white space].
    """
    n, i = len(codes), 0
    while i < n:
        c = codes[i]
        kind = table[c] if c < t.TABLE_SIZE else flag(c, table)
        if kind & t.SPACE:
            if c == 10:
                state[0] = 0
                state[1] = 0
            i += 1
            continue
        start, letters = i, 0
        seen, always = np.uint32(0), np.uint32(0xFFFFFFFF)
        key = _SEED
        while not kind & t.SPACE:
            scratch[i - start] = kind
            key = (key ^ np.uint64(c)) * _PRIME
            seen |= kind
            always &= kind
            if kind & t.ALPHA:
                letters += 1
                counts[N_UPPER] += kind & t.UPPER != 0
            else:
                counts[N_DIGITS] += kind & t.DIGIT != 0
                counts[N_PUNCTUATION] += kind & t.CATEGORY_P != 0
            counts[N_WORD_CHARS] += kind & t.WORD_CHAR != 0
            counts[SPACELESS_CHARS] += kind & t.SPACELESS != 0
            i += 1
            if i == n:
                break
            c = codes[i]
            kind = table[c] if c < t.TABLE_SIZE else flag(c, table)
        length = i - start
        counts[N_CHUNKS] += 1
        counts[CHUNK_CHARS] += length
        counts[N_LETTERS] += letters
        if seen & t.ALPHA:
            counts[N_ALPHA_CHUNKS] += 1
        if always & t.ALPHA and not seen & t.SPACELESS:  # nothing but letters: four words of five
            key = finish(key)
            if length > LONGEST_EXCEPTION or lookup(key, keys) < 0:
                _write(start, length, key, seen, always, hashes, starts, ends, sorts, counts, state)
                continue
        chunk, kinds = codes[start:i], scratch[:length]
        address = _split(
            chunk, kinds, parts, keys, unit_keys, suffixes, hashes, starts, ends, sorts, counts, state, start
        )
        if address or _has_scheme(chunk):
            counts[ADDRESS_LETTERS] += letters


@njit
def _has_scheme(codes: Any) -> bool:
    for i in range(len(codes) - 2):  # noqa: SIM110 - compiled code has no generators
        if codes[i] == 58 and codes[i + 1] == 47 and codes[i + 2] == 47:
            return True
    return False
