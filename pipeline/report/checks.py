"""Every rule of a recipe against one stored record: its range, the record's value and how near it was to the bound."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from pipeline import datasets
from pipeline.recipe import Recipe
from pipeline.report import numbers
from pipeline.signals import RULES_BY_NAME

Outcome = Literal["pass", "fail", "not applicable"]


@dataclass(frozen=True)
class Check:
    """`margin`: distance to the nearest bound in the signal's unit, negative outside; None without a value."""

    stage: str
    rule: str
    signal: str
    value: float | str | None
    minimum: float | None
    maximum: float | None
    range: str
    outcome: Outcome
    margin: float | None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def check_all(row: Mapping[str, Any], failed: Collection[str], recipe: Recipe) -> list[Check]:
    """All rules of `language` and `quality` in recipe order. What failed is what the verdict says, not judged again."""
    return [*_language(row, failed, recipe), *_quality(row, failed, recipe)]


def _language(row: Mapping[str, Any], failed: Collection[str], recipe: Recipe) -> list[Check]:
    settings = recipe.language
    allowed = ", ".join(settings.allowed) or "any language"
    score = f"> {numbers.value(settings.min_score)}" if settings.min_score else "any score"
    known = row.get("lang") not in (None, "und")
    checks = []
    for rule, signal, minimum, text in (
        ("too_short_for_lang", "n_letters", float(settings.min_letters), f"≥ {settings.min_letters}"),
        ("other_language", "lang", None, allowed),
        ("low_score", "lang_score", settings.min_score or None, score),
    ):
        value = row.get(signal)
        outcome = _outcome(rule, failed, value is not None and (known or rule == "too_short_for_lang"))
        margin = None if minimum is None or value is None else value - minimum
        checks.append(Check("language", rule, signal, value, minimum, None, text, outcome, margin))
    return checks


def _quality(row: Mapping[str, Any], failed: Collection[str], recipe: Recipe) -> list[Check]:
    checks = []
    for name, bounds in recipe.quality.rules.items():
        signal = RULES_BY_NAME[name].signal
        value = row.get(signal)
        margin = None
        if value is not None:
            sides = [value - bounds.min] if bounds.min is not None else []
            sides += [bounds.max - value] if bounds.max is not None else []
            margin = min(sides)
        text = range_text(bounds.min, bounds.max)
        outcome = _outcome(name, failed, value is not None)
        checks.append(Check("quality", name, signal, value, bounds.min, bounds.max, text, outcome, margin))
    return checks


def _outcome(rule: str, failed: Collection[str], applies: bool) -> Outcome:
    if rule in failed:
        return "fail"
    return "pass" if applies else "not applicable"


def range_text(minimum: float | None, maximum: float | None) -> str:
    """'0.1 to 0.9', '≥ 3', '≤ 0.2'."""
    if minimum is not None and maximum is not None:
        return f"{numbers.value(minimum)} to {numbers.value(maximum)}"
    return f"≥ {numbers.value(minimum)}" if minimum is not None else f"≤ {numbers.value(maximum)}"


def order(stage: str, reason: str, recipe: Recipe) -> tuple[int, int, str]:
    """Sort key of (stage, reason): pipeline order, within `quality` the recipe's; kept last."""
    if stage not in datasets.STAGES:
        return (len(datasets.STAGES), 0, reason)
    named: dict[str, Collection[str]] = {
        "quality": recipe.quality.rules,
        "decontaminate": recipe.decontaminate.benchmarks,
    }
    known = list(named.get(stage, datasets.REASONS[stage]))
    return (datasets.STAGES.index(stage), known.index(reason) if reason in known else len(known), reason)
