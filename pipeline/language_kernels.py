"""What a fastText supervised model does with a text, in machine code: words to rows, rows to sums, sums to a label.

Rules as in fastText 0.9.2 (dictionary.cc, loss.cc): a word is what ASCII white space or NUL bounds; a line feed is the
word `</s>`, and that word ends the line even where the text spells it out; labels among the words count for nothing.
Sums are of 64-bit floats in the order of the text, over the word's vector rounded to 32 bits, be it cached or not: no
result depends on what was read before.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.compiled import njit

LINE_FEED, OPEN, CLOSE = 10, 60, 62
LABEL_PREFIX = np.frombuffer(b"__label__", np.uint8)


class Words(NamedTuple):
    """How words become rows of the input matrix: R rows, D columns; N names in the dictionary, words before labels."""

    rows: npt.NDArray[np.float32]  #: [R, D]
    names: npt.NDArray[np.uint8]  #: their bytes, one after the other
    ends: npt.NDArray[np.int64]  #: [N + 1], where each begins in `names`, and the end
    slots: npt.NDArray[np.int32]  #: open addressing by fastText's hash: entry or -1
    pruned: npt.NDArray[np.int32]  #: [buckets] row after the words or -1; [0] where every bucket has its row
    sizes: npt.NDArray[np.int64]  #: words, buckets (0: no character n-grams), minn, maxn, entry `</s>` or -1


class Seen(NamedTuple):
    """The words met last, one per slot of a power of two: a newer one takes the slot."""

    keys: npt.NDArray[np.uint64]
    checks: npt.NDArray[np.uint32]  #: with the key 96 bits of hash, which stand for the word
    counts: npt.NDArray[np.int32]  #: rows in the sum
    vectors: npt.NDArray[np.float32]  #: [slots, D]
    scratch: npt.NDArray[np.float64]  #: [D]


class Tree(NamedTuple):
    """Huffman tree over L labels, which are its first nodes; the root is the last. Children of a label: -1."""

    left: npt.NDArray[np.int32]  #: [2 L - 1]
    right: npt.NDArray[np.int32]
    stack: npt.NDArray[np.int32]  #: [2 L], scratch
    stack_scores: npt.NDArray[np.float64]


@njit
def index_names(words: Any) -> None:
    """Fill `words.slots`, all -1 before. A later entry of the same name takes the place of an earlier one."""
    for entry in range(words.ends.size - 1):
        begin, end = words.ends[entry], words.ends[entry + 1]
        code = np.uint64(2166136261)
        for at in range(begin, end):
            code = _hash(code, words.names[at])
        words.slots[_slot(words.names, begin, end, code, words)] = entry


@njit
def sum_lines(data: Any, words: Any, seen: Any, sums: Any, counts: Any) -> None:
    """Per line of the UTF-8 bytes `data`, each ended by a line feed: sum [lines, D] and number of its words' rows."""
    line = begin = 0
    key, code = np.uint64(14695981039346656037), np.uint64(2166136261)
    open_line = True
    for at in range(data.size):
        byte = data[at]
        if byte > 32 or not (byte == 32 or 9 <= byte <= 13 or byte == 0):
            key = (key ^ np.uint64(byte)) * np.uint64(1099511628211)
            code = _hash(code, byte)
            continue
        if open_line and at > begin:
            slot = np.int64((key ^ (key >> np.uint64(32))) & np.uint64(seen.keys.size - 1))
            if seen.keys[slot] != key or seen.checks[slot] != code:
                seen.keys[slot], seen.checks[slot] = key, np.uint32(code)
                seen.counts[slot] = _word(data, begin, at, code, words, seen.scratch)
                for i in range(seen.scratch.size):
                    seen.vectors[slot, i] = np.float32(seen.scratch[i])
            counts[line] += seen.counts[slot]
            for i in range(seen.scratch.size):
                sums[line, i] += seen.vectors[slot, i]
            open_line = not _is_end(data, begin, at)
        if byte == LINE_FEED:
            if open_line and words.sizes[4] >= 0:
                counts[line] += 1
                for i in range(seen.scratch.size):
                    sums[line, i] += words.rows[words.sizes[4], i]
            line += 1
            open_line = True
        begin = at + 1
        key, code = np.uint64(14695981039346656037), np.uint64(2166136261)


@njit
def best_in_tree(sums: Any, counts: Any, output: Any, tree: Any, floor: float, labels: Any, scores: Any) -> None:
    """Per line: the most probable label, its score; label -1 where no word has a row, or none reaches `floor`.

    The order of the search, and that every probability is taken 1e-5 too high, are fastText's.
    """
    n_labels = (tree.left.size + 1) // 2
    log_floor = math.log(floor + 1e-5)
    for line in range(counts.size):
        label, best = -1, -math.inf
        tree.stack[0], tree.stack_scores[0] = tree.left.size - 1, 0.0
        depth = 1 if counts[line] > 0 else 0
        while depth > 0:
            depth -= 1
            node, score = tree.stack[depth], tree.stack_scores[depth]
            if score < log_floor or score < best:  # not `<=`: of equals the last wins, and NaN passes
                continue
            if tree.left[node] < 0:
                label, best = node, score
                continue
            share = 1 / (1 + math.exp(-_dot(sums, line, output, node - n_labels) / counts[line]))
            tree.stack[depth], tree.stack_scores[depth] = tree.right[node], score + math.log(share + 1e-5)
            depth += 1
            tree.stack[depth], tree.stack_scores[depth] = tree.left[node], score + math.log(1 - share + 1e-5)
            depth += 1
        labels[line], scores[line] = label, math.exp(best)


@njit
def best_of_all(sums: Any, counts: Any, output: Any, floor: float, labels: Any, scores: Any) -> None:
    """As `best_in_tree`, for a softmax over all labels."""
    for line in range(counts.size):
        label, top, total = -1, -math.inf, 0.0
        for i in range(output.shape[0] if counts[line] > 0 else 0):
            logit = _dot(sums, line, output, i) / counts[line]
            if logit > top:
                total = total * math.exp(top - logit) + 1
                label, top = i, logit
            elif logit == top:
                total += 1
                label = i
            else:
                total += math.exp(logit - top)
                label = max(label, 0)  # NaN: some label, whose score says it
        probability = 1 / total if total else 0.0
        labels[line], scores[line] = (-1 if probability < floor else label), probability + 1e-5


@njit
def _dot(sums: Any, line: int, output: Any, row: int) -> float:
    total = 0.0
    for i in range(output.shape[1]):
        total += sums[line, i] * output[row, i]
    return total


@njit
def _hash(code: Any, byte: Any) -> Any:
    """One step of fastText's 32-bit FNV-1a, which takes bytes as signed."""
    signed = np.uint64(byte) if byte < 128 else np.uint64(byte) | np.uint64(0xFFFFFF00)
    return ((code ^ signed) * np.uint64(16777619)) & np.uint64(0xFFFFFFFF)


@njit
def _is_end(data: Any, begin: int, end: int) -> bool:
    """Whether the word is `</s>`."""
    return (
        end - begin == 4
        and data[begin] == OPEN
        and data[begin + 1] == 47
        and data[begin + 2] == 115
        and data[begin + 3] == CLOSE
    )


@njit
def _slot(data: Any, begin: int, end: int, code: Any, words: Any) -> Any:
    """Slot of the word data[begin:end] with the hash `code`, or the free one where it belongs."""
    slot: Any = np.int64(code % np.uint64(words.slots.size))
    while words.slots[slot] >= 0:
        first = words.ends[words.slots[slot]]
        if words.ends[words.slots[slot] + 1] - first == end - begin:
            same = 0
            while same < end - begin and words.names[first + same] == data[begin + same]:
                same += 1
            if same == end - begin:
                break
        slot = slot + 1 if slot + 1 < words.slots.size else 0
    return slot


@njit
def _word(data: Any, begin: int, end: int, code: Any, words: Any, total: Any) -> int:
    """Sum, in `total`, and number of the rows of the word data[begin:end]: its own and those of its n-grams."""
    total[:] = 0
    entry = words.slots[_slot(data, begin, end, code, words)]
    if entry >= words.sizes[0] or (entry < 0 and _is_label(data, begin, end)):
        return 0
    count = 0
    if entry >= 0:
        _add(words.rows, entry, total)
        count = 1
    if words.sizes[1] == 0 or _is_end(data, begin, end):
        return count
    shortest, longest = words.sizes[2], words.sizes[3]
    for first in range(begin - 1, end + 1):  # begin - 1 and end stand for the marks `<` and `>`
        if begin <= first < end and data[first] & 0xC0 == 0x80:
            continue
        code = np.uint64(2166136261)
        at, length = first, 0
        while at <= end and length < longest:
            code = _hash(code, _byte(data, begin, end, at))
            at += 1
            while at < end and data[at] & 0xC0 == 0x80:
                code = _hash(code, data[at])
                at += 1
            length += 1
            if length < shortest or (length == 1 and (first < begin or at > end)):
                continue
            row = np.int64(code % np.uint64(words.sizes[1]))
            if words.pruned.size:
                row = np.int64(words.pruned[row])
                if row < 0:
                    continue
            _add(words.rows, words.sizes[0] + row, total)
            count += 1
    return count


@njit
def _byte(data: Any, begin: int, end: int, at: int) -> Any:
    if at < begin:
        return np.uint8(OPEN)
    return np.uint8(CLOSE) if at >= end else data[at]


@njit
def _is_label(data: Any, begin: int, end: int) -> bool:
    if end - begin < LABEL_PREFIX.size:
        return False
    for i in range(LABEL_PREFIX.size):  # noqa: SIM110 - a generator would allocate
        if data[begin + i] != LABEL_PREFIX[i]:
            return False
    return True


@njit
def _add(rows: Any, row: int, total: Any) -> None:
    for i in range(total.size):
        total[i] += rows[row, i]
