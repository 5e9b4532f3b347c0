"""The open elements: what a start or end tag opens and closes. Near HTML5's tree, in linear time."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.compiled import njit
from pipeline.extract import state as st
from pipeline.extract import tags

_ONES = np.uint64(0x0101010101010101)
_TO_128 = _ONES * np.uint64(128 - (tags.NEVER - 1))


@njit
def make(
    t: int, stack: Any, parent: Any, tag: Any, depth: Any, block: Any, number: Any, categories: Any, distances: Any,
    s: Any,
) -> Any:  # fmt: skip
    """The number of a new element in the one that is open; -1 where there is no room for it.

    `distances` are the bytes of `categories` as uint64.
    """
    e = s[st.N_ELEMENTS]
    if e >= parent.size:
        return -1
    flags = tags.FLAGS[t]
    if s[st.N_OPEN] >= st.MAX_OPEN or (s[st.N_OPEN] >= st.MAX_OPEN_INLINE and not flags & tags.BLOCK):
        return -1
    s[st.N_ELEMENTS] = e + 1
    above = stack[s[st.N_OPEN] - 1]
    parent[e], tag[e], depth[e] = above, t, depth[above] + 1
    block[e] = e if flags & tags.BLOCK else block[above]
    number[e] = 0
    if t == tags.LI and tag[above] == tags.OL:
        number[above] += 1
        number[e] = number[above]
    for k in range(distances.shape[1]):  # eight columns at a time: one more, but for those at NEVER - 1 and NEVER
        of_above = distances[above, k]
        distances[e, k] = of_above + (_ONES ^ (of_above + _TO_128) >> np.uint64(7) & _ONES)
    if tags.TAG_CATEGORY[t] >= 0:
        categories[e, tags.TAG_CATEGORY[t]] = 0
    return e


@njit
def push(e: int, t: int, stack: Any, marks: Any, s: Any) -> None:
    """Open element e (-1: one there was no room for), whose start tag was read last."""
    flags = tags.FLAGS[t]
    if e < 0:
        s[st.OVER_BLOCK if flags & tags.BLOCK else st.OVER_INLINE] += 1
        return
    mark = 0
    if t == tags.A:
        if s[st.LINKED]:
            mark = st.OPEN_LINK
            s[st.LINKS] += 1
    elif flags & tags.BOLD:
        mark = st.OPEN_BOLD
        s[st.BOLDS] += 1
    elif flags & tags.PRE:
        mark = st.OPEN_PRE
        s[st.PRES] += 1
    stack[s[st.N_OPEN]], marks[s[st.N_OPEN]] = e, mark
    s[st.N_OPEN] += 1


@njit
def _unmark(mark: int, s: Any) -> None:
    if mark == st.OPEN_LINK:
        s[st.LINKS] -= 1
    elif mark == st.OPEN_BOLD:
        s[st.BOLDS] -= 1
    elif mark == st.OPEN_PRE:
        s[st.PRES] -= 1


@njit
def _close(k: int, marks: Any, s: Any) -> None:
    """Close entry k of the stack and all above it."""
    for j in range(k, s[st.N_OPEN]):
        _unmark(marks[j], s)
    s[st.N_OPEN] = k
    s[st.OVER_BLOCK] = 0
    if k < st.MAX_OPEN_INLINE:
        s[st.OVER_INLINE] = 0


@njit
def _take_out(k: int, stack: Any, marks: Any, s: Any) -> None:
    """Close entry k of the stack alone."""
    _unmark(marks[k], s)
    for j in range(k, s[st.N_OPEN] - 1):
        stack[j], marks[j] = stack[j + 1], marks[j + 1]
    s[st.N_OPEN] -= 1


@njit
def close_implied(t: int, stack: Any, marks: Any, tag: Any, s: Any) -> None:
    """Close what the start of a block-level tag ends without an end tag."""
    flags, level = tags.FLAGS[t], tags.TABLE_LEVEL[t]
    lowest = max(s[st.N_OPEN] - st.REACH, 1)
    found = -1
    if level or flags & (tags.ITEM | tags.TERM):
        for k in range(s[st.N_OPEN] - 1, lowest - 1, -1):
            open_tag = tag[stack[k]]
            if open_tag == tags.TABLE:
                break
            open_flags = tags.FLAGS[open_tag]
            if level:
                if 0 < tags.TABLE_LEVEL[open_tag] <= level:
                    found = k
            elif flags & tags.ITEM:
                if open_flags & tags.ITEM:
                    found = k
                if open_flags & (tags.ITEM | tags.LIST | tags.FENCE):
                    break
            else:
                if open_flags & tags.TERM:
                    found = k
                if open_flags & (tags.TERM | tags.FENCE) or open_tag == tags.DL:
                    break
    if found >= 0:
        _close(found, marks, s)
        return
    if flags & tags.CLOSES_P:
        for k in range(s[st.N_OPEN] - 1, lowest - 1, -1):
            open_tag = tag[stack[k]]
            if open_tag == tags.P or (flags & tags.HEADING and tags.FLAGS[open_tag] & tags.HEADING):
                _close(k, marks, s)
                return
            if tags.FLAGS[open_tag] & tags.BLOCK:
                return


@njit
def close_link(stack: Any, marks: Any, tag: Any, s: Any) -> None:
    """Close the open `a` that another `a` ends."""
    for k in range(s[st.N_OPEN] - 1, max(s[st.N_OPEN] - st.REACH, 1) - 1, -1):
        open_tag = tag[stack[k]]
        if open_tag == tags.A:
            _take_out(k, stack, marks, s)
            return
        if tags.FLAGS[open_tag] & tags.FENCE:
            return


@njit
def close(t: int, stack: Any, marks: Any, tag: Any, s: Any) -> None:
    """Close the element that the end tag `t` names, if one is open within reach."""
    flags, level = tags.FLAGS[t], tags.TABLE_LEVEL[t]
    if t == tags.HTML or t == tags.BODY:  # what stands after them is part of the body too
        return
    over = st.OVER_BLOCK if flags & tags.BLOCK else st.OVER_INLINE
    if s[over]:
        s[over] -= 1
        return
    for k in range(s[st.N_OPEN] - 1, max(s[st.N_OPEN] - st.REACH, 1) - 1, -1):
        open_tag = tag[stack[k]]
        open_flags = tags.FLAGS[open_tag]
        if open_tag == t or (flags & tags.HEADING and open_flags & tags.HEADING):
            if flags & tags.ALONE:
                _take_out(k, stack, marks, s)
            else:
                _close(k, marks, s)
            return
        if level:
            if open_tag == tags.TABLE:
                return
        elif t != tags.TABLE and open_flags & tags.FENCE:
            return
        if flags & tags.ITEM and open_flags & tags.LIST:
            return
        if flags & tags.TERM and open_tag == tags.DL:
            return
