"""A fastText supervised model: read once, then lines of text to their best label, with a cache of word vectors.

A corpus repeats its words endlessly, and the library hashes and dequantises every character n-gram of every one of
them again; here a word that was met before costs one look-up and one addition. Labels are the library's, scores within
1e-5 of its up to 2,000 characters; beyond, its sums of 32 bits drift (up to 2e-5 at 10,000, 3e-4 at two million), and
those here, of 64, do not. Takes models with the losses `hs` and `softmax` and without word n-grams, dense or quantised;
for any other the library answers.

The format is that of fastText 0.9.2, little-endian: args, dictionary, input matrix, output matrix (args.cc,
dictionary.cc, quantmatrix.cc, productquantizer.cc).
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from pipeline.language_kernels import Seen, Tree, Words, best_in_tree, best_of_all, index_names, sum_lines

#: Of word vectors per process; and, decoded, of a quantised matrix, beyond which the library's is smaller.
CACHE_BYTES, DECODED_BYTES = 16 << 20, 64 << 20
MAX_BUCKETS = 4_000_000

_MAGIC, _VERSION, _SUPERVISED, _HS, _SOFTMAX = 793712314, 12, 3, 1, 3

Matrix = npt.NDArray[np.float32]


class LabelModel(Protocol):
    def labels(self) -> list[str]:
        """Every label that the model knows."""
        ...

    def best(self, lines: Sequence[str], floor: float) -> list[tuple[float, str] | None]:
        """For each line, without line feeds and lone surrogates: probability and name of its most probable label.

        None where the model knows nothing of the line. A label below `floor` need not be found: None as well.
        """
        ...


class LibraryModel:
    """`predict(text, k)`, best `k` (probability, label) of a text, all for k = -1, as a LabelModel."""

    def __init__(self, predict: Callable[[str, int], list[tuple[float, str]]]) -> None:
        self._predict = predict

    def labels(self) -> list[str]:
        return [label for _, label in self._predict("a", -1)]

    def best(self, lines: Sequence[str], floor: float) -> list[tuple[float, str] | None]:
        found = [self._predict(line, 1) for line in lines]
        return [best[0] if best else None for best in found]


class CachedModel:
    """The model in tables; its answers depend on the line alone, never on what was asked before."""

    def __init__(self, words: Words, output: Matrix, names: list[str], tree: Tree | None) -> None:
        self._words, self._output, self._names, self._tree = words, output, names, tree
        dim = output.shape[1]
        slots = 1 << max(4, (CACHE_BYTES // (4 * dim)).bit_length() - 1)
        self._seen = Seen(
            np.zeros(slots, np.uint64),
            np.zeros(slots, np.uint32),
            np.zeros(slots, np.int32),
            np.zeros((slots, dim), np.float32),
            np.zeros(dim, np.float64),
        )

    def labels(self) -> list[str]:
        return list(self._names)

    def best(self, lines: Sequence[str], floor: float) -> list[tuple[float, str] | None]:
        n = len(lines)
        data = np.frombuffer(("\n".join(lines) + "\n").encode(), np.uint8)
        sums, counts = np.zeros((n, self._output.shape[1])), np.zeros(n, np.int64)
        sum_lines(data, self._words, self._seen, sums, counts)
        labels, scores = np.empty(n, np.int64), np.empty(n)
        if self._tree is not None:
            best_in_tree(sums, counts, self._output, self._tree, floor, labels, scores)
        else:
            best_of_all(sums, counts, self._output, floor, labels, scores)
        found = zip(labels.tolist(), scores.tolist(), strict=True)
        return [None if label < 0 else (score, self._names[label]) for label, score in found]


def open_model(path: Path) -> LabelModel:
    """The model in the file `path`. Raises ValueError or RuntimeError where it is no fastText model, or cut short."""
    read = _read(path)
    if read is not None:
        return read
    import fasttext

    predict = fasttext.load_model(str(path)).f.predict
    return LibraryModel(lambda text, k: predict(text + "\n", k, -1.0 if k < 0 else 0.0, "strict"))


class _UnsupportedError(Exception):
    """The library can read this file, perhaps; the tables here cannot hold it."""


def _read(path: Path) -> CachedModel | None:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            return _parse(_Reader(data))
        except _UnsupportedError:
            return None


class _Reader:
    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.at = data, 0

    def values(self, layout: str) -> tuple[Any, ...]:
        size = struct.calcsize("<" + layout)
        return struct.unpack("<" + layout, self._take(size))

    def array(self, kind: str, *shape: int) -> npt.NDArray[Any]:
        """A copy, which outlives the open file."""
        if min(shape) < 0:
            raise _UnsupportedError
        size = int(np.prod(shape, dtype=object)) * np.dtype(kind).itemsize
        if size > len(self.data) - self.at:
            raise ValueError("the file is cut short")
        found = np.frombuffer(self.data, kind, size // np.dtype(kind).itemsize, self.at).reshape(shape).copy()
        self.at += size
        return found

    def name(self) -> bytes:
        end = self.data.find(b"\0", self.at)
        found = self._take(end + 1 - self.at if end >= 0 else len(self.data))
        return found[:-1]

    def _take(self, size: int) -> bytes:
        found = self.data[self.at : self.at + size]
        if len(found) < size:
            raise ValueError("the file is cut short")
        self.at += size
        return found


def _parse(reader: _Reader) -> CachedModel:
    if reader.values("2i") != (_MAGIC, _VERSION):
        raise _UnsupportedError
    dim, *_, word_ngrams, loss, model, buckets, minn, maxn, _, _ = reader.values("12id")
    if (word_ngrams, model) != (1, _SUPERVISED) or loss not in (_HS, _SOFTMAX):
        raise _UnsupportedError
    if dim < 1 or minn < 0 or maxn < 0 or buckets < 0 or (maxn and not buckets):
        raise _UnsupportedError
    n_entries, n_words, n_labels, _, n_pruned = reader.values("3i2q")
    if n_labels < 1 or n_words < 0 or n_entries != n_words + n_labels:
        raise _UnsupportedError
    names, counts, kinds = [], [], []
    for _ in range(n_entries):
        names.append(reader.name())
        count, kind = reader.values("qb")
        counts.append(count)
        kinds.append(kind)
    if kinds != [0] * n_words + [1] * n_labels:
        raise _UnsupportedError
    if n_pruned >= 0 and buckets > MAX_BUCKETS:
        raise _UnsupportedError
    pairs = reader.array("<i4", max(n_pruned, 0), 2)
    (quantised,) = reader.values("?")
    rows = _matrix(reader, quantised)
    (output_too,) = reader.values("?")
    output = _matrix(reader, quantised and output_too)
    pruned = np.zeros(0, np.int32)
    if not maxn or n_pruned == 0:
        buckets = 0
    elif n_pruned > 0:
        if pairs.min() < 0 or pairs[:, 0].max() >= buckets or n_words + pairs[:, 1].max() >= len(rows):
            raise _UnsupportedError
        pruned = np.full(buckets, -1, np.int32)
        pruned[pairs[:, 0]] = pairs[:, 1]
    elif n_words + buckets > len(rows):
        raise _UnsupportedError
    if n_words > len(rows) or len(output) != n_labels or rows.shape[1] != dim or output.shape[1] != dim:
        raise _UnsupportedError
    end = names.index(b"</s>") if b"</s>" in names[:n_words] else -1
    words = Words(
        rows,
        np.frombuffer(b"".join(names) + b"\0", np.uint8).copy(),
        np.cumsum([0, *map(len, names)], dtype=np.int64),
        np.full(2 * n_entries + 1, -1, np.int32),
        pruned,
        np.array([n_words, buckets, minn, maxn, end], np.int64),
    )
    index_names(words)
    labels = [name.decode() for name in names[n_words:]]
    return CachedModel(words, output, labels, _tree(counts[n_words:]) if loss == _HS else None)


def _matrix(reader: _Reader, quantised: bool) -> Matrix:
    """[rows, columns]; a quantised one is decoded."""
    if not quantised:
        return reader.array("<f4", *reader.values("2q"))
    with_norms, n_rows, n_columns, n_codes = reader.values("?2qi")
    if n_rows * n_columns * 4 > DECODED_BYTES:
        raise _UnsupportedError
    codes = reader.array("u1", n_codes)
    dim, n_parts, width, last = reader.values("4i")
    centroids = reader.array("<f4", dim * 256)
    if dim != n_columns or n_codes != n_rows * n_parts or min(dim, n_parts, width, last) < 1:
        raise _UnsupportedError
    if (n_parts - 1) * width + last != dim:
        raise _UnsupportedError
    codes = codes.reshape(n_rows, n_parts)
    matrix = np.empty((n_rows, n_columns), np.float32)
    for i in range(n_parts):
        first, columns = i * width, width if i < n_parts - 1 else last
        choices = centroids[first * 256 : (first + columns) * 256].reshape(256, columns)
        matrix[:, first : first + columns] = choices[codes[:, i]]
    if with_norms:
        norm_codes = reader.array("u1", n_rows)
        if reader.values("4i") != (1, 1, 1, 1):
            raise _UnsupportedError
        matrix *= reader.array("<f4", 256)[norm_codes][:, None]
    return matrix


def _tree(counts: list[int]) -> Tree:
    """fastText's Huffman tree of labels, whose counts are in falling order."""
    n = len(counts)
    left, right = np.full(2 * n - 1, -1, np.int32), np.full(2 * n - 1, -1, np.int32)
    weights = counts + [10**15] * (n - 1)
    leaf, inner = n - 1, n
    for parent in range(n, 2 * n - 1):
        children = []
        for _ in range(2):
            if leaf >= 0 and weights[leaf] < weights[inner]:
                children.append(leaf)
                leaf -= 1
            else:
                children.append(inner)
                inner += 1
        left[parent], right[parent] = children
        weights[parent] = weights[children[0]] + weights[children[1]]
    return Tree(left, right, np.zeros(2 * n, np.int32), np.zeros(2 * n))
