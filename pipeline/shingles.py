"""A text as a set of shingles: what dedup means by "the same" and by "similar".

Definition (the law is the public scorer's): NFKC of the lower-cased text, runs of `\\w`; a *unit* is such a word, or
one character of the joined words where more than half of them are of scripts written without spaces; a *shingle* is `n`
units in a row, and a text shorter than one shingle is one shingle.

One numba pass over code points yields the unit stream; the exact hash and the shingle hashes both come from it, so
equal exact hashes mean equal shingle sets. Lower-casing and NFKC are a table lookup per code point wherever that is
provably the same as Python's (no composing mark, no final sigma); other texts go through `unicodedata`.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
import xxhash

from pipeline.compiled import njit
from pipeline.recipe import Dedup

#: Thai to Lao, Burmese, Khmer, kana, Han: scripts without spaces between words (first and last code point).
UNSPACED = ((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x3040, 0x30FF), (0x3400, 0x9FFF))
#: Names the hash below; a stored signature of another version is refused.
HASH_VERSION = "units-fmix64-v1"

_NUMBER = re.compile(r"\d+(?:[.,،٫⎖⎗⎘]\d+)?")
_LIMIT = 0x40000  # no word character lies above plane 3 (a test holds Python's tables to it)
SEPARATOR = 0x20  #: between the words of a stream
#: Where lower-casing or NFKC may change a character: all but Han, Hangul syllables and surrogates (a test tries all).
_CHANGEABLE = (range(0x3400), range(0xA000, 0xAC00), range(0xE000, 0x20000), range(0x2F800, 0x2FA20))
_EXPANDS = np.uint32(1 << 30)  # flag in a table entry: the low bits point into the expansions
_SLOW = np.uint32(1 << 31)  # flag: only unicodedata knows, because the neighbours matter
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_BASE = np.uint64(0xD6E8FEB86659FD93)

Hashes = npt.NDArray[np.uint32]
Longs = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Shingles:
    """One text's identity. `hashes`: sorted unique uint32, empty where the text has no word character."""

    exact_hash: str
    hashes: Hashes
    n_units: int
    by_character: bool
    single: str | None  # where all shingles are one: its 128-bit hash, because 32 bits alone would merge strangers


def shingle(text: str, settings: Dedup) -> Shingles:
    """Exact hash and shingle hashes of `text`, in linear time; lone surrogates count as separators."""
    stream, by_character = _unit_stream(text, settings.fold_numbers)
    if len(stream) == 0:
        # No word at all: only the very same text is a copy, and there is no signature.
        raw = text.encode("utf-8", "surrogatepass")
        return Shingles(xxhash.xxh3_128_hexdigest(b"\0" + raw), np.empty(0, np.uint32), 0, False, None)
    units = stream.astype(np.uint64) if by_character else _words(stream)
    hashes = _sorted_unique(_shingles(units, settings.shingle))
    single = (
        xxhash.xxh3_128_hexdigest(_first_shingle(stream, by_character, settings.shingle)) if len(hashes) == 1 else None
    )
    return Shingles(xxhash.xxh3_128_hexdigest(stream.data), hashes, len(units), by_character, single)


def shingle_hashes(text: str, settings: Dedup) -> Hashes:
    """Sorted unique 32-bit hashes of the text's shingles; empty where there is no word character."""
    return shingle(text, settings).hashes


def exact_hash(text: str, settings: Dedup) -> str:
    """xxh3_128 (32 hex digits) of the unit stream: UTF-32-LE of the words joined by one space, or of the characters."""
    return shingle(text, settings).exact_hash


def shingle_hash(one: bytes) -> int:
    """The 32-bit hash of one shingle, given as UTF-8 of its units joined by single spaces: a datasketch `hashfunc`."""
    units = one.decode("utf-8").split(" ")
    stream = np.frombuffer(" ".join(units).encode("utf-32-le"), np.uint32)
    return int(_shingles(_words(stream), len(units))[0])


def units(text: str, settings: Dedup) -> list[str]:
    """The units of `text` in order, for people and tests."""
    stream, by_character = _unit_stream(text, settings.fold_numbers)
    decoded = stream.tobytes().decode("utf-32-le")
    return list(decoded) if by_character else decoded.split(" ") if decoded else []


def _first_shingle(stream: Hashes, by_character: bool, n: int) -> bytes:
    if by_character:
        return stream[:n].tobytes()
    ends = np.flatnonzero(stream == SEPARATOR)
    return (stream[: ends[n - 1]] if len(ends) >= n else stream).tobytes()


def word_stream(text: str) -> tuple[Hashes, int, int]:
    """(code points of the words joined by single separators, word characters, those of scripts without spaces)."""
    points = _code_points(text)
    table = _lower_nfkc_table()
    longest = table.longest if len(points) else 1
    out = np.empty(len(points) * 2 + longest + 2, np.uint32)
    length, chars, unspaced = _separate(points, table.entries, table.expansions, table.unspaced, out)
    if length < 0:
        points = _code_points(unicodedata.normalize("NFKC", text.lower()))
        out = np.empty(len(points) + 2, np.uint32)
        length, chars, unspaced = _separate(points, _word_table(), table.expansions, table.unspaced, out)
    return out[:length], chars, unspaced


def _unit_stream(text: str, fold_numbers: bool) -> tuple[Hashes, bool]:
    stream, chars, unspaced = word_stream(_NUMBER.sub("0", text) if fold_numbers else text)
    by_character = bool(unspaced * 2 > chars)
    return (stream[stream != SEPARATOR] if by_character else stream), by_character


def _code_points(text: str) -> Hashes:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def _words(stream: Hashes) -> Longs:
    hashes = np.empty(len(stream) // 2 + 1, np.uint64)
    return hashes[: _word_hashes(stream, hashes)]


def _shingles(units: Longs, n: int) -> Hashes:
    n = min(n, len(units))
    hashes = np.empty(len(units) - n + 1, np.uint32)
    _hash_shingles(units, n, np.empty(len(units), np.uint64), hashes)
    return hashes


def _sorted_unique(hashes: Hashes) -> Hashes:
    hashes.sort()
    first = np.empty(len(hashes), np.bool_)  # np.unique is 40 times slower at this size
    first[:1] = True
    np.not_equal(hashes[1:], hashes[:-1], out=first[1:])
    return hashes[first]


# ---------------------------------------------------------------------------------------------------------- tables


@dataclass(frozen=True, slots=True)
class _Table:
    entries: Hashes  # per code point: 0 = separator, else the code point that stands for it, or a flag
    expansions: Hashes  # runs of code points, each after its length
    unspaced: npt.NDArray[np.bool_]
    longest: int


@cache
def _word_table() -> Hashes:
    """entries[c] = c where `\\w` matches c, else 0: for text that is normalised already."""
    points = np.arange(_LIMIT, dtype=np.uint32)
    points[0xD800:0xE000] = 0
    return np.array([p if chr(p).isalnum() or p == 0x5F else 0 for p in points.tolist()], np.uint32)


@cache
def _lower_nfkc_table() -> _Table:
    words = _word_table()
    composing = _composing()
    entries = words.copy()
    expansions: list[int] = []
    longest = 1
    for point in (p for block in _CHANGEABLE for p in block):
        char = chr(point)
        normal = unicodedata.normalize("NFKC", char.lower())
        if point == 0x3A3 or not composing.isdisjoint(normal):
            entries[point] = _SLOW
        elif len(normal) == 1:
            entries[point] = words[ord(normal)]
        elif any(words[ord(c)] for c in normal):
            entries[point] = _EXPANDS | np.uint32(len(expansions))
            expansions.extend([len(normal), *(int(words[ord(c)]) for c in normal)])
            longest = max(longest, len(normal))
        else:
            entries[point] = 0
    unspaced = np.zeros(_LIMIT, np.bool_)
    for first, last in UNSPACED:
        unspaced[first : last + 1] = True
    return _Table(entries, np.array(expansions, np.uint32), unspaced, longest)


def _composing() -> frozenset[str]:
    """Characters that NFKC may join to the one before: second halves of composites, Hangul vowels and finals."""
    seconds = {chr(c) for c in (*range(0x1161, 0x1176), *range(0x11A8, 0x11C3))}
    for point in (p for block in _CHANGEABLE for p in block):
        parts = unicodedata.decomposition(chr(point)).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            seconds.add(chr(int(parts[1], 16)))
    return frozenset(seconds)


# --------------------------------------------------------------------------------------------------------- kernels


@njit
def _separate(
    points: Hashes, entries: Hashes, expansions: Hashes, unspaced: npt.NDArray[np.bool_], out: Hashes
) -> tuple[int, int, int]:
    """Words joined by single separators into `out`; (length, word characters, unspaced ones), length -1 = not known.

    `out` has room for two per point; a text whose expansions need more is not known either.
    """
    length = 0
    chars = 0
    n_unspaced = 0
    open_word = False
    room = len(out) - 2
    for i in range(len(points)):
        point = points[i]
        entry = entries[point] if point < _LIMIT else np.uint32(0)
        if entry == 0:
            open_word = False
            continue
        if entry < _EXPANDS:
            if length >= room:
                return -1, 0, 0
            if not open_word and length > 0:
                out[length] = SEPARATOR
                length += 1
            out[length] = entry
            length += 1
            chars += 1
            n_unspaced += unspaced[entry]
            open_word = True
            continue
        if entry >= _SLOW:
            return -1, 0, 0
        at = int(entry - _EXPANDS)
        for j in range(at + 1, at + 1 + int(expansions[at])):
            entry = expansions[j]
            if entry == 0:
                open_word = False
                continue
            if length >= room:
                return -1, 0, 0
            if not open_word and length > 0:
                out[length] = SEPARATOR
                length += 1
            out[length] = entry
            length += 1
            chars += 1
            n_unspaced += unspaced[entry]
            open_word = True
    return length, chars, n_unspaced


@njit
def _mix(x: np.uint64) -> np.uint64:
    """The 64-bit finalizer of MurmurHash3."""
    x ^= x >> np.uint64(33)
    x *= np.uint64(0xFF51AFD7ED558CCD)
    x ^= x >> np.uint64(33)
    x *= np.uint64(0xC4CEB9FE1A85EC53)
    return x ^ (x >> np.uint64(33))


@njit
def _word_hashes(stream: Hashes, hashes: Longs) -> int:
    """64-bit hash of each word into `hashes`; a word of one character stands as its code point, as characters do."""
    n = 0
    h = np.uint64(0)
    for i in range(len(stream)):
        if stream[i] == SEPARATOR:
            hashes[n] = h
            n += 1
            h = np.uint64(0)
        else:
            h = (h * _BASE) ^ np.uint64(stream[i])
    hashes[n] = h
    return n + 1


@njit
def _hash_shingles(units: Longs, n: int, mixed: Longs, hashes: Hashes) -> None:
    """32-bit hash of each run of `n` units: a rolling polynomial of mixed units, its length and a last mix.

    The order counts, and the cost does not depend on `n`. `mixed` is room for one number per unit.
    """
    power = np.uint64(1)
    for _ in range(n):
        power *= _BASE
    salt = np.uint64(n) * _GOLDEN
    for i in range(len(units)):
        mixed[i] = _mix(units[i] + _GOLDEN)
    rolling = np.uint64(0)
    for i in range(len(units)):
        rolling = rolling * _BASE + mixed[i]
        if i >= n:
            rolling -= mixed[i - n] * power
        if i >= n - 1:
            hashes[i - n + 1] = np.uint32(_mix(rolling ^ salt) >> np.uint64(32))
