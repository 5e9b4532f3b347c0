"""Kept blocks as plain text, their structure kept.

One line per block, in document order; list items begin with `- `, those of ordered lists with `1. `, two spaces in
front per list around theirs; the kept cells of a table's row are one line, divided by ` | `; <br> ends a line; <pre>
keeps its white space, everywhere else a run of it is one space; character references are decoded once. A title that
has been written is not written again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.compiled import njit
from pipeline.extract import characters as ch
from pipeline.extract import entities, tags
from pipeline.extract import state as st
from pipeline.extract.characters import character_kinds
from pipeline.extract.entities import REMOVED, entity
from pipeline.extract.scan import Blocks
from pipeline.extract.structure import structure
from pipeline.text_kernels import flag

at = np.uintp  #: of an index that is not negative: spares numba the look whether it is
_MAX_INDENT = 8  #: levels of lists that are indented
_MAX_TITLES = 32  #: that are remembered


def emit(blocks: Blocks, kept: npt.NDArray[np.bool_]) -> str:
    """The text of the kept blocks (bool[n])."""
    n_spans = int(blocks.first_span[-1])
    source = int((blocks.span_end - blocks.span_start)[:n_spans].sum())
    # a byte that is no UTF-8 becomes three; every span and block brings a few separators
    out = np.empty(3 * source + 2 * n_spans + (2 * _MAX_INDENT + 16) * len(blocks.owner) + 16, np.uint8)
    around = structure(blocks, kept)
    length = _write(
        blocks.html, blocks.owner, blocks.tag, blocks.parent, blocks.number, blocks.categories, blocks.counts,
        blocks.text_hash, blocks.first_span, blocks.span_start, blocks.span_end, blocks.span_kind, kept, *around,
        character_kinds(), *entities.names(), np.empty(_MAX_TITLES, np.uint64), out,
    )  # fmt: skip
    return out[:length].tobytes().decode("utf-8", "replace")


@njit
def _is_title(b: int, owner: Any, tag: Any, parent: Any, categories: Any, counts: Any) -> Any:
    """Whether a block is a heading or so called, and has no word that the page's title has not."""
    if counts[b, st.WORDS] < 2 or counts[b, st.TITLE_WORDS] < counts[b, st.WORDS]:
        return False
    e = owner[b]
    if tags.FLAGS[tag[e]] & tags.HEADING or categories[e, tags.TITLE_CATEGORY] <= 1:
        return True
    return parent[e] >= 0 and tags.FLAGS[tag[parent[e]]] & tags.HEADING != 0


@njit
def _write_code(code: Any, out: Any, k: int) -> int:
    """Append a code point in UTF-8."""
    if code < 0x80:
        out[k] = code
        return k + 1
    if code < 0x800:
        out[k], out[k + 1] = 0xC0 | code >> 6, 0x80 | code & 63
        return k + 2
    if code < 0x10000:
        out[k], out[k + 1], out[k + 2] = 0xE0 | code >> 12, 0x80 | code >> 6 & 63, 0x80 | code & 63
        return k + 3
    out[k], out[k + 1] = 0xF0 | code >> 18, 0x80 | code >> 12 & 63
    out[k + 2], out[k + 3] = 0x80 | code >> 6 & 63, 0x80 | code & 63
    return k + 4


@njit
def _write_span(
    html: Any, i: int, end: int, pre: bool, kinds: Any, entity_keys: Any, entity_values: Any, out: Any, k: int
) -> int:  # fmt: skip
    """Append html[i:end]; returns the new length."""
    while i < end:
        b = np.int64(html[at(i)])
        if 38 < b < 127:
            out[at(k)] = b
            k += 1
            i += 1
            continue
        if b == 32 and not pre:
            if out[at(k - 1)] != 32:
                out[at(k)] = b
                k += 1
            i += 1
            continue
        code, second, size = b, 0, 1
        if b >= 128:
            code, size = ch.decode(html, i, end)
        elif b == 38:
            code, second, size = entity(html, i, end, entity_keys, entity_values)
            if size == 0:
                code, size = b, 1
        kind = ch.NOTHING if code == REMOVED else np.int64(flag(code, kinds))
        if kind & ch.NOTHING:
            i += size
            continue
        if kind & ch.SPACE:
            if not pre:
                if k > 0 and out[k - 1] != 32 and out[k - 1] != 10:
                    out[k] = 32
                    k += 1
            elif code == 13:
                if i + 1 >= end or html[i + 1] != 10:
                    out[k] = 10
                    k += 1
            else:
                out[k] = code if code == 9 or code == 10 else 32
                k += 1
            i += size
            continue
        if b >= 128 and size > 1:
            for j in range(i, i + size):
                out[at(k)] = html[at(j)]
                k += 1
        else:
            k = _write_code(code, out, k)
            if second:
                k = _write_code(second, out, k)
        i += size
    return k


@njit
def _begin(
    e: int, last: int, parent: Any, number: Any, item: Any, level: Any, cell: Any, row: Any, begun: Any, out: Any,
    k: int,
) -> Any:  # fmt: skip
    """Write what stands between the last kept block (of element `last`, -1: none) and the next, of element e.

    Returns the new length and the item that has begun.
    """
    if last >= 0:
        if row[e] >= 0 and row[e] == row[last]:
            if cell[e] != cell[last]:
                out[k], out[k + 1], out[k + 2] = 32, 124, 32  # |
                k += 3
            else:
                out[k] = 32
                k += 1
            return k, begun
        out[k] = 10
        k += 1
    if item[e] > begun and row[e] < 0:  # items are numbered in document order
        for _ in range(2 * min(max(level[e] - 1, 0), _MAX_INDENT)):
            out[k] = 32
            k += 1
        begun = item[e]
        if number[begun] > 0 and (e == begun or parent[e] == begun):  # not where an item holds a whole comment
            digits = 1
            while digits < 9 and 10**digits <= number[begun]:
                digits += 1
            rest = number[begun]
            for j in range(k + digits - 1, k - 1, -1):
                out[j] = 48 + rest % 10
                rest //= 10
            k += digits
            out[k] = 46  # .
        else:
            out[k] = 45  # -
        out[k + 1] = 32
        k += 2
    return k, begun


@njit
def _write(
    html: Any, owner: Any, tag: Any, parent: Any, number: Any, categories: Any, counts: Any, text_hash: Any,
    first_span: Any, span_start: Any, span_end: Any, span_kind: Any, kept: Any, item: Any, level: Any, cell: Any,
    row: Any, kinds: Any, entity_keys: Any, entity_values: Any, titles: Any, out: Any,
) -> int:  # fmt: skip
    """Fill `out`; returns its length. `titles` are the hashes of those written."""
    k, last, n_titles, begun = 0, -1, 0, -1
    for b in range(owner.size):
        if not kept[b]:
            continue
        e = owner[b]
        if _is_title(b, owner, tag, parent, categories, counts):
            known = False
            for t in range(n_titles):
                known = known or titles[t] == text_hash[b]
            if known:
                continue
            if n_titles < titles.size:
                titles[n_titles] = text_hash[b]
                n_titles += 1
        k, begun = _begin(e, last, parent, number, item, level, cell, row, begun, out, k)
        last = e
        start = k
        for s in range(first_span[b], first_span[b + 1]):
            kind = span_kind[s]
            pre = kind & st.PRE != 0
            if s > first_span[b] or pre:
                if kind & st.BROKEN:
                    out[k] = 10 if row[e] < 0 else 32
                    k += 1
                elif kind & st.SPACED and not pre:
                    out[k] = 32
                    k += 1
            k = _write_span(html, span_start[s], span_end[s], pre, kinds, entity_keys, entity_values, out, k)
        while k > start and (out[k - 1] == 32 or out[k - 1] == 10):
            k -= 1
        if k > start and out[start] == 10:  # empty lines at the start of <pre>
            shift = 0
            for j in range(start, k):
                if out[j] == 10:
                    shift = j + 1 - start
                elif out[j] != 32 and out[j] != 9:
                    break
            for j in range(start, k - shift):
                out[j] = out[j + shift]
            k -= shift
    return k
