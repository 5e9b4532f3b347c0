"""Signatures against datasketch, and against the truth on long documents."""

from __future__ import annotations

import datasketch
import numpy as np
import pytest

from pipeline.dedup.candidates import bounds
from pipeline.dedup.signature import buckets, check_scheme, minhash, scheme, signature, sketches, stored_length
from pipeline.errors import GristmillError
from pipeline.recipe import Dedup
from pipeline.shingles import shingle_hash, shingle_hashes, units


@pytest.mark.parametrize(("permutations", "seed"), [(112, 1), (286, 1), (64, 42)])
def test_bit_compatible_with_datasketch(permutations: int, seed: int) -> None:
    settings = Dedup(permutations=permutations, seed=seed, bands=8, rows=8)
    text = "The quick brown fox jumps over the lazy dog and then takes a long rest in the warm sun"
    theirs = datasketch.MinHash(permutations, seed=seed, hashfunc=shingle_hash, scheme="affine32")
    words = units(text, settings)
    for i in range(len(words) - 4):
        theirs.update(" ".join(words[i : i + 5]).encode())
    ours = signature(shingle_hashes(text, settings), settings)
    assert ours.dtype == theirs.hashvalues.dtype
    assert ours.tolist() == theirs.hashvalues.tolist()


@pytest.mark.parametrize("true", [0.2, 0.5, 0.8])
def test_no_bias_on_long_documents(true: float) -> None:
    """Case 39: sets of 60,000 shingles; the mean of several pairs lies close, each estimate within 0.1."""
    settings = Dedup(permutations=256)
    generator = np.random.default_rng(int(true * 10))
    shared = round(60_000 * 2 * true / (1 + true))
    estimates = []
    for _ in range(8):
        numbers = generator.choice(1 << 32, 120_000 - shared, replace=False).astype(np.uint32)
        a, b = numbers[:60_000], numbers[60_000 - shared :]
        one, two = (signature(np.sort(part), settings) for part in (a, b))
        estimates.append(float(np.mean(one == two)))
        assert estimates[-1] == pytest.approx(true, abs=0.1)
    assert np.mean(estimates) == pytest.approx(true, abs=0.03)


def test_an_empty_set_has_no_signature() -> None:
    assert len(signature(np.empty(0, np.uint32), Dedup())) == 0


@pytest.mark.parametrize("change", [{"seed": 2}, {"permutations": 128}, {"shingle": 7}, {"fold_numbers": True}])
def test_another_scheme_is_refused(change: dict[str, int]) -> None:
    mine = Dedup()
    check_scheme(scheme(mine), mine, "runs/a")
    with pytest.raises(GristmillError, match=r"runs/a: its signatures do not compare .*=.* there, .*=.* here"):
        check_scheme(scheme(Dedup(**change)), mine, "runs/a")


def test_bands_and_threshold_do_not_change_the_scheme() -> None:
    assert scheme(Dedup(bands=7, threshold=0.9)) == scheme(Dedup())
    assert scheme(Dedup(permutations=9000, bands=450, rows=20)) != scheme(Dedup(permutations=9000, bands=400, rows=20))


def test_buckets_meet_where_a_band_is_equal() -> None:
    settings = Dedup()
    one = signature(shingle_hashes("a b c d e f g h i j", settings), settings)
    two = one.copy()
    two[8:16] += 1
    zero = np.zeros(2, np.uint64)
    a, b = buckets(np.stack([one, two]), settings, zero)
    assert (a == b).tolist() == [band != 1 for band in range(14)]
    assert len(set(a.tolist())) == 14, "equal rows in two bands are two buckets"
    c, d = buckets(np.stack([one, one]), settings, np.array([1, 2], np.uint64))
    assert not set(c.tolist()) & set(d.tolist()), "salts keep documents apart"


def test_very_many_permutations_are_stored_as_band_hashes() -> None:
    settings = Dedup(permutations=9000, bands=450, rows=20)
    hashes = shingle_hashes(" ".join(f"w{i}" for i in range(300)), settings)
    stored = signature(hashes, settings)
    assert len(stored) == stored_length(settings) == 578
    assert stored[:128].tolist() == minhash(hashes, 9000, settings.seed)[:128].tolist()
    found = buckets(np.stack([stored, stored]), settings, np.zeros(2, np.uint64))
    assert found.shape == (2, 450)
    assert (found[0] == found[1]).all()
    assert sketches(np.stack([stored]), settings).shape == (1, 128)


def test_bounds_are_three_standard_errors_below_the_threshold() -> None:
    assert (bounds(Dedup()).pair, bounds(Dedup()).absorb) == (78, 90)
    exact = bounds(Dedup(threshold=1.0))
    assert exact.pair == exact.absorb == 112
