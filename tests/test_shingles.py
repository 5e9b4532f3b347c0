"""Shingles against the definition itself, written as plainly as it can be."""

from __future__ import annotations

import re
import time
import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.recipe import Dedup
from pipeline.shingles import exact_hash, shingle, shingle_hash, shingle_hashes, units

UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
RECIPE = Dedup()


def defined_units(text: str) -> list[str]:
    words = re.findall(r"\w+", unicodedata.normalize("NFKC", text.lower()))
    joined = "".join(words)
    return list(joined) if len(UNSPACED.findall(joined)) * 2 > len(joined) else words


def defined_shingles(text: str, n: int = 5) -> set[tuple[str, ...]]:
    one = defined_units(text)
    return {tuple(one[i : i + n]) for i in range(max(1, len(one) - n + 1))}


# What the table must not get wrong: composing marks, Hangul jamo, final sigma, ligatures, full width, surrogates.
TRICKY = (
    "aeEßſΣςİıé\u0301\u0327\u0316\u0345ﬁ½™²…\u00a0Ａ１カﾞか\u3099"
    "가ᄀ\u1161\u11a8नि\u093cক\u09beกำ我𠮷\ud800\udfffﷺ_-. \n\u0958K"
)


@given(st.text(st.sampled_from(TRICKY), max_size=40) | st.text(max_size=60))
@settings(max_examples=600, deadline=None)
def test_units_are_as_defined(text: str) -> None:
    assert units(text, RECIPE) == defined_units(text)


def test_every_character_is_as_defined() -> None:
    """Alone and between letters, all of Unicode, in one text per block of 4,096."""
    for start in range(0, 0x110000, 0x1000):
        if start == 0xD000:
            continue  # half surrogates; the property above has them
        chars = [chr(c) for c in range(start, start + 0x1000)]
        text = " ".join(f"{c} a{c}b" for c in chars)
        assert units(text, RECIPE) == defined_units(text), hex(start)
    assert not re.search(r"\w", "".join(map(chr, range(0x40000, 0x110000))))


@pytest.mark.parametrize(
    "text",
    [
        "The quick brown fox jumps over the lazy dog",
        "Заяц — это не волк, и «не лиса», а просто заяц",
        "私は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。",
        "ภาษาไทยเขียนติดกันไม่มีช่องว่าง",
        "나는 고양이다 이름은 아직 없다 어디서 태어났는지 모른다",
        "short",
        "two words",
        "日本",
    ],
)
def test_hashes_are_of_the_defined_shingles(text: str) -> None:
    expected = sorted(shingle_hash(" ".join(one).encode()) for one in defined_shingles(text))
    hashes = shingle_hashes(text, RECIPE)
    assert hashes.dtype == np.uint32
    assert hashes.tolist() == expected


@pytest.mark.parametrize("n", [1, 2, 3, 9, 13])
def test_any_length_of_shingle(n: int) -> None:
    text = "a b c d e f g h i j a b c d e f"
    expected = sorted({shingle_hash(" ".join(one).encode()) for one in defined_shingles(text, n)})
    assert shingle_hashes(text, Dedup(shingle=n)).tolist() == expected


def test_the_hash_stands() -> None:
    """Golden numbers: stored signatures depend on them, so a change needs a new HASH_VERSION."""
    assert shingle_hash(b"the quick brown fox jumps") == 0x2EEAB733
    assert exact_hash("The quick, brown fox!", RECIPE) == "2e91f34ad4849f16cfd12985187a39f4"


def test_shingles_hardly_collide() -> None:
    text = " ".join(f"w{i}" for i in range(60_000))
    assert len(shingle_hashes(text, RECIPE)) >= 59_996 - 5  # 0.4 expected of 32 bits


def test_equal_exact_hash_is_equal_units() -> None:
    same = ["Hello, World", "hello world", "HELLO — world!", "ｈｅｌｌｏ　world"]
    assert len({exact_hash(text, RECIPE) for text in same}) == 1
    other = ["hello worlds", "world hello", "helloworld", "hello world hello world"]
    assert len({exact_hash(text, RECIPE) for text in [*same, *other]}) == 5
    assert exact_hash("日 本語です", RECIPE) == exact_hash("日本語です", RECIPE)


def test_a_text_without_a_word_has_no_shingle_and_equals_itself_only() -> None:
    for text in ("", " \n", "!!!", "\ud800"):
        assert len(shingle_hashes(text, RECIPE)) == 0
    assert len({exact_hash(text, RECIPE) for text in ("", "!", "?", "\ud800", "\udfff")}) == 5


def test_a_lone_shingle_is_told_apart_by_128_bits() -> None:
    assert shingle("a b c d e f", RECIPE).single is None
    assert shingle("a " * 9, RECIPE).single == shingle("a " * 90, RECIPE).single
    assert shingle("a " * 5, RECIPE).single != shingle("a " * 4, RECIPE).single
    assert shingle("我" * 9, RECIPE).single == shingle("我" * 5, RECIPE).single != shingle("我" * 4, RECIPE).single


def test_numbers_fold_only_where_asked() -> None:
    a, b = "costs 1,234 or 99 euros today", "costs 7 or 12.5 euros today"
    assert exact_hash(a, RECIPE) != exact_hash(b, RECIPE)
    folded = Dedup(fold_numbers=True)
    assert exact_hash(a, folded) == exact_hash(b, folded)


@pytest.mark.parametrize("piece", ["word ", "a", "!", "İ", "1.", "我", "ﷺ", "e\u0301"])
def test_time_is_linear(piece: str) -> None:
    recipe = Dedup(fold_numbers=True)
    shingle(piece * 1000, recipe)
    start = time.process_time()
    shingle(piece * (500_000 // len(piece)), recipe)
    assert time.process_time() - start < 4
