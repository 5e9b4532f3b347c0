"""All n-grams of all benchmarks, as flat arrays in one file.

Made once, by the driver; each worker process maps the file, so that a node holds it in memory once however many
workers it has. A look-up is one bit of a table (16 bits and more an n-gram, so that 15 of 16 strangers end there),
then a binary search.
"""

from __future__ import annotations

import json
import mmap
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.compiled import njit
from pipeline.decontaminate import ngrams
from pipeline.decontaminate.benchmarks import read
from pipeline.decontaminate.ngrams import Positions
from pipeline.recipe import Decontaminate
from pipeline.shingles import SEPARATOR, Hashes, Longs

_ALIGN = 64
_BITS_PER_NGRAM = 16


@dataclass(frozen=True)
class Index:
    """Units of all texts in one row, and the distinct n-grams among them, per benchmark.

    uint64 `keys` (sorted), int64 `at` (first unit of the n-gram) and int32 `of` (its benchmark) go together, as do
    int64 `text_begins` (first unit of each text, and the end of the last), `text_entry`, and int32 `text_file` and
    `text_field`, by which `files` and `fields` are indexed. `counts`: benchmark -> entries, too_short, ngrams.
    """

    ngram: int
    names: tuple[str, ...]
    files: tuple[str, ...]
    fields: tuple[str, ...]
    counts: dict[str, dict[str, int]]
    hashes: dict[str, list[str]]  #: benchmark -> sha256 of each of its files
    keys: Longs
    at: Positions
    of: npt.NDArray[np.int32]
    bits: Longs
    stream: Hashes
    begins: Positions
    text_begins: Positions
    text_entry: Positions
    text_file: npt.NDArray[np.int32]
    text_field: npt.NDArray[np.int32]

    @property
    def shift(self) -> int:
        """What brings a hash down to a position in `bits`."""
        return 64 - (64 * len(self.bits)).bit_length() + 1

    def text_of(self, unit: int) -> int:
        """The text that this unit belongs to."""
        return int(np.searchsorted(self.text_begins, unit, side="right")) - 1


class _Maker:
    """Arrays that grow text by text."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.streams: list[Hashes] = []
        self.begins: list[Positions] = []
        self.keys: list[Longs] = []
        self.at: list[Positions] = []
        self.of: list[npt.NDArray[np.int32]] = []
        self.texts: list[tuple[int, int, int, int]] = []  # first unit, entry, file, field
        self.units = 0
        self.points = 0

    def add(self, text: str, benchmark: int, entry: int, file: int, field: int) -> bool:
        """Whether the text is long enough to match."""
        units = ngrams.split(text)
        if len(units) < self.n:
            return False
        keys = ngrams.ngram_hashes(units.hashes, self.n)
        self.texts.append((self.units, entry, file, field))
        self.streams += [units.stream, np.array([SEPARATOR], np.uint32)]
        self.begins.append(units.begins[:-1] + self.points)
        self.keys.append(keys)
        self.at.append(np.arange(self.units, self.units + len(keys), dtype=np.int64))
        self.of.append(np.full(len(keys), benchmark, np.int32))
        self.units += len(units)
        self.points += len(units.stream) + 1
        return True


def build(settings: Decontaminate) -> Index:
    """Read all benchmarks. Raises UsageError as `benchmarks.check` does."""
    maker = _Maker(settings.ngram)
    names = tuple(settings.benchmarks)
    files: dict[str, int] = {}
    field_names: dict[str, int] = {}
    counts: dict[str, dict[str, int]] = {}
    hashes: dict[str, list[str]] = {}
    for number, (name, benchmark) in enumerate(settings.benchmarks.items()):
        found = short = 0
        hashes[name] = []
        columns = [field_names.setdefault(field, len(field_names)) for field in benchmark.fields]
        for sha256, entries in read(name, benchmark):
            hashes[name].append(sha256)
            for entry in entries:
                file = files.setdefault(entry.file, len(files))
                placed = [
                    maker.add(text, number, entry.number, file, column)
                    for text, column in zip(entry.texts, columns, strict=True)
                ]
                found += 1
                short += not any(placed)
        counts[name] = {"entries": found, "too_short": short, "ngrams": 0}
    stream, begins = _joined(maker.streams, np.uint32), _joined(maker.begins, np.int64)
    begins = np.append(begins, maker.points)
    keys, at, of = _joined(maker.keys, np.uint64), _joined(maker.at, np.int64), _joined(maker.of, np.int32)
    order = np.argsort(keys, kind="stable")  # equal ones stay in the benchmarks' order: the first entry is named
    keys, at, of = keys[order], at[order], of[order]
    del order
    keep = np.zeros(len(keys), np.bool_)
    _distinct(keys, at, of, settings.ngram, stream, begins, keep)
    keys, at, of = keys[keep], at[keep], of[keep]
    for number, name in enumerate(names):
        counts[name]["ngrams"] = int((of == number).sum())
    texts = np.array(maker.texts, np.int64).reshape(-1, 4)
    return Index(
        ngram=settings.ngram,
        names=names,
        files=tuple(files),
        fields=tuple(field_names),
        counts=counts,
        hashes=hashes,
        keys=keys,
        at=at,
        of=of,
        bits=_bit_table(keys),
        stream=stream,
        begins=begins,
        text_begins=np.append(texts[:, 0], maker.units),
        text_entry=texts[:, 1].copy(),
        text_file=texts[:, 2].astype(np.int32),
        text_field=texts[:, 3].astype(np.int32),
    )


def save(index: Index, path: Path) -> None:
    """Length of the header, a JSON header, then each array on a boundary of 64 bytes."""
    arrays: dict[str, list[Any]] = {}
    plain: dict[str, Any] = {}
    offset = 0
    for field in fields(index):
        value = getattr(index, field.name)
        if isinstance(value, np.ndarray):
            arrays[field.name] = [value.dtype.str, len(value), offset]
            offset += -(-value.nbytes // _ALIGN) * _ALIGN
        else:
            plain[field.name] = value
    header = json.dumps({"plain": plain, "arrays": arrays}).encode()
    header += b" " * (-(8 + len(header)) % _ALIGN)
    with open(path, "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for name in arrays:
            value = getattr(index, name)
            file.write(memoryview(value).cast("B") if len(value) else b"")
            file.write(b"\0" * (-value.nbytes % _ALIGN))


def open_index(path: Path) -> Index:
    """The index with its arrays mapped from the file, read-only."""
    with open(path, "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    length = int.from_bytes(mapped[:8], "little")
    header = json.loads(mapped[8 : 8 + length])
    plain: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in header["plain"].items()
    }
    arrays: dict[str, Any] = {
        name: np.frombuffer(mapped, dtype, count, 8 + length + offset) if count else np.empty(0, dtype)
        for name, (dtype, count, offset) in header["arrays"].items()
    }
    return Index(**(plain | arrays))


def _joined(arrays: list[Any], kind: type) -> npt.NDArray[Any]:
    """One array of them all; the list is emptied, since all of it is as large again."""
    joined = np.concatenate([np.empty(0, kind), *arrays])
    arrays.clear()
    return joined


def _bit_table(keys: Longs) -> Longs:
    size = max(1 << 10, 1 << (_BITS_PER_NGRAM * len(keys)).bit_length())
    bits = np.zeros(size // 64, np.uint64)
    _set_bits(keys, 64 - size.bit_length() + 1, bits)
    return bits


# --------------------------------------------------------------------------------------------------------- kernels


@njit
def same_words(a: Hashes, begin: int, end: int, b: Hashes, start: int, stop: int) -> bool:
    """Whether two stretches of streams hold the same code points."""
    if end - begin != stop - start:
        return False
    for i in range(end - begin):  # noqa: SIM110 - compiled
        if a[begin + i] != b[start + i]:
            return False
    return True


@njit
def _distinct(
    keys: Longs,
    at: Positions,
    of: npt.NDArray[np.int32],
    n: int,
    stream: Hashes,
    begins: Positions,
    keep: npt.NDArray[np.bool_],
) -> None:
    """Marks the first of all n-grams with the same words and benchmark; `keys` are sorted."""
    run = 0
    for i in range(len(keys)):
        if keys[i] != keys[run]:
            run = i
        new = True
        for j in range(run, i):
            if (
                keep[j]
                and of[j] == of[i]
                and same_words(
                    stream,
                    begins[at[i]],
                    begins[at[i] + n] - 1,
                    stream,
                    begins[at[j]],
                    begins[at[j] + n] - 1,
                )
            ):
                new = False
                break
        keep[i] = new


@njit
def _set_bits(keys: Longs, shift: int, bits: Longs) -> None:
    for i in range(len(keys)):
        bit = keys[i] >> np.uint64(shift)
        bits[bit >> np.uint64(6)] |= np.uint64(1) << (bit & np.uint64(63))
