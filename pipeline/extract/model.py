"""The trained model: which blocks of a page are main text. Made by jobs/train_extractor.py, shipped as model.npz.

Two stages of boosted trees: the first looks at each block and its surroundings, the second at the first's answers.
"""

from __future__ import annotations

import io
import json
import math
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.extract.container_features import layout
from pipeline.extract.context_features import CONTEXT, best_cut, context
from pipeline.extract.features import FEATURES, TokenScores, columns, token_scores
from pipeline.extract.scan import Blocks
from pipeline.extract.trees import Trees, evaluate

Floats = npt.NDArray[np.float32]

_LOGITS, _STEPS = 16, 256  #: probabilities are tabulated for raw scores from -16 to 16 in steps of 1/256


@dataclass(frozen=True, slots=True)
class Model:
    tokens: TokenScores
    first: Trees
    second: Trees
    about: dict[str, Any]  #: which data, code and settings made it


def predict(model: Model, blocks: Blocks) -> Floats:
    """float32[n], the probability that each block is main text."""
    if not len(blocks.owner):
        return np.empty(0, np.float32)
    around = layout(blocks)
    first = probabilities(evaluate(model.first, columns(blocks, around, model.tokens)))
    return probabilities(evaluate(model.second, context(blocks, around, first)))


def cut(
    probability: Floats, words: npt.NDArray[np.int32], *, floor: float = 0.0, recall: float = 1.0
) -> tuple[npt.NDArray[np.bool_], float]:
    """Which blocks to keep so that the expected F1 is highest, and that F1: the text's confidence, 0 to 1.

    No block less probable than `floor` is kept; `recall` is the square of beta where it is F-beta that is wanted.
    """
    threshold, expected = best_cut(probability, words, floor, recall)
    return probability >= threshold, expected


def probabilities(scores: Floats) -> Floats:
    """Logistic function of raw scores, read from a table: the same on every machine, exp() is not."""
    places = np.clip((scores + np.float32(_LOGITS)) * np.float32(_STEPS), 0, 2 * _LOGITS * _STEPS - 1)
    found: Floats = _logistic()[places.astype(np.int32)]
    return found


@cache
def _logistic() -> Floats:
    centres = ((i + 0.5) / _STEPS - _LOGITS for i in range(2 * _LOGITS * _STEPS))
    return np.array([1 / (1 + math.exp(-x)) for x in centres], np.float32)


@cache
def shipped() -> Model:
    """The model in the package."""
    return load(resources.files("pipeline.extract").joinpath("model.npz").read_bytes())


def load(data: bytes) -> Model:
    """The model in the bytes of a .npz file. Raises ValueError where it was made for other features."""
    arrays = np.load(io.BytesIO(data), allow_pickle=False)
    about = json.loads(arrays["about"].tobytes())
    if tuple(about["features"]) != FEATURES or tuple(about["context"]) != CONTEXT:
        raise ValueError("the model was made for other features: train it again")
    tokens = token_scores(arrays["token_hash"], arrays["token_score"])
    return Model(tokens, _trees(arrays, "first"), _trees(arrays, "second"), about)


def _trees(arrays: Any, stage: str) -> Trees:
    names = ("feature", "threshold", "mask", "start", "leaf", "stop")
    parts = {name: np.ascontiguousarray(arrays[f"{stage}_{name}"]) for name in names}
    base, floor = arrays[f"{stage}_base"].tolist()
    return Trees(**parts, base=base, floor=floor)
