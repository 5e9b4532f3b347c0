"""LightGBM (Ke et al. 2017, NIPS) for one stage, and its trees in the form that pipeline/extract/trees.py reads.

One thread, fixed seeds, `deterministic`: the same rows give the same trees.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.extract.trees import MAX_LEAVES, Trees, leaf_slot

Floats = npt.NDArray[np.float32]

_FULL = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Boosting:
    """Settings of one stage; `stops` and `floor` are those of Trees, for speed only."""

    trees: int
    leaves: int
    rate: float
    depth: int = 12
    stops: tuple[int, ...] = ()
    floor: float = -3.0
    smallest_leaf: int = 40
    features: float = 0.5  #: share of features that a tree may look at
    rows: float = 0.7  #: share of rows that a tree is fitted on
    ridge: float = 3.0
    seed: int = 1


def fit(rows: Floats, target: Floats, weight: Floats, settings: Boosting) -> Trees:
    """Trees for the log odds of `target`, shares from 0 to 1, by cross-entropy; rows float32[blocks, features]."""
    import lightgbm  # the extra `extractor`

    options = {
        "objective": "cross_entropy",
        "num_leaves": min(settings.leaves, MAX_LEAVES),
        "max_depth": settings.depth,
        "learning_rate": settings.rate,
        "min_data_in_leaf": settings.smallest_leaf,
        "feature_fraction": settings.features,
        "bagging_fraction": settings.rows,
        "bagging_freq": 1,
        "lambda_l2": settings.ridge,
        "seed": settings.seed,
        "deterministic": True,
        "force_col_wise": True,
        "num_threads": 1,
        "verbosity": -1,
    }
    weight = weight / weight.mean(dtype=np.float64)  # the ridge is for blocks that weigh 1
    data = lightgbm.Dataset(rows, target, weight=weight, params=options, free_raw_data=True)
    booster = lightgbm.train(options, data, settings.trees)
    return trees_of(booster.dump_model(), settings)


def trees_of(dump: dict[str, Any], settings: Boosting) -> Trees:
    """LightGBM's trees; its sums are of float64 leaves, ours of the nearest float32."""
    feature: list[int] = []
    threshold: list[float] = []
    mask: list[int] = []
    start = [0]
    leaf = np.zeros((len(dump["tree_info"]), MAX_LEAVES), np.float32)
    for number, tree in enumerate(dump["tree_info"]):
        values: list[float] = []

        def walk(node: dict[str, Any], values: list[float] = values) -> None:
            if "split_feature" not in node:
                values.append(node["leaf_value"])
                return
            if node["decision_type"] != "<=" or node["missing_type"] != "None":
                raise ValueError(f"a split that the trees cannot hold: {node['decision_type']} {node['missing_type']}")
            first = len(values)
            walk(node["left_child"])
            on_the_left = ((1 << (len(values) - first)) - 1) << first
            feature.append(node["split_feature"])
            threshold.append(float(_below(node["threshold"])))
            mask.append(_FULL & ~on_the_left)
            walk(node["right_child"])

        walk(tree["tree_structure"])
        start.append(len(feature))
        for i, value in enumerate(values):
            leaf[number, leaf_slot(i)] = value
    stops = [stop for stop in settings.stops if stop < len(leaf)]
    return Trees(
        np.array(feature, np.int32),
        np.array(threshold, np.float32),
        np.array(mask, np.uint32),
        np.array(start, np.int32),
        leaf,
        np.array([*stops, len(leaf)], np.int32),
        0.0,
        settings.floor,
    )


def _below(value: float) -> np.float32:
    """The largest float32 that is not above `value`: float32 features fall on the same side of both."""
    near = np.float32(value)
    return near if float(near) <= value else np.nextafter(near, np.float32(-np.inf))
