"""The shipped model through its public door: what it keeps, and how the cut is made."""

from __future__ import annotations

import io
from importlib import resources
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.extract import model
from pipeline.extract.context_features import STEPS
from pipeline.extract.emit import emit
from pipeline.extract.scan import WORDS, scan
from tests.extract.made_pages import made


def kept_text(html: bytes, floor: float = 0.0) -> tuple[str, float]:
    blocks = scan(html)
    kept, confidence = model.cut(model.predict(model.shipped(), blocks), blocks.counts[:, WORDS], floor=floor)
    return emit(blocks, kept), confidence


def test_it_keeps_the_article_and_leaves_the_rest() -> None:
    for page in made(24, seed=3):
        text, confidence = kept_text(page.html)
        lines = text.split("\n")
        missing = [line for line in (page.gold or "").split("\n")[1:] if line and line not in lines]
        assert len(missing) <= 1, page.url
        assert "©" not in text
        assert 0.5 < confidence <= 1


def test_shape_range_and_repeatability() -> None:
    blocks = scan(made(1)[0].html)
    first, second = (model.predict(model.shipped(), blocks) for _ in range(2))
    assert first.shape == blocks.owner.shape
    assert first.dtype == np.float32
    assert ((first > 0) & (first < 1)).all()
    assert first.tobytes() == second.tobytes()


@pytest.mark.parametrize("html", [b"", b"<p>", b"<html><body></body></html>", b"   "])
def test_a_page_without_text(html: bytes) -> None:
    blocks = scan(html)
    p = model.predict(model.shipped(), blocks)
    kept, confidence = model.cut(p, blocks.counts[:, WORDS])
    assert not kept.any()
    assert confidence == 0
    assert emit(blocks, kept) == ""


@given(
    st.lists(st.tuples(st.floats(0, 1, width=32), st.integers(0, 300)), min_size=1, max_size=30),
    st.sampled_from([1.0, 4.0]),
)
def test_the_cut_has_the_best_expected_f(blocks: list[tuple[float, int]], recall: float) -> None:
    p = np.array([np.float32(int(p * STEPS)) / np.float32(STEPS) for p, _ in blocks], np.float32)
    words = np.array([w for _, w in blocks], np.int32)
    weight = np.maximum(words, 0.5)

    def expected(kept: np.ndarray, recall: float) -> float:
        right = (1 + recall) * (weight * p)[kept].sum()
        return float(right / (weight[kept].sum() + recall * (weight * p).sum())) if kept.any() else 0.0

    kept, confidence = model.cut(p, words, recall=recall)
    best = max(expected(p >= level, recall) for level in {*p.tolist(), 2.0})
    assert expected(kept, recall) == pytest.approx(best, abs=1e-9)
    assert confidence == pytest.approx(expected(kept, 1.0), abs=1e-9)
    assert (model.cut(p, words, recall=2 * recall)[0] >= kept).all()


@given(st.lists(st.tuples(st.floats(0, 1, width=32), st.integers(0, 300)), max_size=30))
def test_a_floor_only_takes_away(blocks: list[tuple[float, int]]) -> None:
    p, words = np.array([p for p, _ in blocks], np.float32), np.array([w for _, w in blocks], np.int32)
    cuts = [model.cut(p, words, floor=floor)[0] for floor in (0.0, 0.3, 0.5, 0.9)]
    assert all((larger >= smaller).all() for larger, smaller in pairwise(cuts))
    assert (p[cuts[2]] >= 0.5).all()


def test_probabilities_rise_with_scores() -> None:
    scores = np.linspace(-20, 20, 2001).astype(np.float32)
    p = model.probabilities(scores)
    assert (np.diff(p) >= 0).all()
    assert p == pytest.approx(1 / (1 + np.exp(-scores)), abs=6e-4)


def test_a_model_of_other_features_is_refused() -> None:
    data = resources.files("pipeline.extract").joinpath("model.npz").read_bytes()
    assert len(data) < 300_000
    arrays = dict(np.load(io.BytesIO(data)))
    about = arrays["about"].tobytes().replace(b'"link_density"', b'"sink_density"')
    arrays["about"] = np.frombuffer(about, np.uint8)
    changed = io.BytesIO()
    np.savez(changed, **arrays)
    with pytest.raises(ValueError, match="train it again"):
        model.load(changed.getvalue())
