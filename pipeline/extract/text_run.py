"""One run of text between two tags: counted into the open block, and noted as a span."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.compiled import njit
from pipeline.extract import characters as ch
from pipeline.extract import state as st
from pipeline.extract.entities import REMOVED, entity
from pipeline.text_kernels import flag

at = np.uintp  #: of an index that is not negative: spares numba the look whether it is
_SEED = np.uint64(0xCBF29CE484222325)
_PRIME = np.uint64(0x100000001B3)
_MIX = np.uint64(0x9E3779B97F4A7C15)


@njit
def end_word(word: Any, hashes: Any, title: Any, s: Any, counts: Any) -> None:
    """Mix a word's hash into the block's; tell whether the title has the word, or add it to the title's."""
    word = (word ^ word >> np.uint64(32)) * _MIX
    word |= np.uint64(1)  # 0 is an empty slot
    hashes[1] = (hashes[1] ^ word) * _PRIME
    if not s[st.COLLECT] and not s[st.N_TITLE_WORDS]:
        return
    slot = np.int64(word >> np.uint64(40)) & (st.TITLE_SLOTS - 1)
    while title[slot] != np.uint64(0) and title[slot] != word:
        slot = (slot + 1) & (st.TITLE_SLOTS - 1)
    if title[slot] == word:
        counts[st.TITLE_WORDS] += 1
    elif s[st.COLLECT] and s[st.N_TITLE_WORDS] < st.MAX_TITLE_WORDS:
        title[slot] = word
        s[st.N_TITLE_WORDS] += 1


@njit
def text_run(
    html: Any, begin: int, end: int, kinds: Any, entity_keys: Any, entity_values: Any, hidden: bool,
    span_start: Any, span_end: Any, span_kind: Any, s: Any, counts: Any, hashes: Any, title: Any,
) -> None:  # fmt: skip
    """Add html[begin:end], which has no markup, to the open block.

    `counts` int64[N_COUNTS] are the block's; `hashes` uint64: the word's and the block's; `title` uint64[TITLE_SLOTS].
    """
    space, in_word, stop, ended, any_text = s[st.SPACE], s[st.IN_WORD], s[st.STOP], s[st.ENDED], s[st.ANY]
    last, dots = counts[st.END_KIND], s[st.DOT_RUN]
    word = hashes[0]
    chars = words = sentences = commas = punctuation = digits = upper = spaceless = 0
    first, after, before = -1, begin, 0
    i = begin
    while i < end:
        b = np.int64(html[at(i)])
        code, second, size = b, 0, 1
        if in_word == 1:  # most characters are letters within a word, of one byte or two
            start = i
            while True:
                code, size = b, 1
                if b >= 128:
                    if b < 0xC3 or b >= 0xE0 or i + 2 > end:
                        break
                    code, size = (b & 31) << 6 | (np.int64(html[at(i + 1)]) & 63), 2
                kind = kinds[at(code)]
                if not kind & ch.WORD or kind & ch.SPACELESS:
                    break
                upper += kind >> 5 & 1
                digits += kind >> 4 & 1
                # the flag UPPER is the bit that makes a letter of ASCII small
                word = (word ^ np.uint64(code | (kind & ch.UPPER if size == 1 else 0))) * _PRIME
                chars += 1
                i += size
                if i >= end:
                    break
                b = np.int64(html[at(i)])
            if i > start:
                first = start if first < 0 else first
                after = i
                continue
        if b >= 128:
            code, size = ch.decode(html, i, end)
        elif b == 38:  # &
            code, second, size = entity(html, i, end, entity_keys, entity_values)
            if size == 0:
                code, size = b, 1
            elif code == REMOVED:
                i += size
                continue
        kind = flag(code, kinds)
        if kind & ch.SPACE:
            if in_word:
                end_word(word, hashes, title, s, counts)
                in_word = 0
            space = any_text
            i += size
            continue
        if kind & ch.NOTHING:
            i += size
            continue
        if first < 0:
            first, before = i, space
        chars += 1 + space
        if second:
            chars += 1
        any_text = 1
        i += size
        after = i
        if kind & ch.WORD:
            spaceless_letter = kind & ch.SPACELESS != 0
            if in_word and (spaceless_letter or in_word == 2):
                end_word(word, hashes, title, s, counts)
                in_word = 0
            if not in_word:
                if words == 0 and counts[st.WORDS] == 0:
                    counts[st.STARTS_UPPER] = kind & ch.UPPER != 0
                words += 1
                word = _SEED
                in_word = 1
                if stop:  # 3.5 and example.org are no ends of sentences
                    sentences += space
                    stop = 0
                last, ended, dots = st.END_OTHER, 0, 0
            space = 0
            if spaceless_letter:
                in_word = 2
                spaceless += 1
            if kind & ch.UPPER:
                upper += 1
                code |= 32 if code < 128 else 0
            elif kind & ch.DIGIT:
                digits += 1
            word = (word ^ np.uint64(code)) * _PRIME
            continue
        space = 0
        if kind & ch.MARK:
            word = (word ^ np.uint64(code)) * _PRIME
            continue
        if in_word:
            end_word(word, hashes, title, s, counts)
            in_word = 0
        if kind & ch.ENDER:
            dots = dots + 1 if code == 46 else 0
            last = st.END_DOTS if dots > 2 or kind & ch.DOTS else st.END_SENTENCE
            if not ended:
                ended = 1
                if code == 46:
                    stop = 1
                else:
                    sentences += 1
            elif stop and (code != 46 or dots == 2):
                stop = 0
                sentences += 1
            continue
        dots = 0
        if kind & ch.COMMA:
            commas += 1
            last = st.END_COMMA
            continue
        punctuation += kind & ch.PUNCTUATION != 0
        if kind & ch.COLON:
            last = st.END_COLON
        elif kind & ch.SEMICOLON:
            last = st.END_COMMA
        elif not kind & ch.CLOSER:
            last = st.END_OTHER
    s[st.SPACE], s[st.IN_WORD], s[st.STOP], s[st.ENDED], s[st.ANY] = space, in_word, stop, ended, any_text
    s[st.DOT_RUN] = dots
    hashes[0] = word
    counts[st.END_KIND] = last
    pre = s[st.PRES] > 0
    if first >= 0 or pre:
        n = s[st.N_SPANS]
        kind = st.SPACED if before else 0
        if s[st.N_BREAKS]:
            kind |= st.BROKEN
        if pre:
            first, after = begin, end
            kind |= st.PRE
        span_start[n], span_end[n], span_kind[n] = first, after, kind
        s[st.N_SPANS] = n + 1
        s[st.N_BREAKS] = 0
    counts[st.CHARS] += chars
    counts[st.WORDS] += words
    counts[st.SENTENCES] += sentences
    counts[st.COMMAS] += commas
    counts[st.PUNCTUATION] += punctuation
    counts[st.DIGITS] += digits
    counts[st.UPPER] += upper
    counts[st.CJK] += spaceless
    if s[st.LINKS]:
        counts[st.LINK_CHARS] += chars
        counts[st.LINK_WORDS] += words
    if s[st.BOLDS]:
        counts[st.BOLD_CHARS] += chars
    if hidden:
        counts[st.HIDDEN] += chars
