"""Every rule: a document that just passes and one that just fails, one step apart; its own reason; closed bounds."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from pipeline import datasets
from pipeline.quality import judge, signals
from pipeline.quality.edits import edit
from pipeline.recipe import C4Lines, Edit, Quality, Range, Recipe, RefinedWebLines, load
from pipeline.signals import RULES, RULES_BY_NAME, SIGNALS
from tests.quality.documents import GROWING

#: Rules that no preset uses, with the bound of their reference: mC4's paragraphs.
EXTRA = {"c4_long_lines": Range(min=3)}
BOUNDS = {
    name: r for preset in ("gopher", "fineweb", "c4", "refinedweb") for name, r in load(preset).quality.rules.items()
}
BOUNDS |= EXTRA
OTHERS = {"quality_score", "repeated_line_ratio"}  # their own tests
LENGTH_2_BOUNDS = ("refinedweb_words", "refinedweb_mean_word_length")


def table(*rows: dict[str, object]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), datasets.RECORDS)


def row(text: str, edits: Edit | None = None) -> dict[str, object]:
    edits = edits or Edit()
    return {"lang": "en", "lang_score": 0.9, **signals(text, edit(text, edits), "en", edits), "n_letters": 10_000}


def one_rule(name: str) -> Recipe:
    return Recipe(quality=Quality(rules={name: BOUNDS[name]}))


def test_every_rule_has_documents() -> None:
    assert set(GROWING) == {rule.name for rule in RULES} - OTHERS
    assert set(BOUNDS) == set(GROWING)


@pytest.mark.parametrize("name", sorted(GROWING))
def test_a_rule_tips_over_at_one_step_with_its_own_reason(name: str) -> None:
    edits = Edit(refinedweb=RefinedWebLines()) if name == "refinedweb_removed_words_frac" else None
    recipe = one_rule(name)
    verdicts = []
    for n in range(60):
        kept, stage, reason, failed = judge.judge(table(row(GROWING[name](n), edits)), recipe)
        verdicts.append((kept[0].as_py(), stage[0].as_py(), reason[0].as_py(), failed[0].as_py()))
        if not verdicts[-1][0]:
            break
    assert len(verdicts) > 1, "the first document passes"
    assert verdicts[-2] == (True, None, None, [])
    assert verdicts[-1] == (False, "quality", name, [name])


@pytest.mark.parametrize("name", sorted(BOUNDS))
def test_bounds_are_closed_and_null_does_not_apply(name: str) -> None:
    bounds, signal = BOUNDS[name], RULES_BY_NAME[name].signal
    step = 1 if next(s for s in SIGNALS if s.name == signal).kind == "int" else 1e-12
    base = {"lang": "en", "n_letters": 100, "n_chars": 10}
    values = [b for b in (bounds.min, bounds.max) if b is not None]
    outside = [b - step for b in (bounds.min,) if b is not None] + [b + step for b in (bounds.max,) if b is not None]
    rows = [{**base, signal: v} for v in [*values, *outside, None]]
    kept, _, _, _ = judge.judge(table(*rows), one_rule(name))
    assert kept.to_pylist() == [True] * len(values) + [False] * len(outside) + [True]
    assert judge.not_applicable(table(*rows), one_rule(name)) == {name: 1}


def test_first_failing_rule_in_recipe_order_is_the_reason_and_all_are_listed() -> None:
    rules = {"gopher_short_doc": Range(min=50), "c4_sentences": Range(min=3), "fineweb_empty": Range(min=1)}
    recipe = Recipe(quality=Quality(rules=rules))
    kept, stage, reason, failed = judge.judge(table(row("Two words."), row("")), recipe)
    assert kept.to_pylist() == [False, False]
    assert list(zip(stage.to_pylist(), reason.to_pylist(), strict=True)) == [("quality", "gopher_short_doc")] * 2
    assert failed.to_pylist() == [["gopher_short_doc", "c4_sentences"], [*rules]]


def test_early_ends_and_language_come_before_quality() -> None:
    recipe = Recipe.model_validate(
        {"language": {"allowed": ["EN"], "min_score": 0.65}, "quality": {"rules": {"c4_sentences": {"min": 1}}}}
    )
    given = [
        {"stage": "fetch", "reason": "revisit"},
        {"lang": "und", "n_letters": 3, "c4_sentences": 0, "n_chars": 3},
        {"lang": "de", "lang_score": 0.9, "n_letters": 99, "c4_sentences": 0, "n_chars": 9},
        {"lang": "en", "lang_score": 0.65, "n_letters": 99, "c4_sentences": 1, "n_chars": 9},
        {"lang": "en", "lang_score": 0.66, "n_letters": 99, "c4_sentences": 1, "n_chars": 9},
        {"lang": "en", "lang_score": 0.66, "n_letters": 19, "c4_sentences": 1, "n_chars": 9},
    ]
    kept, stage, reason, failed = judge.judge(table(*given), recipe)
    assert kept.to_pylist() == [False, False, False, False, True, False]
    assert list(zip(stage.to_pylist(), reason.to_pylist(), failed.to_pylist(), strict=True)) == [
        ("fetch", "revisit", []),
        ("language", "too_short_for_lang", ["too_short_for_lang", "c4_sentences"]),
        ("language", "other_language", ["other_language", "c4_sentences"]),
        ("language", "low_score", ["low_score"]),
        (None, None, []),
        ("language", "too_short_for_lang", ["too_short_for_lang"]),
    ]


def test_a_text_emptied_by_edits_is_not_kept() -> None:
    kept, stage, reason, _ = judge.judge(table(row("one\ntwo", Edit(c4=C4Lines()))), Recipe())
    assert (kept[0].as_py(), stage[0].as_py(), reason[0].as_py()) == (False, "extract", "no_text")


def test_judging_is_row_by_row() -> None:
    rows = [row(GROWING[name](n)) for name in ("fineweb_list_ratio", "gopher_short_doc") for n in (0, 9, 20)]
    recipe = load("fineweb")
    whole = judge.judge(table(*rows), recipe)
    apart = [judge.judge(table(r), recipe) for r in rows]
    for column, parts in zip(whole, zip(*apart, strict=True), strict=True):
        assert column.to_pylist() == [part[0].as_py() for part in parts]
    assert [a.to_pylist() for a in judge.judge(table(), recipe)] == [[], [], [], []]


def test_masks_agree_with_verdicts() -> None:
    rows = table(*[row(GROWING["fineweb_list_ratio"](n)) for n in (0, 40)])
    masks = judge.failures(rows, load("fineweb"))
    failed = judge.judge(rows, load("fineweb"))[3].to_pylist()
    assert [[n for n, m in masks.items() if m[i]] for i in range(2)] == failed
    assert isinstance(masks["fineweb_list_ratio"], np.ndarray)
