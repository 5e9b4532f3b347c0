from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from pipeline import datasets
from pipeline.report import findings, funnel
from pipeline.report.reading import open_finished
from pipeline.report.summary import as_json, as_text, summarize
from pipeline.report.survey import DEDUP, HIGH_MOJIBAKE, KEPT, LANGUAGE, LOW_VISIBLE, QUALITY, STAGE_INDEX
from pipeline.signals import RULES_BY_NAME
from tests.report.conftest import Written
from tests.report.synthetic import write_run


def _stage(verdict: dict[str, object]) -> int:
    return KEPT if verdict["kept"] else STAGE_INDEX[str(verdict["stage"])]


def test_the_funnel_is_the_rows_on_disk(plain: Written) -> None:
    truth = plain.truth
    expected = Counter((v["stage"], v["reason"]) for v in truth.verdicts if not v["kept"])
    rows = plain.summary.funnel
    reasons = {(r.stage, r.reason): r.records for r in rows if r.reason is not None}
    assert reasons == dict(expected)
    assert [r.reason for r in rows if r.stage == "quality" and r.reason] == [
        name for name in plain.run.recipe.quality.rules if ("quality", name) in expected
    ]
    stages = [r for r in rows if r.reason is None]
    assert [r.stage for r in stages] == [*datasets.STAGES, "kept"]
    assert sum(r.records for r in stages) == len(truth.records)
    assert stages[-1].records == sum(v["kept"] for v in truth.verdicts) == plain.run.document["counts"]["kept"]
    for before, after in pairwise(stages):
        assert after.entered == before.left


def test_characters_and_words_of_the_funnel(plain: Written) -> None:
    for row in plain.summary.funnel:
        mine = [
            record
            for record, v in zip(plain.truth.records, plain.truth.verdicts, strict=True)
            if (("kept" if v["kept"] else v["stage"]) == row.stage) and row.reason in (None, v["reason"])
        ]
        if row.stage in datasets.STAGES[:LANGUAGE]:
            assert (row.characters, row.words) == (None, None)
        else:
            assert row.words == sum(r.get("n_words") or 0 for r in mine)
            assert row.characters == sum(r.get("n_chars") or 0 for r in mine)


def test_golden_funnel(plain: Written) -> None:
    """The generator is seeded: a change here is a change of what the report counts."""
    text = funnel.as_text(plain.summary.funnel)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines[0] == "stage reason records of all of remaining left characters words"
    assert lines[2:] == GOLDEN, text


GOLDEN = """
read 17 2.8 % 2.8 % 583 – –
truncated 17 2.8 % 2.8 % – –
fetch 33 5.5 % 5.7 % 550 – –
http_status 12 2.0 % 2.1 % – –
not_html 21 3.5 % 3.6 % – –
decode 13 2.2 % 2.4 % 537 – –
undecodable 13 2.2 % 2.4 % – –
url 0 0.0 % 0.0 % 537 – –
extract 31 5.2 % 5.8 % 506 – –
no_text 16 2.7 % 3.0 % – –
timeout 15 2.5 % 2.8 % – –
language 81 13.5 % 16.0 % 425 380,770 55,844
too_short_for_lang 21 3.5 % 4.2 % 130,575 19,144
other_language 49 8.2 % 9.7 % 204,395 29,981
low_score 11 1.8 % 2.2 % 45,800 6,719
quality 253 42.2 % 59.5 % 172 728,626 106,916
gopher_short_doc 43 7.2 % 10.1 % 8,860 1,302
gopher_enough_stop_words 22 3.7 % 5.2 % 62,861 9,214
gopher_rep_dup_line_frac 74 12.3 % 17.4 % 274,918 40,337
gopher_rep_top_2_gram_char_frac 110 18.3 % 25.9 % 374,525 54,971
fineweb_short_line_ratio 4 0.7 % 0.9 % 7,462 1,092
decontaminate 0 0.0 % 0.0 % 172 0 0
dedup 35 5.8 % 20.3 % 137 108,451 15,903
exact 14 2.3 % 8.1 % 52,657 7,726
near 21 3.5 % 12.2 % 55,794 8,177
kept 137 22.8 % 556,991 81,734
""".strip().splitlines()


def test_rule_table_against_a_plain_loop(plain: Written) -> None:
    for name in plain.run.recipe.quality.rules:
        counts = plain.summary.survey.rules[name]
        signal = RULES_BY_NAME[name].signal
        entered = [
            (record, v)
            for record, v in zip(plain.truth.records, plain.truth.verdicts, strict=True)
            if _stage(v) >= QUALITY
        ]
        assert counts.applicable == sum(record[signal] is not None for record, _ in entered)
        assert counts.absent == sum(record[signal] is None for record, _ in entered)
        assert counts.fires == sum(name in v["failed_rules"] for _, v in entered)
        assert counts.sole == sum(v["failed_rules"] == [name] for _, v in entered)
        assert counts.first == sum(v["reason"] == name for _, v in entered)


def test_the_sole_remover_is_what_would_come_back(plain: Written) -> None:
    """Without a rule, exactly its sole removals pass quality."""
    passed = sum(_stage(v) > QUALITY for v in plain.truth.verdicts)
    for name in plain.run.recipe.quality.rules:
        without = sum(
            _stage(v) >= QUALITY and not [rule for rule in v["failed_rules"] if rule != name]
            for v in plain.truth.verdicts
        )
        assert without - passed == plain.summary.survey.rules[name].sole


def test_overlap_counts_pairs(plain: Written) -> None:
    survey = plain.summary.survey
    names = survey.rule_names
    one, other = names.index("gopher_short_doc"), names.index("c4_sentences")
    both = sum(
        {"gopher_short_doc", "c4_sentences"} <= set(v["failed_rules"])
        for v in plain.truth.verdicts
        if _stage(v) >= QUALITY
    )
    assert both > 0
    assert survey.overlap[one, other] == survey.overlap[other, one] == both


def test_a_rule_without_a_word_list_says_for_how_many(plain: Written) -> None:
    counts = plain.summary.survey.rules["gopher_enough_stop_words"]
    japanese = sum(
        record.get("lang") == "ja" and _stage(v) >= QUALITY
        for record, v in zip(plain.truth.records, plain.truth.verdicts, strict=True)
    )
    assert counts.absent_languages == Counter({"ja": japanese})
    assert any(f"says nothing about {japanese:,} documents" in f.text for f in plain.summary.findings)


def test_rules_that_never_or_always_fire_are_flagged(tmp_path: Path) -> None:
    write_run(tmp_path / "run", rules={"gopher_short_doc": {"min": 10**9}, "gopher_long_doc": {"max": 10**9}})
    summary = summarize(open_finished(str(tmp_path / "run")))
    rules = summary.survey.rules
    assert findings.flag(rules["gopher_short_doc"]) == "always"
    assert findings.flag(rules["gopher_long_doc"]) == "never"
    alerts = [f.text for f in summary.findings if f.level == "alert"]
    assert any("gopher_short_doc fires on 100.0 %" in text for text in alerts)
    assert any("nothing was kept" in text for text in alerts)
    assert any("1 rules never fire: gopher_long_doc" in f.text for f in summary.findings)


def test_dedup_that_removes_nothing_is_flagged(tmp_path: Path) -> None:
    write_run(tmp_path / "run", rows=80, duplicates=False)
    texts = [f.text for f in summarize(open_finished(str(tmp_path / "run"))).findings]
    assert any(text.startswith("dedup removed 0 of ") for text in texts)


def test_hosts_that_dedup_empties_and_large_clusters_are_flagged(tmp_path: Path) -> None:
    write_run(tmp_path / "run", rows=900, wiped_host="www.site1.example")
    summary = summarize(open_finished(str(tmp_path / "run")))
    losing = findings.losing_sources(summary.survey)
    assert [host for host, _, _ in losing] == ["www.site1.example"]
    assert any("www.site1.example" in f.text for f in summary.findings)


def test_documents_that_hardly_are_their_page_are_flagged(plain: Written) -> None:
    for signal, odd, what in (
        ("visible_ratio", lambda value: value < LOW_VISIBLE, "hold less than 5 % of the text"),
        ("mojibake_score", lambda value: value > HIGH_MOJIBAKE, "have more than 2 % wrongly decoded characters"),
    ):
        flagged = {r["record_id"] for r in plain.truth.records if r.get(signal) is not None and odd(r[signal])}
        kept = sum(v["kept"] for v in plain.truth.verdicts if v["record_id"] in flagged)
        assert flagged
        (said,) = [f for f in plain.summary.findings if what in f.text]
        assert said.text.startswith(f"{len(flagged):,} documents (")
        assert f"; {kept:,} kept)" in said.text


def test_histogram_of_scores_adds_up_to_the_documents(plain: Written) -> None:
    survey = plain.summary.survey
    with_text = [r for r in plain.truth.records if r.get("n_words") is not None]
    assert int(survey.scores["lang_score"].sum()) + survey.unscored["lang_score"] == survey.with_text == len(with_text)
    assert survey.unscored["lang_score"] == sum(r["lang_score"] is None for r in with_text) > 0
    assert survey.scores["lang_score"][-1] == sum(0.95 <= (r["lang_score"] or 0) <= 1 for r in with_text)


def test_breakdowns_add_up_to_the_records(plain: Written) -> None:
    for breakdown in plain.summary.survey.breakdowns.values():
        assert sum(int(row[: KEPT + 1].sum()) for row in breakdown.rows.values()) == len(plain.truth.records)
        assert sum(int(row[KEPT]) for row in breakdown.rows.values()) == plain.summary.survey.kept


def test_lengths_after_each_stage(plain: Written) -> None:
    for row in plain.summary.lengths[:-1]:
        threshold = LANGUAGE - 1 if row.stage == "extract" else STAGE_INDEX[row.stage]
        words = sorted(
            r["n_words"]
            for r, v in zip(plain.truth.records, plain.truth.verdicts, strict=True)
            if r.get("n_words") is not None and _stage(v) > threshold
        )
        assert row.lengths.n == len(words)
        assert row.lengths.total == sum(words)
        assert row.lengths.percentile(50) == words[-(-len(words) // 2) - 1]
        top = max(max(1, w).bit_length() for w in words)
        assert row.top[1] == sum(w for w in words if max(1, w).bit_length() == top)


def test_rows_that_do_not_balance_are_said_first(tmp_path: Path) -> None:
    truth = write_run(tmp_path / "run", rows=60)
    run = open_finished(str(tmp_path / "run"))
    truth.run["counts"]["kept"] += 1
    run.storage.put_json("run.json", truth.run)
    first = summarize(open_finished(str(tmp_path / "run"))).findings[0]
    assert first.level == "alert"
    assert "does not balance: kept" in first.text


def test_a_run_of_nothing_but_rejects_can_be_looked_at(tmp_path: Path) -> None:
    write_run(tmp_path / "run", rows=30, only_early=True)
    summary = summarize(open_finished(str(tmp_path / "run")))
    assert summary.survey.entered(DEDUP) == 0
    assert "nothing was kept" in as_text(summary)
    assert as_json(summary)["kept"] == 0


@pytest.mark.parametrize("parts", [1, 5])
def test_the_split_into_files_changes_nothing(tmp_path: Path, plain: Written, parts: int) -> None:
    write_run(tmp_path / "run", parts=parts)
    assert as_json(summarize(open_finished(str(tmp_path / "run")))) == as_json(plain.summary)
