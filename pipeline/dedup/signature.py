"""Shingle hashes to a MinHash signature, with the numbers of datasketch 2.0's `affine32` scheme.

Given the same 32-bit shingle hashes (`shingles.shingle_hash` as datasketch's `hashfunc`), `minhash` equals
`datasketch.MinHash(permutations, seed, scheme="affine32").hashvalues` bit for bit. Method: the MurmurHash3 finalizer
once, then a*h + b modulo 2^32 with odd a, and the minimum over the set.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from pipeline.compiled import njit
from pipeline.errors import GristmillError
from pipeline.recipe import Dedup
from pipeline.shingles import HASH_VERSION, Hashes

#: More permutations than this are not stored one by one, but as the first `STORED` and one hash per band.
STORED = 1024
_HEAD = 128

Longs = npt.NDArray[np.uint64]


@cache
def parameters(permutations: int, seed: int) -> tuple[Hashes, Hashes]:
    """(a, b) of every permutation, drawn as datasketch 2.0 draws them."""
    generator = np.random.RandomState(seed)
    a = generator.randint(0, 1 << 31, permutations, dtype=np.uint32) * np.uint32(2) + np.uint32(1)
    b = generator.randint(0, 1 << 32, permutations, dtype=np.uint32)
    return a, b


def minhash(hashes: Hashes, permutations: int, seed: int) -> Hashes:
    """uint32[permutations] of a non-empty set of shingle hashes."""
    a, b = parameters(permutations, seed)
    return _minima(hashes, a, b)


def signature(hashes: Hashes, settings: Dedup) -> Hashes:
    """What `records/` stores: the minima, or, above 1,024 permutations, 128 of them and a hash per band.

    Empty for an empty set: a text without a word is never a near-duplicate.
    """
    if len(hashes) == 0:
        return np.empty(0, np.uint32)
    minima = minhash(hashes, settings.permutations, settings.seed)
    if settings.permutations <= STORED:
        return minima
    return np.concatenate([minima[:_HEAD], _band_hashes(minima, settings.bands, settings.rows).astype(np.uint32)])


def stored_length(settings: Dedup) -> int:
    """Numbers in a stored signature."""
    return settings.permutations if settings.permutations <= STORED else _HEAD + settings.bands


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


def check_scheme(stored: str, settings: Dedup, where: str) -> None:
    """Raises GristmillError where signatures stored at `where` cannot be compared with this recipe's."""
    wanted = scheme(settings)
    if stored != wanted:
        old, new = stored.split(), wanted.split()
        odd = next((f"{o} there, {n} here" for o, n in zip(old, new, strict=False) if o != n), f"{stored} / {wanted}")
        raise GristmillError(
            f"{where}: its signatures do not compare with this recipe's ({odd}): use the recipe they were made with, "
            "or curate that input again"
        )


def buckets(signatures: Hashes, settings: Dedup, salts: Longs) -> npt.NDArray[np.int64]:
    """LSH bucket of each band: int64[documents, bands] of stored signatures uint32[documents, stored_length].

    `salts` (one per document) keep apart what must not meet, for example languages.
    """
    if settings.permutations > STORED:
        bands = _salt_stored(np.ascontiguousarray(signatures[:, _HEAD:]), salts)
    else:
        bands = _salt_bands(signatures, settings.bands, settings.rows, salts)
    return bands.view(np.int64)


def sketches(signatures: Hashes, settings: Dedup) -> npt.NDArray[np.uint8]:
    """The low byte of the first 128 minima at most: enough to estimate a similarity, an eighth of the size."""
    return np.ascontiguousarray(signatures[:, : min(_HEAD, settings.permutations)]).astype(np.uint8)


@njit
def _minima(hashes: Hashes, a: Hashes, b: Hashes) -> Hashes:
    mixed = np.empty(len(hashes), np.uint32)
    for i in range(len(hashes)):
        h = np.uint32(hashes[i])
        h = np.uint32(h ^ (h >> np.uint32(16)))
        h = np.uint32(h * np.uint32(0x85EBCA6B))
        h = np.uint32(h ^ (h >> np.uint32(13)))
        h = np.uint32(h * np.uint32(0xC2B2AE35))
        mixed[i] = np.uint32(h ^ (h >> np.uint32(16)))
    minima = np.empty(len(a), np.uint32)
    for k in range(len(a)):
        factor = a[k]
        offset = b[k]
        low = np.uint32(0xFFFFFFFF)
        for i in range(len(mixed)):
            low = min(low, np.uint32(mixed[i] * factor + offset))
        minima[k] = low
    return minima


@njit
def _fold(h: np.uint64, value: np.unsignedinteger) -> np.uint64:
    h = (h ^ np.uint64(value)) * np.uint64(0xFF51AFD7ED558CCD)
    return h ^ (h >> np.uint64(32))


@njit
def _band_hashes(minima: Hashes, bands: int, rows: int) -> Longs:
    out = np.empty(bands, np.uint64)
    for band in range(bands):
        h = _fold(np.uint64(0x9E3779B97F4A7C15), np.uint64(band))
        for row in range(rows):
            h = _fold(h, minima[band * rows + row])
        out[band] = h
    return out


@njit
def _salt_bands(signatures: Hashes, bands: int, rows: int, salts: Longs) -> Longs:
    out = np.empty((len(signatures), bands), np.uint64)
    for i in range(len(signatures)):
        hashes = _band_hashes(signatures[i], bands, rows)
        for band in range(bands):
            out[i, band] = _fold(hashes[band], salts[i])
    return out


@njit
def _salt_stored(stored: Hashes, salts: Longs) -> Longs:
    out = np.empty((len(stored), stored.shape[1]), np.uint64)
    for i in range(len(stored)):
        for band in range(stored.shape[1]):
            out[i, band] = _fold(_fold(np.uint64(band + 1), stored[i, band]), salts[i])
    return out
