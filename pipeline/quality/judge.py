"""Signals + recipe -> verdicts. Pure, vectorised, cheap: no text is read, so it can be asked any time.

A row's verdict is, in order: what ended it before it had a text; its language; the quality rules in recipe order.
Bounds are closed: a value equal to a bound stays. A null signal fails no rule. A text of which line edits left nothing,
and which no rule of the recipe minds, ends as (extract, no_text).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.recipe import Language, Range, Recipe
from pipeline.signals import RULES_BY_NAME, SIGNALS

Mask: TypeAlias = npt.NDArray[np.bool_]

LANGUAGE_REASONS = ("too_short_for_lang", "other_language", "low_score")
UNKNOWN = "und"

#: What `judge` reads of a row of records/.
COLUMNS: tuple[str, ...] = ("stage", "reason", "lang", "lang_score", *(s.name for s in SIGNALS))


def judge(table: pa.Table | pa.RecordBatch, recipe: Recipe) -> tuple[pa.Array, pa.Array, pa.Array, pa.Array]:
    """(kept bool, stage string, reason string, failed_rules list<string>), one entry per row of `table`.

    `table` has the columns COLUMNS, as in datasets.RECORDS. stage and reason are null where kept.
    """
    masks = failures(table, recipe)
    names = np.array(list(masks), object)
    failing = np.array(list(masks.values()), bool).reshape(len(names), table.num_rows)
    ended = ~_nulls(table, "stage")
    any_failing = failing.any(axis=0)
    empty = ~ended & ~any_failing & (_numbers(table, "n_chars") == 0)
    kept = ~ended & ~any_failing & ~empty
    stage, reason = np.full(table.num_rows, None, object), np.full(table.num_rows, None, object)
    stage[ended], reason[ended] = _objects(table, "stage")[ended], _objects(table, "reason")[ended]
    stage[empty], reason[empty] = "extract", "no_text"
    if len(names):
        first = failing.argmax(axis=0)[any_failing]
        reason[any_failing] = names[first]
        stage[any_failing] = np.where(first < len(LANGUAGE_REASONS), "language", "quality")
    rows, rules = np.nonzero(failing.T)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=table.num_rows))]).astype(np.int32)
    failed = pa.ListArray.from_arrays(pa.array(offsets), pa.array(names[rules], pa.string()))
    return pa.array(kept), pa.array(stage, pa.string()), pa.array(reason, pa.string()), failed


def failures(table: pa.Table | pa.RecordBatch, recipe: Recipe) -> dict[str, Mask]:
    """Which rows fail each rule: the language reasons, then the recipe's rules in its order. Ended rows fail none."""
    has_text = _nulls(table, "stage")
    masks = _language(table, recipe.language)
    for name, bounds in recipe.quality.rules.items():
        masks[name] = _outside(_numbers(table, RULES_BY_NAME[name].signal), bounds)
    return {name: mask & has_text for name, mask in masks.items()}


def not_applicable(table: pa.Table | pa.RecordBatch, recipe: Recipe) -> dict[str, int]:
    """By rule of the recipe: rows with a text to which it does not apply, its signal being null (no list, no words)."""
    has_text = _nulls(table, "stage")
    return {name: int((has_text & _nulls(table, RULES_BY_NAME[name].signal)).sum()) for name in recipe.quality.rules}


def _language(table: pa.Table | pa.RecordBatch, settings: Language) -> dict[str, Mask]:
    """A text without a language is too short, unless the recipe asks for no letters and takes any language."""
    letters = np.nan_to_num(_numbers(table, "n_letters"))
    lang = _objects(table, "lang")
    unknown = (lang == UNKNOWN) | _nulls(table, "lang")
    anything_goes = settings.min_letters == 0 and not settings.min_score
    welcome = anything_goes and (not settings.allowed or UNKNOWN in settings.allowed)
    short = (letters < settings.min_letters) | (unknown & (not welcome))
    other = np.zeros(table.num_rows, bool)
    if settings.allowed:
        other = ~np.isin(lang.astype(str), settings.allowed) & ~short & ~unknown
    low = np.zeros(table.num_rows, bool)
    if settings.min_score > 0:
        low = ~(_numbers(table, "lang_score") > settings.min_score) & ~short & ~unknown
    return dict(zip(LANGUAGE_REASONS, (short, other, low), strict=True))


def _outside(values: npt.NDArray[np.float64], bounds: Range) -> Mask:
    outside = np.zeros(len(values), bool)
    if bounds.min is not None:
        outside |= values < bounds.min
    if bounds.max is not None:
        outside |= values > bounds.max
    return outside


def _column(table: pa.Table | pa.RecordBatch, name: str) -> Any:
    column = table.column(name)
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _numbers(table: pa.Table | pa.RecordBatch, name: str) -> npt.NDArray[np.float64]:
    """Null as NaN, which is on neither side of any bound."""
    values: npt.NDArray[np.float64] = _column(table, name).cast(pa.float64()).to_numpy(zero_copy_only=False)
    return values


def _objects(table: pa.Table | pa.RecordBatch, name: str) -> npt.NDArray[Any]:
    values: npt.NDArray[Any] = _column(table, name).to_numpy(zero_copy_only=False)
    return values.astype(object)


def _nulls(table: pa.Table | pa.RecordBatch, name: str) -> Mask:
    values: Sequence[bool] = _column(table, name).is_null().to_numpy(zero_copy_only=False)
    return np.asarray(values, bool)
