"""A page in one pass over its bytes, without a tree: its elements, and its blocks of text with what can be counted.

A block is a run of text between two block-level tags (start or end) or two <br>. Time and memory are linear in the
page: nesting is cut at state.MAX_OPEN levels, beyond which what elements hold belongs to the one open there, and pages
of more than MAX_BLOCKS blocks have the rest in the last one. No text is lost in either case.
"""

from __future__ import annotations

import html as html_module
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.compiled import njit
from pipeline.extract import elements, entities, markup, tags
from pipeline.extract import state as st
from pipeline.extract.characters import character_kinds
from pipeline.extract.state import (
    BOLD_CHARS,
    BREAKS,
    CHARS,
    CJK,
    COMMAS,
    DIGITS,
    END_KIND,
    HIDDEN,
    IMAGES,
    LINK_CHARS,
    LINK_WORDS,
    N_COUNTS,
    PUNCTUATION,
    SENTENCES,
    STARTS_UPPER,
    TITLE_WORDS,
    UPPER,
    WORDS,
)
from pipeline.extract.text_run import end_word, text_run
from pipeline.extract.tidy import tidy_line

__all__ = [
    "BOLD_CHARS", "BREAKS", "CHARS", "CJK", "COMMAS", "DIGITS", "END_KIND", "HIDDEN", "IMAGES", "LINK_CHARS",
    "LINK_WORDS", "MAX_BLOCKS", "MAX_ELEMENTS", "N_COUNTS", "PUNCTUATION", "SENTENCES", "STARTS_UPPER", "TITLE_WORDS",
    "UPPER", "WORDS", "Blocks", "is_bare", "scan", "visible_chars",
]  # fmt: skip

MAX_ELEMENTS, MAX_BLOCKS = 1_000_000, 400_000
_LESS = 60  #: <
#: A page with fewer characters, and fewer outside links, is bare
_FEW_CHARS, _FEW_PLAIN_CHARS = 1500, 300
_NOSCRIPT = re.compile(rb"<(/?)noscript", re.IGNORECASE)
_TITLE_BIT = 1 << 62

Ints = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Blocks:
    """A page's m elements, t class tokens, n blocks of text and their s spans, each in document order."""

    html: npt.NDArray[np.uint8]
    # elements; 0 is the root, which has no tag
    parent: Ints  #: [m] -1 for the root, else less than the element's own number
    tag: npt.NDArray[np.int16]  #: [m] index in tags.NAMES
    depth: Ints  #: [m] 0 for the root
    number: Ints  #: [m] of an item in an ordered list; else 0, or the list's last one
    signature: npt.NDArray[np.uint64]  #: [m] hash of the tag and of the class value without digits
    categories: npt.NDArray[np.uint8]  #: [m, len(tags.CATEGORIES)] levels up to the nearest of the kind, tags.NEVER
    token_element: Ints  #: [t] whose class, id, role or itemprop value holds the token
    token_hash: npt.NDArray[np.uint32]  #: [t] class_words.token_hash
    # blocks
    owner: Ints  #: [n] nearest block-level element
    counts: Ints  #: [n, N_COUNTS] columns CHARS ... HIDDEN
    text_hash: npt.NDArray[np.uint64]  #: [n] of the words, case of ASCII letters aside
    first_span: Ints  #: [n + 1] the spans of block b are first_span[b] to first_span[b + 1]
    span_start: Ints  #: [s] bytes of html; character references are not decoded
    span_end: Ints  #: [s]
    span_kind: npt.NDArray[np.uint8]  #: [s] flags state.SPACED, BROKEN, PRE
    title: str | None  #: of <title>, in one line


def scan(html: bytes) -> Blocks:
    """The elements and blocks of a page in UTF-8. Never raises for what the page holds.

    <noscript> is skipped, as by a browser, but where there is next to nothing outside: it is read there.
    """
    blocks = _one_pass(html)
    if is_bare(blocks) and _NOSCRIPT.search(html):
        with_noscript = _one_pass(_NOSCRIPT.sub(rb"<\1div", html))
        if with_noscript.counts[:, WORDS].sum() > 2 * blocks.counts[:, WORDS].sum():
            return with_noscript
    return blocks


def is_bare(blocks: Blocks) -> bool:
    """Whether a page shows so little that its text must be somewhere else."""
    chars = int(blocks.counts[:, CHARS].sum())
    return chars < _FEW_CHARS and chars - int(blocks.counts[:, LINK_CHARS].sum()) < _FEW_PLAIN_CHARS


def visible_chars(blocks: Blocks) -> int:
    """Characters that a browser would show: all text outside hidden elements."""
    return int(blocks.counts[:, CHARS].sum()) - int(blocks.counts[:, HIDDEN].sum())


def _one_pass(html: bytes) -> Blocks:
    n = len(html)
    words = np.empty((n + markup.MARGIN) // 8 + 1, np.uint64)
    page = words.view(np.uint8)
    page[:n] = np.frombuffer(html, np.uint8)
    page[n:] = 0
    tags_at_most = int(np.count_nonzero(page == _LESS))
    room = 4 * tags_at_most + 64
    while True:
        m, blocks = min(tags_at_most + 1, MAX_ELEMENTS), min(tags_at_most + 1, MAX_BLOCKS)
        spans = 2 * tags_at_most + 2
        parent, tag, depth = np.empty(m, np.int32), np.empty(m, np.int16), np.empty(m, np.int32)
        signature, distances = np.empty(m, np.uint64), np.empty((m, tags.CATEGORY_BYTES // 8), np.uint64)
        number, categories = np.empty(m, np.int32), distances.view(np.uint8)
        token_element, token_hash = np.empty(room, np.int32), np.empty(room, np.uint32)
        owner, counts = np.empty(blocks, np.int32), np.empty((blocks, N_COUNTS), np.int32)
        text_hash, first_span = np.empty(blocks, np.uint64), np.empty(blocks + 1, np.int32)
        span_start, span_end = np.empty(spans, np.int32), np.empty(spans, np.int32)
        span_kind, state = np.empty(spans, np.uint8), np.zeros(st.N_STATE, np.int64)
        _scan(
            page, words, n, character_kinds(), *entities.names(), parent, tag, depth, number, signature, categories,
            distances, token_element, token_hash, owner, counts, text_hash, first_span, span_start, span_end, span_kind,
            state, np.empty(m, np.int32), np.empty(st.MAX_OPEN, np.int32), np.empty(st.MAX_OPEN, np.uint8),
            np.zeros(N_COUNTS, np.int64), np.zeros(2, np.uint64), np.zeros(st.TITLE_SLOTS, np.uint64),
        )  # fmt: skip
        if state[st.N_TOKENS] <= room:
            break
        room = int(state[st.N_TOKENS])
    m, t = int(state[st.N_ELEMENTS]), int(state[st.N_TOKENS])
    b, s = int(state[st.N_BLOCKS]), int(state[st.N_SPANS])
    # a copy: a view's layout would depend on m, and other kernels would be compiled once more for m = 1
    of_elements = np.ascontiguousarray(categories[:m, : len(tags.CATEGORIES)])
    title = html[state[st.TITLE_START] : state[st.TITLE_END]].decode("utf-8", "replace")
    return Blocks(
        page[:n], parent[:m], tag[:m], depth[:m], number[:m], signature[:m], of_elements,
        token_element[:t], token_hash[:t], owner[:b], counts[:b], text_hash[:b], first_span[: b + 1], span_start[:s],
        span_end[:s], span_kind[:s],
        tidy_line(html_module.unescape(title)) or None,
    )  # fmt: skip


@njit
def _end_block(
    final: bool, stack: Any, block: Any, owner: Any, counts: Any, text_hash: Any, first_span: Any, s: Any, c: Any,
    hashes: Any, title: Any,
) -> None:  # fmt: skip
    """Store the open block if it has text, and begin a new one."""
    n = s[st.N_BLOCKS]
    if not s[st.ANY]:
        s[st.N_SPANS] = first_span[n]  # white space in <pre>
        c[st.IMAGES] = c[st.BREAKS] = 0
        return
    if s[st.IN_WORD]:
        end_word(hashes[0], hashes, title, s, c)
    s[st.IN_WORD] = 0
    if n + 1 == owner.size and not final:
        s[st.SPACE], s[st.N_BREAKS] = 1, 1
        return
    c[st.SENTENCES] += s[st.STOP]
    owner[n] = block[stack[s[st.N_OPEN] - 1]]
    for column in range(st.N_COUNTS):
        counts[n, column] = c[column]
    text_hash[n] = hashes[1]
    first_span[n + 1] = s[st.N_SPANS]
    s[st.N_BLOCKS] = n + 1
    _begin_block(s, c, hashes)


@njit
def _begin_block(s: Any, c: Any, hashes: Any) -> None:
    for k in range(st.FIRST_OF_BLOCK, st.N_STATE):
        s[k] = 0
    for column in range(st.N_COUNTS):
        c[column] = 0
    hashes[1] = np.uint64(0)


@njit
def _end_word(s: Any, c: Any, hashes: Any, title: Any) -> None:
    """What follows is apart from the text so far."""
    if s[st.IN_WORD]:
        end_word(hashes[0], hashes, title, s, c)
        s[st.IN_WORD] = 0
    s[st.SPACE] = s[st.ANY]


@njit
def _skipped(html: Any, words: Any, i: int, n: int, t: int, s: Any) -> Any:
    """Where what has no text of the page, whose start tag has ended at i, is over."""
    bit = 1 << (t - tags.SCRIPT)
    subtree = tags.FLAGS[t] & tags.SUBTREE != 0
    if s[st.UNCLOSED] & bit or (subtree and html[i - 2] == 47):  # <svg/>
        return i
    end = markup.subtree_end(html, words, i, n, t) if subtree else markup.raw_end(html, words, i, n, t)
    if end < n:
        return min(markup.find(words, 62, end, n) + 1, n)
    if t == tags.SCRIPT or t == tags.STYLE:  # takes the rest of the page, as in a browser
        return n
    s[st.UNCLOSED] |= bit
    return i


@njit
def _scan(
    html: Any, words: Any, n: int, kinds: Any, entity_keys: Any, entity_values: Any, parent: Any, tag: Any, depth: Any,
    number: Any, signature: Any, categories: Any, distances: Any, token_element: Any, token_hash: Any, owner: Any,
    counts: Any, text_hash: Any,
    first_span: Any, span_start: Any, span_end: Any, span_kind: Any, s: Any, block: Any, stack: Any, marks: Any,
    c: Any, hashes: Any, title: Any,
) -> None:  # fmt: skip
    """Fill the arrays of `Blocks`; `s` tells how much of them.

    Of work: `block` int32[m] each element's nearest block-level one, `stack` and `marks` the open elements, `c` and
    `hashes` of the open block, `title` the words of the title.
    """
    parent[0], tag[0], depth[0], number[0], block[0], stack[0], marks[0], first_span[0] = -1, 0, 0, 0, 0, 0, 0, 0
    signature[0] = markup.tag_hash(0)
    categories[0, :] = tags.NEVER
    s[st.N_ELEMENTS] = s[st.N_OPEN] = 1
    i = text = 0
    while True:
        i = markup.find(words, 60, i, n)
        after = np.int64(html[i + 1]) if i < n else 0
        if i < n and not (markup.is_letter(after) or after == 33 or after == 47 or after == 63):
            i += 1  # a lone <
            continue
        if i > text:
            k = text
            while k < i and (html[markup.at(k)] == 32 or 9 <= html[markup.at(k)] <= 13):
                k += 1
            if k == i and not s[st.PRES]:
                _end_word(s, c, hashes, title)
            else:
                hidden = categories[stack[s[st.N_OPEN] - 1], tags.HIDDEN_CATEGORY] != tags.NEVER
                if s[st.N_BREAKS] > 1 and not s[st.PRES]:
                    _end_block(False, stack, block, owner, counts, text_hash, first_span, s, c, hashes, title)
                text_run(
                    html, text, i, kinds, entity_keys, entity_values, hidden, span_start, span_end, span_kind, s, c,
                    hashes, title,
                )  # fmt: skip
        if i >= n:
            break
        end_tag = after == 47
        name = i + 2 if end_tag else i + 1
        if not markup.is_letter(html[name]):
            i = text = markup.comment_end(html, words, i, n)
            continue
        t, i = markup.tag_name(html, name, n)
        flags = tags.FLAGS[t]
        if flags & tags.BLOCK:
            _end_block(False, stack, block, owner, counts, text_hash, first_span, s, c, hashes, title)
        elif flags & tags.APART:
            _end_word(s, c, hashes, title)
        if end_tag and t != tags.BR:
            i = text = min(markup.find(words, 62, i, n) + 1, n)
            if not flags & (tags.VOID | tags.RAW | tags.SUBTREE):
                elements.close(t, stack, marks, tag, s)
            continue
        if flags & (tags.VOID | tags.RAW | tags.SUBTREE):
            i = markup.attributes(html, words, i, n, -1, token_element, token_hash, categories, signature, s)
            if t == tags.BR:
                c[st.BREAKS] += 1
                _end_word(s, c, hashes, title)
                s[st.N_BREAKS] += s[st.ANY]
                if s[st.PRES]:
                    k = s[st.N_SPANS]
                    span_start[k], span_end[k], span_kind[k] = i, i, st.PRE | st.BROKEN
                    s[st.N_SPANS] = k + 1
                    s[st.N_BREAKS] = 0
            elif t == tags.IMG or t == tags.IMAGE:
                c[st.IMAGES] += 1
            elif t == tags.TITLE:
                end = n if s[st.UNCLOSED] & _TITLE_BIT else markup.raw_end(html, words, i, n, t)
                if end == n:
                    s[st.UNCLOSED] |= _TITLE_BIT
                    end = markup.find(words, 60, i, n)
                if s[st.TITLE_START] == s[st.TITLE_END]:
                    s[st.TITLE_START], s[st.TITLE_END], s[st.COLLECT] = i, end, 1
                    text_run(
                        html, i, end, kinds, entity_keys, entity_values, False, span_start, span_end, span_kind, s, c,
                        hashes, title,
                    )  # fmt: skip
                    _end_word(s, c, hashes, title)
                    s[st.COLLECT], s[st.N_SPANS] = 0, first_span[s[st.N_BLOCKS]]
                    _begin_block(s, c, hashes)
                i = end
            elif not flags & tags.VOID:
                i = _skipped(html, words, i, n, t, s)
            text = i
            continue
        if flags & tags.BLOCK:
            elements.close_implied(t, stack, marks, tag, s)
        elif t == tags.A:
            elements.close_link(stack, marks, tag, s)
        e = elements.make(t, stack, parent, tag, depth, block, number, categories, distances, s)
        if e >= 0:
            signature[e] = markup.tag_hash(t)
        i = text = markup.attributes(html, words, i, n, e, token_element, token_hash, categories, signature, s)
        if s[st.NUMBERED] and e >= 0:
            if t == tags.OL:
                number[e] = s[st.NUMBER] - 1
            elif t == tags.LI and number[e]:
                number[e] = number[parent[e]] = s[st.NUMBER]
        elements.push(e, t, stack, marks, s)
        if flags & tags.PRE and html[i] == 10:  # not part of the text
            i += 1
            text = i
    _end_block(True, stack, block, owner, counts, text_hash, first_span, s, c, hashes, title)
