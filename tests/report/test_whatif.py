from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from pipeline.errors import UsageError
from pipeline.recipe import Recipe
from pipeline.report.whatif import as_json, as_text, what_if
from tests.report.conftest import Written
from tests.report.synthetic import judge


def by_hand(table: pa.Table, recipe: Recipe) -> tuple[Any, Any, Any, Any]:
    """The generator's own judge in the interface of pipeline.quality.judge.judge."""
    verdicts = [judge({**row, "url": None}, recipe) for row in table.to_pylist()]
    return (
        pa.array([v["kept"] for v in verdicts]),
        pa.array([v["stage"] for v in verdicts], pa.string()),
        pa.array([v["reason"] for v in verdicts], pa.string()),
        pa.array([v["failed_rules"] for v in verdicts], pa.list_(pa.string())),
    )


def test_without_changes_both_sides_are_the_stored_run(plain: Written) -> None:
    result = what_if(plain.run, [], by_hand)
    assert result.changes == []
    assert result.stored == result.changed
    survey = plain.summary.survey
    for name, counts in survey.rules.items():
        assert (result.stored.fires.get(name, 0), result.stored.sole.get(name, 0)) == (counts.fires, counts.sole)
    # what dedup lost in the stored run gives back what the stored run kept
    kept_words = plain.summary.published.total
    assert result.estimate(result.stored) == (survey.kept, kept_words)


def test_switching_a_rule_off_brings_back_its_sole_removals(plain: Written) -> None:
    for name, counts in plain.summary.survey.rules.items():
        if name not in plain.run.recipe.quality.rules:
            continue
        result = what_if(plain.run, [f"quality.rules.{name}=off"], by_hand)
        passed = [side.reasons["kept", ""] for side in (result.stored, result.changed)]
        assert passed[1] - passed[0] == counts.sole


def test_another_bound_and_another_language(plain: Written) -> None:
    overrides = ["quality.rules.gopher_short_doc.min=20", "language.allowed=['fr','en']", "language.min_score=0.0"]
    result = what_if(plain.run, overrides, by_hand)
    assert result.changes == [
        ("language.allowed", "de, en, ja", "fr, en"),
        ("language.min_score", "0.6", "0.0"),
        ("quality.rules.gopher_short_doc.min", "50.0", "20.0"),
    ]
    expected = [judge(row, result.recipe) for row in plain.truth.records]
    figures = as_json(result)
    assert figures["what_if"]["passed_quality"] == sum(v["kept"] for v in expected)
    assert figures["what_if"]["rejected"]["language"] == {
        reason: sum(v["reason"] == reason for v in expected) for reason in ("too_short_for_lang", "other_language")
    }
    entered = sum(v["kept"] or v["stage"] == "dedup" for v in plain.truth.verdicts)
    share = len(plain.truth.duplicates) / entered
    assert figures["later_stages"][0]["share_lost"] == pytest.approx(share)
    assert figures["what_if"]["estimated_kept"] == round(figures["what_if"]["passed_quality"] * (1 - share))
    text = as_text(result)
    assert "kept (estimate)" in text
    assert "dedup (estimate)" in text


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("dedup.threshold=0.7", "run curate with --set dedup.threshold"),
        ("extract.engine=trafilatura", "run curate with --set extract.engine"),
        ("edit.c4.min_words=5", "run curate with --set edit.c4"),
        ("url.soft_limit=3", "run curate"),
        ("language.model=other.bin", "run curate"),
        ("publish.shard_mib=1", "run curate"),
        ("language.min_scor=0.5", "unknown key language.min_scor (nearest: min_score)"),
        ("quality.rules.gopher_short.min=5", "nearest: gopher_short_doc"),
        ("quality.rules.gopher_long_doc.min=200000", "no number is in the range"),
        ("language.min_score", "write key=value"),
    ],
)
def test_refused_in_one_line(plain: Written, override: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        what_if(plain.run, [override], by_hand)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
