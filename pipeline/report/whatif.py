"""What another recipe would have kept, from stored signals: exact up to `quality`, an estimate after that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline import datasets, recipe
from pipeline.errors import UsageError
from pipeline.recipe import Recipe
from pipeline.report import numbers
from pipeline.report.checks import order, range_text
from pipeline.report.reading import Run
from pipeline.report.survey import KEPT, LANGUAGE, QUALITY, STAGE_INDEX, ends
from pipeline.signals import SIGNALS

#: What judging reads: these may change without reading the crawl or its texts again.
ALLOWED = ("quality.rules", "language.allowed", "language.min_score", "language.min_letters")
_COLUMNS = ("record_id", "stage", "reason", "detail", "lang", "lang_score", *(s.name for s in SIGNALS))


#: (columns of records/, recipe) -> (kept, stage, reason, failed_rules) per row: pipeline.quality.judge.judge
Judge: TypeAlias = Callable[[pa.Table, Recipe], tuple[Any, Any, Any, Any]]


@dataclass
class Counts:
    """Of one recipe: verdicts by (stage, reason), and per rule how many fail it and how many fail it alone."""

    reasons: dict[tuple[str, str], int] = field(default_factory=dict)
    words: dict[tuple[str, str], int] = field(default_factory=dict)
    fires: dict[str, int] = field(default_factory=dict)
    sole: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class WhatIf:
    """`stored` and `changed` end at `quality`: what passes it is ('kept', '') in both.

    `after`: for each later stage (name, share of records it lost in the stored run, share of words).
    """

    changes: list[tuple[str, str, str]]  #: (key, stored value, new value)
    recipe: Recipe
    stored: Counts
    changed: Counts
    after: list[tuple[str, float, float]]

    def estimate(self, counts: Counts) -> tuple[int, int]:
        """(records, words) kept at the end, if later stages lose the shares that they lost in the stored run."""
        records, words = counts.reasons.get(("kept", ""), 0), counts.words.get(("kept", ""), 0)
        left, left_words = float(records), float(words)
        for _, share, word_share in self.after:
            left *= 1 - share
            left_words *= 1 - word_share
        return round(left), round(left_words)


def what_if(run: Run, overrides: Sequence[str], judge: Judge) -> WhatIf:
    """Judge the stored signals by the stored recipe with `overrides` (`key=value`) applied; nothing is written.

    Raises UsageError for keys that need more than judging, and whatever `recipe.load` raises.
    """
    wanted = recipe.override(run.recipe, overrides)
    changes = _changes(run.recipe, wanted)
    stored, changed = Counts(), Counts()
    lost = np.zeros((KEPT + 1, 2), np.int64)
    for _, _, records, verdicts in run.judged(_COLUMNS):
        table = pa.Table.from_batches([records])
        words = np.asarray(pc.fill_null(records["n_words"], 0), np.int64)
        stages = ends(verdicts)
        np.add.at(lost, stages, np.stack([np.ones_like(words), words], axis=1))
        passed = pa.array(stages > QUALITY)
        stage = pc.if_else(passed, "kept", verdicts["stage"])
        reason = pc.if_else(passed, "", verdicts["reason"])
        _add(stored, stage, reason, verdicts["failed_rules"], words)
        kept, stage, reason, failed = judge(table, wanted)
        kept = _array(kept)
        _add(changed, pc.if_else(kept, "kept", stage), pc.if_else(kept, "", reason), _array(failed), words)
    return WhatIf(changes, wanted, stored, changed, _after(lost))


def _add(counts: Counts, stage: Any, reason: Any, failed: Any, words: np.ndarray[Any, np.dtype[np.int64]]) -> None:
    pairs = pc.dictionary_encode(pc.binary_join_element_wise(_array(stage), _array(reason), "\n"))
    indices = np.asarray(pairs.indices)
    records = np.bincount(indices, minlength=len(pairs.dictionary))
    weights = np.zeros(len(pairs.dictionary), np.int64)
    np.add.at(weights, indices, words)
    for pair, n, w in zip(pairs.dictionary.to_pylist(), records.tolist(), weights.tolist(), strict=True):
        name, _, why = pair.partition("\n")
        counts.reasons[name, why] = counts.reasons.get((name, why), 0) + n
        counts.words[name, why] = counts.words.get((name, why), 0) + w
    rules, parents = pc.list_flatten(failed), pc.list_parent_indices(failed)
    # A rule's input is what entered its stage: what language took never entered quality.
    entered = pc.or_(
        pc.not_equal(_array(stage).take(parents), "language"),
        pc.is_in(rules, value_set=pa.array(datasets.REASONS["language"])),
    )
    alone = pc.equal(pc.list_value_length(failed).take(parents), 1)
    for target, fired in ((counts.fires, rules.filter(entered)), (counts.sole, rules.filter(pc.and_(entered, alone)))):
        for entry in pc.value_counts(fired).to_pylist():
            target[entry["values"]] = target.get(entry["values"], 0) + entry["counts"]


def _array(column: Any) -> pa.Array:
    """`judge` may give arrays of numpy or of Arrow, in one chunk or several."""
    if isinstance(column, pa.ChunkedArray):
        return column.combine_chunks()
    return column if isinstance(column, pa.Array) else pa.array(column)


def _after(lost: np.ndarray[Any, np.dtype[np.int64]]) -> list[tuple[str, float, float]]:
    result = []
    for stage in datasets.STAGES[QUALITY + 1 :]:
        index = STAGE_INDEX[stage]
        entered = lost[index:].sum(axis=0)
        shares = [float(lost[index][i] / entered[i]) if entered[i] else 0.0 for i in range(2)]
        if shares[0]:
            result.append((stage, shares[0], shares[1]))
    return result


def _changes(old: Recipe, new: Recipe) -> list[tuple[str, str, str]]:
    before, after = _flat(old.model_dump(mode="json")), _flat(new.model_dump(mode="json"))
    changes = []
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) != after.get(key):
            if not any(key == name or key.startswith(f"{name}.") for name in ALLOWED):
                raise UsageError(
                    f"{key} cannot be changed from stored signals: run curate with --set {key}=… "
                    f"(here: {', '.join(ALLOWED)})"
                )
            changes.append((key, _shown(before.get(key)), _shown(after.get(key))))
    return changes


def _flat(tree: Any, prefix: str = "") -> dict[str, Any]:
    """Nested tables as dotted keys; lists and empty tables are values."""
    if not isinstance(tree, dict) or not tree:
        return {prefix: tree}
    result: dict[str, Any] = {}
    for key, value in tree.items():
        result |= _flat(value, f"{prefix}.{key}" if prefix else key)
    return result


def _shown(value: Any) -> str:
    if value is None or value == {}:
        return "none"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def as_json(result: WhatIf) -> dict[str, Any]:
    """Funnels of both, per rule, and the estimate of what is kept in the end."""

    def funnel(counts: Counts) -> dict[str, Any]:
        kept, words = result.estimate(counts)
        rejected: dict[str, dict[str, int]] = {}
        for (stage, reason), n in sorted(
            counts.reasons.items(), key=lambda item: order(item[0][0], item[0][1], result.recipe)
        ):
            if stage != "kept":
                rejected.setdefault(stage, {})[reason] = n
        return {
            "rejected": rejected,
            "passed_quality": counts.reasons.get(("kept", ""), 0),
            "passed_quality_words": counts.words.get(("kept", ""), 0),
            "estimated_kept": kept,
            "estimated_words": words,
            "rules": {n: {"fires": f, "sole": counts.sole.get(n, 0)} for n, f in sorted(counts.fires.items())},
        }

    return {
        "changes": [{"key": key, "stored": old, "what_if": new} for key, old, new in result.changes],
        "stored": funnel(result.stored),
        "what_if": funnel(result.changed),
        "later_stages": [{"stage": s, "share_lost": a, "share_of_words_lost": b} for s, a, b in result.after],
    }


def as_text(result: WhatIf) -> str:
    """Stored beside what-if: changes, funnel up to quality, the estimate, the rules whose counts differ first."""
    blocks = []
    if result.changes:
        blocks.append(numbers.table([["changed key", "stored", "what-if"], *map(list, result.changes)], "<<<"))
    else:
        blocks.append("nothing is changed: both sides are the stored recipe")
    blocks.append(_funnel_text(result))
    blocks.append(_rules_text(result))
    return "\n\n".join(blocks)


def _funnel_text(result: WhatIf) -> str:
    stored, changed = result.stored.reasons, result.changed.reasons
    rows = [["stage", "reason", "stored", "what-if", "change"]]
    before = [sum(n for (s, _), n in c.items() if STAGE_INDEX.get(s, KEPT) < LANGUAGE) for c in (stored, changed)]
    rows.append(["before language", "", *_pair(*before)])
    keys = {k for k in stored.keys() | changed.keys() if STAGE_INDEX.get(k[0], KEPT) >= LANGUAGE}
    last = ""
    for stage, reason in sorted(keys, key=lambda key: order(key[0], key[1], result.recipe)):
        if stage != "kept":
            rows.append([stage if stage != last else "", reason, *_pair(*_both(result, (stage, reason)))])
            last = stage
    rows.append(["passed quality", "", *_pair(*_both(result, ("kept", "")))])
    for stage, share, _ in result.after:
        rows.append([f"{stage} (estimate)", f"loses {numbers.share(share, 1)}, as in the stored run", "", "", ""])
    (kept, words), (new_kept, new_words) = result.estimate(result.stored), result.estimate(result.changed)
    rows.append(["kept (estimate)", "records", *_pair(kept, new_kept)])
    rows.append(["", "words", *_pair(words, new_words)])
    return numbers.table(rows, "<<>>>")


def _rules_text(result: WhatIf) -> str:
    rows = [["rule", "keeps", "fails", "what-if", "change", "alone", "what-if", "change"]]
    names = [
        *datasets.REASONS["language"],
        *dict.fromkeys([*result.recipe.quality.rules, *sorted(result.stored.fires)]),
    ]
    for name in dict.fromkeys(names):
        bounds = result.recipe.quality.rules.get(name)
        keeps = range_text(bounds.min, bounds.max) if bounds else ""
        if not bounds and name not in datasets.REASONS["language"]:
            keeps = "off"
        fires = (result.stored.fires.get(name, 0), result.changed.fires.get(name, 0))
        sole = (result.stored.sole.get(name, 0), result.changed.sole.get(name, 0))
        rows.append([name, keeps, *_pair(*fires), *_pair(*sole)])
    return numbers.table(rows, "<<>>>>>>")


def _both(result: WhatIf, key: tuple[str, str]) -> tuple[int, int]:
    return result.stored.reasons.get(key, 0), result.changed.reasons.get(key, 0)


def _pair(stored: int, changed: int) -> list[str]:
    change = f"{changed - stored:+,}" if changed != stored else "="
    return [numbers.count(stored), numbers.count(changed), change]
