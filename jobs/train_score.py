"""Fits the built-in quality score on texts that people judged, and says how well it agrees with people it has not seen.

    python -m jobs.train_score ../shared/data/bench/quality/labels.jsonl              # fits, prints, writes score.json
    python -m jobs.train_score ../shared/data/bench/quality/labels.jsonl --check      # fails if score.json would change

Logistic regression with a ridge penalty over the pieces of pipeline/quality/score.py, by Newton's method; the same data
give the same file. AUC is the mean over repeated stratified cross-validation, its folds drawn from a fixed seed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import pipeline.quality.score
from pipeline.errors import GristmillError, UsageError
from pipeline.quality import signals
from pipeline.quality.score import PIECES, pieces

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

OUT = Path(pipeline.quality.score.__file__).with_name("score.json")
PENALTY = 2.0
FOLDS, REPEATS, SEED = 5, 20, 0
DIGITS = 4  # of what is written: last bits may differ between linear algebra libraries


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("labels", type=Path, help='JSON lines with "text" and "good" (true or false)')
    parser.add_argument("--lang", default="en", help="the texts' language, for stop words (en)")
    parser.add_argument(
        "--agreement",
        type=float,
        default=0.71,
        help="how often two annotators agree, to estimate people's own AUC (0.71)",
    )
    parser.add_argument("--out", type=Path, default=OUT, help="where to write (the package's score.json)")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the file would change")


def run(args: argparse.Namespace) -> int:
    texts, good = read_labels(args.labels)
    design = np.array([pieces(signals(text, text, args.lang)) for text in texts], np.float64)
    absent: Floats = np.asarray(np.nanmean(design, axis=0)).round(DIGITS)
    design = np.where(np.isnan(design), absent, design)
    aucs = cross_validate(design, good)
    weights = np.round(fit(design, good), DIGITS)
    if (weights[1:] <= 0).any():
        wrong = [p.signal for p, w in zip(PIECES, weights[1:], strict=True) if w <= 0]
        raise GristmillError(f"these data want a weight of zero or less for {', '.join(wrong)}: change its piece")
    written = describe(args, texts, good, weights, absent, float(aucs.mean()), auc(design @ weights[1:], good))
    print(f"{len(texts)} texts, {int(good.sum())} good")
    for piece, weight in zip(PIECES, weights[1:], strict=True):
        print(f"  {weight:6.3f}  {piece.signal:34} {piece.why}")
    print(f"AUC {aucs.mean():.3f} on texts not fitted ({FOLDS} folds, {REPEATS} times; their spread {aucs.std():.3f})")
    one, single, pair = people(args.agreement)
    print(
        f"people, were any two to agree on {args.agreement:.0%} of texts: one against another {one:.2f}, one against a"
        f" majority of three {single:.2f}, the mean of two against it {pair:.2f}"
    )
    if args.check:
        if not args.out.is_file() or args.out.read_text("utf-8") != written:
            raise GristmillError(f"{args.out} is not what these labels give: run without --check")
    else:
        args.out.write_text(written, "utf-8")
    return 0


def read_labels(path: Path) -> tuple[list[str], Floats]:
    """Texts, and 1.0 for each that people called good."""
    try:
        rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        return [row["text"] for row in rows], np.array([bool(row["good"]) for row in rows], np.float64)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path}: no labelled texts ({type(error).__name__}: {error})") from None


def fit(design: Floats, good: Floats, penalty: float = PENALTY) -> Floats:
    """Intercept and weights (n_pieces + 1) that minimise log loss + penalty/2 x the squares of the weights."""
    with_one = np.column_stack([np.ones(len(design)), design])
    ridge = np.diag([0.0] + [penalty] * design.shape[1])
    weights = np.zeros(with_one.shape[1])
    for _ in range(50):
        p = 1 / (1 + np.exp(-with_one @ weights))
        slope = with_one.T @ (p - good) + ridge @ weights
        curve = (with_one * (p * (1 - p))[:, None]).T @ with_one + ridge
        step = np.linalg.solve(curve, slope)
        weights -= step
        if np.abs(step).max() < 1e-10:
            break
    return weights


def cross_validate(design: Floats, good: Floats) -> Floats:
    """AUC of each held-out fold, FOLDS x REPEATS."""
    draw = np.random.default_rng(SEED)
    found = []
    for _ in range(REPEATS):
        fold: Ints = np.empty(len(good), np.int64)
        for side in (0.0, 1.0):
            members = np.flatnonzero(good == side)
            fold[draw.permutation(members)] = np.arange(len(members)) % FOLDS
        for held in range(FOLDS):
            weights = fit(design[fold != held], good[fold != held])
            found.append(auc(design[fold == held] @ weights[1:], good[fold == held]))
    return np.array(found)


def auc(scores: Floats, good: Floats) -> float:
    """How often a good text scores above one that is not; ties count half."""
    high, low = scores[good == 1][:, None], scores[good == 0][None, :]
    return float(((high > low) + 0.5 * (high == low)).mean())


def people(agreement: float) -> tuple[float, float, float]:
    """AUC that people would reach, from how often two of them agree (0.5 to 1), as the labels hold no single votes.

    One person's vote against another's; against the majority of three others; the mean of two votes against it. Model:
    half the texts are good, everyone errs alike and independently, so two agree with p^2 + (1 - p)^2.
    """
    p = (1 + (2 * agreement - 1) ** 0.5) / 2
    majority = p**3 + 3 * p**2 * (1 - p)
    single = p * majority + (1 - p) * (1 - majority)
    votes = np.array([(1 - p) ** 2, 2 * p * (1 - p), p**2])  # 0, 1, 2 of two people call a good text good
    good = majority * votes + (1 - majority) * votes[::-1]
    pair = sum(good[i] * good[::-1][j] * (1.0 if i > j else 0.5) for i in range(3) for j in range(i + 1))
    return agreement, single, float(pair)


def describe(
    args: argparse.Namespace,
    texts: list[str],
    good: Floats,
    weights: Floats,
    absent: Floats,
    held_out: float,
    own: float,
) -> str:
    content: dict[str, Any] = {
        "made_by": "python -m jobs.train_score LABELS",
        "labels": {
            "sha256": hashlib.sha256(args.labels.read_bytes()).hexdigest(),
            "origin": "texts of mlfoundations/dclm (MIT) with the majority's judgement; not shipped",
            "texts": len(texts),
            "good": int(good.sum()),
            "lang": args.lang,
        },
        "fit": {"penalty": PENALTY, "folds": FOLDS, "repeats": REPEATS, "seed": SEED},
        "auc": {"cross_validated": round(held_out, 3), "on_the_fitted_texts": round(own, 3)},
        "intercept": float(weights[0]),
        "terms": {
            piece.signal: {"weight": float(weight), "absent": float(mean)}
            for piece, weight, mean in zip(PIECES, weights[1:], absent, strict=True)
        },
    }
    return json.dumps(content, indent=2) + "\n"


if __name__ == "__main__":
    from jobs.cli import single

    sys.exit(single("jobs.train_score"))
