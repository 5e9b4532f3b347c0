"""A text's words, lines, paragraphs and sentences, measured once for all who need them.

Words are those of the reference implementation (spaCy's blank English tokenizer, punctuation counted as words of its
own); shared/rules.md 3.1 calls them W. In scripts written without spaces (Thai, Lao, Burmese, Khmer, kana, Han) a word
is one letter with its combining marks: there is no dictionary in the loop, so every such letter weighs the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline import line_kernels, text_kernels, text_tables
from pipeline.text_kernels import Codes, Hashes, Positions

#: Above this many characters the word arrays start at a third of the text's length and grow at need.
_ROOMY = 1 << 20


@dataclass(frozen=True, slots=True)
class Units:
    """All there is to count in one text. Arrays have one entry per word, in order; counts are integers."""

    text: str
    codes: Codes  #: code points, uint32
    hashes: Hashes  #: of the words, 64 bits; equal words have equal hashes
    starts: Positions  #: in characters
    ends: Positions
    sorts: npt.NDArray[np.uint8]  #: text_kernels.REAL | ALPHABETIC
    _words: npt.NDArray[np.int64]
    _lines: npt.NDArray[np.int64]
    _feeds: npt.NDArray[np.int64]

    def count(self, name: int) -> int:
        """Of words, sentences, letters: `name` is one of the indices in text_kernels."""
        return int(self._words[name])

    def line_count(self, name: int) -> int:
        """Of lines as str.splitlines divides them: indices N_LINES ... in line_kernels."""
        return int(self._lines[name])

    def feed_count(self, name: int) -> int:
        """Of what line feeds divide, blank lines left out: indices N_FULL_LINES ... in line_kernels."""
        return int(self._feeds[name])

    @property
    def n_chars(self) -> int:
        return len(self.codes)

    @property
    def n_words(self) -> int:
        """Words with at least one character that is not punctuation."""
        return self.count(text_kernels.N_REAL_WORDS)

    @property
    def n_letters(self) -> int:
        """Letters outside web and mail addresses."""
        return self.count(text_kernels.N_LETTERS) - self.count(text_kernels.ADDRESS_LETTERS)

    @property
    def spaceless(self) -> bool:
        """Whether more than half of the word characters are of scripts written without spaces."""
        return 2 * self.count(text_kernels.SPACELESS_CHARS) > self.count(text_kernels.N_WORD_CHARS)

    def words(self) -> list[str]:
        """The words as strings; for people and tests, since it is slow."""
        return [self.text[a:b] for a, b in zip(self.starts.tolist(), self.ends.tolist(), strict=True)]


def measure(text: str) -> Units:
    """Everything countable in `text`, in time linear in its length. Lone surrogates and NUL are characters too."""
    codes = code_points(text)
    counts, out = _words(codes)
    n = int(counts[text_kernels.N_WORDS])
    hashes, starts, ends, sorts = (column[:n] for column in out)
    table = text_tables.character_flags()
    lines, feeds = np.zeros(line_kernels.N_LINE_COUNTS, np.int64), np.zeros(line_kernels.N_FEED_COUNTS, np.int64)
    line_kernels.lines(codes, table, lines)
    sets = np.zeros((2, line_kernels.table_size(text.count("\n") + 1)), np.uint64)
    line_kernels.feeds(codes, table, sets[0], sets[1], feeds)
    return Units(text, codes, hashes, starts, ends, sorts, counts, lines, feeds)


def count_words(text: str) -> int:
    """Words with at least one character that is not punctuation: the `n_words` of every dataset."""
    return int(_words(code_points(text))[0][text_kernels.N_REAL_WORDS])


def count_letters(text: str) -> int:
    """Letters outside web and mail addresses."""
    counts = _words(code_points(text))[0]
    return int(counts[text_kernels.N_LETTERS] - counts[text_kernels.ADDRESS_LETTERS])


def code_points(text: str) -> Codes:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def word_hash(word: str) -> int:
    """The hash that `word` has in `Units.hashes`."""
    return int(text_kernels.string_hash(code_points(word), 0, len(word)))


def hash_table(hashes: npt.NDArray[np.uint64]) -> tuple[Hashes, npt.NDArray[np.int64]]:
    """An open-addressing table for text_kernels.lookup, and for each slot the index of its hash (-1: empty)."""
    size = line_kernels.table_size(len(hashes))
    keys, index = np.zeros(size, np.uint64), np.full(size, -1, np.int64)
    for i, key in enumerate(hashes.tolist()):
        slot = key & (size - 1)
        while keys[slot] and int(keys[slot]) != key:
            slot = (slot + 1) & (size - 1)
        keys[slot], index[slot] = key, i
    return keys, index


@cache
def _exceptions() -> tuple[Hashes, npt.NDArray[np.int64], Hashes]:
    """Tables of the strings with a division of their own (hash slots, packed lengths) and of the units."""
    table = text_tables.exceptions()
    keys, index = hash_table(np.array([word_hash(word) for word in table], np.uint64))
    packed = np.array([sum(n << (8 * i) for i, n in enumerate(parts)) for parts in table.values()], np.int64)
    units, _ = hash_table(np.array([word_hash(unit) for unit in text_tables.units()], np.uint64))
    return keys, np.where(index >= 0, packed[index], 0), units


def _words(codes: Codes) -> tuple[npt.NDArray[np.int64], tuple[Any, ...]]:
    keys, parts, units = _exceptions()
    n = len(codes)
    state, suffixes = np.zeros(2, np.int64), np.empty(text_kernels.MAX_SUFFIXES, np.int32)
    scratch = np.empty(n, np.uint32)  # touched only as far as the longest run without white space
    room = n if n <= _ROOMY else n // 3
    while True:
        out = (np.empty(room, np.uint64), np.empty(room, np.int32), np.empty(room, np.int32), np.empty(room, np.uint8))
        counts = np.zeros(text_kernels.N_COUNTS, np.int64)
        state[:] = 0
        text_kernels.words(
            codes, text_tables.character_flags(), keys, parts, units, *out, counts, state, suffixes, scratch
        )
        if counts[text_kernels.N_WORDS] <= room:
            return counts, out
        room = int(counts[text_kernels.N_WORDS])
