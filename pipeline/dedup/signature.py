"""Shingle hashes to a MinHash signature, with the numbers of datasketch 2.0's `affine32` scheme.

Given the same 32-bit shingle hashes (`shingles.shingle_hash` as datasketch's `hashfunc`), `minhash` equals
`datasketch.MinHash(permutations, seed, scheme="affine32").hashvalues` bit for bit. Method: the MurmurHash3 finalizer
once, then a*h + b modulo 2^32 with odd a, and the minimum over the set.
"""

from __future__ import annotations

import math
from functools import cache
from itertools import zip_longest

import numpy as np
import numpy.typing as npt

from pipeline.compiled import njit
from pipeline.errors import GristmillError
from pipeline.recipe import Dedup
from pipeline.shingles import HASH_VERSION, Hashes

#: More permutations than this are not stored one by one, but as the first `STORED` and one hash per band.
STORED = 1024
_HEAD = 128
#: Minima of which a document carries the low byte, to estimate similarities; fewer where there are fewer.
SKETCH = 128

Longs = npt.NDArray[np.uint64]


@cache
def parameters(permutations: int, seed: int) -> tuple[Hashes, Hashes]:
    """(a, b) of every permutation, drawn as datasketch 2.0 draws them."""
    generator = np.random.RandomState(seed)
    a = generator.randint(0, 1 << 31, permutations, dtype=np.uint32) * np.uint32(2) + np.uint32(1)
    b = generator.randint(0, 1 << 32, permutations, dtype=np.uint32)
    return a, b


def minhash(hashes: Hashes, permutations: int, seed: int, first: int | None = None) -> Hashes:
    """uint32[permutations], or the `first` so many of them, of a non-empty set of shingle hashes."""
    a, b = parameters(permutations, seed)
    minima = np.empty(permutations if first is None else first, np.uint32)
    _minima(hashes, a[: len(minima)], b[: len(minima)], np.empty(len(hashes), np.uint32), minima)
    return minima


def signature(hashes: Hashes, settings: Dedup) -> Hashes:
    """What `records/` stores: the minima, or, above 1,024 permutations, 128 of them and a hash per band.

    Empty for an empty set: a text without a word is never a near-duplicate.
    """
    if len(hashes) == 0:
        return np.empty(0, np.uint32)
    minima = minhash(hashes, settings.permutations, settings.seed)
    if settings.permutations <= STORED:
        return minima
    bands = np.empty((1, settings.bands), np.uint64)
    _band_hashes(minima.reshape(1, -1), settings.rows, bands)
    return np.concatenate([minima[:_HEAD], bands[0].astype(np.uint32)])


def stored_length(settings: Dedup) -> int:
    """Numbers in a stored signature."""
    return settings.permutations if settings.permutations <= STORED else _HEAD + settings.bands


def stored_minima(settings: Dedup) -> int:
    """How many numbers of a stored signature, its first ones, are minima."""
    return settings.permutations if settings.permutations <= STORED else _HEAD


def standard_error(settings: Dedup) -> float:
    """Of a Jaccard similarity estimated from two stored signatures, for documents at the threshold.

    Each of k minima is equal with probability j, so the share of equal ones deviates by sqrt(j(1-j)/k).
    """
    return math.sqrt(settings.threshold * (1 - settings.threshold) / stored_minima(settings))


def scheme(settings: Dedup) -> str:
    """Everything that two signatures must share to be comparable; it travels with the records."""
    parts = [
        "datasketch-affine32",
        f"seed={settings.seed}",
        f"permutations={settings.permutations}",
        f"shingle={settings.shingle}",
        f"fold_numbers={int(settings.fold_numbers)}",
        f"hash={HASH_VERSION}",
    ]
    if settings.permutations > STORED:
        parts.append(f"stored={_HEAD}+{settings.bands}x{settings.rows}")
    return " ".join(parts)


def check_scheme(stored: str | None, settings: Dedup, where: str) -> None:
    """Raises GristmillError where signatures stored at `where` cannot be compared with this recipe's."""
    wanted = scheme(settings)
    if stored is None:
        raise GristmillError(
            f"{where}: it does not say how its signatures were made (here: {wanted}), an older version wrote it: "
            "curate that input again"
        )
    if stored != wanted:
        old, new = stored.split(), wanted.split()
        odd = ", ".join(f"{o} there, {n} here" for o, n in zip_longest(old, new, fillvalue="nothing") if o != n)
        raise GristmillError(
            f"{where}: its signatures do not compare with this recipe's ({odd}): use the recipe they were made with, "
            "or curate that input again"
        )


def buckets(signatures: Hashes, settings: Dedup, salts: Longs) -> npt.NDArray[np.int64]:
    """LSH bucket of each band: int64[documents, bands] of stored signatures uint32[documents, stored_length].

    `salts` (one per document) keep apart what must not meet, for example languages.
    """
    bands = np.empty((len(signatures), settings.bands), np.uint64)
    if settings.permutations > STORED:
        bands[:] = signatures[:, _HEAD:]
    else:
        _band_hashes(signatures, settings.rows, bands)
    _salt(bands, salts)
    return bands.view(np.int64)


def sketches(signatures: Hashes, settings: Dedup) -> npt.NDArray[np.uint8]:
    """The low byte of the first `SKETCH` minima at most: enough to estimate a similarity, an eighth of the size."""
    return np.ascontiguousarray(signatures[:, : min(SKETCH, settings.permutations)]).astype(np.uint8)


@njit
def _minima(hashes: Hashes, a: Hashes, b: Hashes, mixed: Hashes, minima: Hashes) -> None:
    """`mixed` is room for one number per hash; the inner loop is what the processor does eight at a time."""
    for i in range(len(hashes)):
        h = np.uint32(hashes[i])
        h = np.uint32(h ^ (h >> np.uint32(16)))
        h = np.uint32(h * np.uint32(0x85EBCA6B))
        h = np.uint32(h ^ (h >> np.uint32(13)))
        h = np.uint32(h * np.uint32(0xC2B2AE35))
        mixed[i] = np.uint32(h ^ (h >> np.uint32(16)))
    for k in range(len(a)):
        factor = a[k]
        offset = b[k]
        low = np.uint32(0xFFFFFFFF)
        for i in range(len(mixed)):
            low = min(low, np.uint32(mixed[i] * factor + offset))
        minima[k] = low


@njit
def _fold(h: np.uint64, value: np.uint64) -> np.uint64:
    h = (h ^ value) * np.uint64(0xFF51AFD7ED558CCD)
    return h ^ (h >> np.uint64(32))


@njit
def _band_hashes(signatures: Hashes, rows: int, bands: Longs) -> None:
    """64-bit hash of each band's rows, the same in every band: `_salt` tells bands apart."""
    for i in range(len(signatures)):
        for band in range(bands.shape[1]):
            h = np.uint64(0x9E3779B97F4A7C15)
            for row in range(band * rows, band * rows + rows):
                h = _fold(h, np.uint64(signatures[i, row]))
            bands[i, band] = h


@njit
def _salt(bands: Longs, salts: Longs) -> None:
    """In place: a bucket is of one band and one salt."""
    for i in range(len(bands)):
        for band in range(bands.shape[1]):
            bands[i, band] = _fold(_fold(bands[i, band], np.uint64(band)), salts[i])
