"""`quality_score`: how likely people would call a text good, in [0, 1], from its signals alone.

    score = 1 / (1 + exp(-(intercept + sum of weight x piece(signal))))

Each piece is a broken line from a signal to [0, 1], 1 being good, and flat outside its knots, so that no single signal
can decide and none grows without bound. Every weight is positive: a better piece never lowers the score. Length is not
among them. A signal that is null (no stop-word list for the language, no sentence) counts as an average text's, and a
text without words has score 0. Weights are in score.json with their origin; `python -m jobs.train_score` makes them.

A fastText classifier named by the recipe (`quality.score_model`) takes the place of all this.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from pipeline import recipe
from pipeline.errors import UsageError
from pipeline.recipe import nearest

Signals = Mapping[str, float | int | None]
#: (edited text, its signals) -> score in [0, 1]
Scorer = Callable[[str, Signals], float]


@dataclass(frozen=True, slots=True)
class Piece:
    """A broken line through (x, y): what one signal says about quality, 0 to 1."""

    signal: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    why: str

    def __call__(self, value: float) -> float:
        x, y = self.x, self.y
        if value <= x[0]:
            return y[0]
        if value >= x[-1]:
            return y[-1]
        i = bisect_right(x, value)
        return y[i - 1] + (y[i] - y[i - 1]) * (value - x[i - 1]) / (x[i] - x[i - 1])


PIECES: tuple[Piece, ...] = (
    Piece("mean_sentence_words", (2, 20, 40, 120), (0, 1, 1, 0), "sentences, neither fragments nor one endless run"),
    Piece("mean_line_words", (2, 40), (0, 1), "paragraphs rather than menus and lists"),
    Piece("fineweb_line_punct_ratio", (0, 0.7), (0, 1), "lines that end as sentences do"),
    Piece("upper_frac", (0.03, 0.2), (1, 0), "headings, names and shouting are few"),
    Piece("digit_frac", (0, 0.1), (1, 0), "prices, dates and tables are few"),
    Piece("refinedweb_non_alpha_words_frac", (0, 0.15), (1, 0), "most words have letters"),
    Piece("refinedweb_symbol_ratio", (0, 0.03), (1, 0), "no hash tags, no cut-off teasers"),
    Piece("stop_word_frac", (0.02, 0.2), (0, 1), "function words: prose, not key words"),
    Piece("unique_word_frac", (0.3, 0.55, 0.78, 1), (0, 1, 1, 0), "neither repetition nor a mere list of terms"),
)


@dataclass(frozen=True, slots=True)
class Weights:
    """What fitting gives, one number per piece; `absent` is the piece's mean over the labelled texts."""

    intercept: float
    weights: tuple[float, ...]
    absent: tuple[float, ...]


def pieces(signals: Signals) -> list[float | None]:
    """The value of each of PIECES, None where its signal is null or no number."""
    values: list[float | None] = []
    for piece in PIECES:
        value = signals.get(piece.signal)
        values.append(None if value is None or math.isnan(value) else piece(float(value)))
    return values


def quality_score(signals: Signals, weights: Weights | None = None) -> float:
    """The built-in score of a text with these signals; finite for any numbers and nulls."""
    if signals.get("n_words") == 0:
        return 0.0
    fitted = weights or fitted_weights()
    logit = fitted.intercept
    for value, weight, absent in zip(pieces(signals), fitted.weights, fitted.absent, strict=True):
        logit += weight * (absent if value is None else value)
    return 1 / (1 + math.exp(-logit))


@cache
def fitted_weights() -> Weights:
    """The weights shipped with the package."""
    stored = json.loads(resources.files("pipeline.quality").joinpath("score.json").read_text("utf-8"))
    terms: dict[str, Any] = stored["terms"]
    return Weights(
        intercept=stored["intercept"],
        weights=tuple(terms[piece.signal]["weight"] for piece in PIECES),
        absent=tuple(terms[piece.signal]["absent"] for piece in PIECES),
    )


def load_scorer(settings: recipe.Quality) -> Scorer:
    """The score that the recipe wants. Raises UsageError where its model or the model's label is missing."""
    if settings.score_model is None:
        fitted_weights()
        return lambda _, signals: quality_score(signals)
    predict, label = _load_classifier(settings.score_model), settings.score_label
    known = [name for _, name in predict("a")]
    if label not in known:
        raise UsageError(f"quality.score_label: the model has no label {label!r}{nearest(label, known)}")

    def score(text: str, _: Signals) -> float:
        probability = next((p for p, name in predict(text) if name == label), 0.0)
        if math.isnan(probability):
            raise ValueError("the score model's probability is not a number")
        return min(max(probability, 0.0), 1.0)

    return score


@cache
def _load_classifier(path: str) -> Callable[[str], list[tuple[float, str]]]:
    """(probability, label) of every label for a whole text: line ends become blanks, nothing is cut."""
    import fasttext

    if not Path(path).is_file():
        raise UsageError(f"quality.score_model: no file {path}; give a fastText classifier or leave the key out")
    try:
        predict = fasttext.load_model(path).f.predict
    except (ValueError, RuntimeError) as error:
        raise UsageError(f"quality.score_model: {path} is no fastText model ({error})") from None

    def classify(text: str) -> list[tuple[float, str]]:
        line = text.replace("\n", " ").replace("\r", " ")
        found: list[tuple[float, str]] = predict(line + "\n", -1, -1.0, "replace")
        return found

    return classify
