"""What a reader of the report must not miss: rules that never or always fire, losses that are too large, faults."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from pipeline import datasets
from pipeline.report import numbers
from pipeline.report.clusters import Duplicates
from pipeline.report.inputs import Inputs
from pipeline.report.reading import Run
from pipeline.report.survey import DEDUP, HIGH_MOJIBAKE, KEPT, LOW_VISIBLE, RuleCounts, Survey

#: A rule (or a whole stage) that takes more than this share of its input is flagged, as is one that takes nothing.
ALWAYS = 0.95
LARGE_CLUSTER = 100
SOURCE_LOSS = 0.9
SOURCE_MINIMUM = 20


@dataclass(frozen=True)
class Finding:
    """`alert`: something is probably wrong; `note`: worth knowing."""

    level: Literal["alert", "note"]
    text: str


def find_all(run: Run, survey: Survey, inputs: Inputs, duplicates: Duplicates) -> list[Finding]:
    """Alerts first; within a level in pipeline order."""
    found = [
        *_accounts(run, survey),
        *_inputs(run, inputs),
        *_stages(survey),
        *_errors(survey),
        *_rules(survey),
        *_pages(survey),
        *_repeated_lines(run, survey),
        *_benchmarks(run),
        *_dedup(run, survey, duplicates),
        *(Finding("note", numbers.printable(str(text))) for text in run.document.get("warnings") or ()),
    ]
    return sorted(found, key=lambda finding: finding.level != "alert")


def flag(counts: RuleCounts) -> str | None:
    """'never' or 'always' for a rule that fires on 0 % or on more than 95 % of its input."""
    if not counts.applicable:
        return None
    if not counts.fires:
        return "never"
    return "always" if counts.fires > ALWAYS * counts.applicable else None


def losing_sources(survey: Survey) -> list[tuple[str, int, int]]:
    """(host, documents that entered dedup, removed there) of hosts that lost more than 90 % of at least 20 there."""
    result = []
    for host, row in survey.breakdowns["host"].rows.items():
        entered, removed = int(row[DEDUP : KEPT + 1].sum()), int(row[DEDUP])
        if entered >= SOURCE_MINIMUM and removed > SOURCE_LOSS * entered:
            result.append((host or "no host", entered, removed))
    return sorted(result, key=lambda entry: (-entry[2], entry[0]))


def _accounts(run: Run, survey: Survey) -> Iterator[Finding]:
    """The rows on disk against what run.json and the manifest say."""
    counts = run.document.get("counts") or {}
    published = sum(int(entry["rows"]) for entry in run.manifest["files"])
    for what, said, seen in (
        ("records", counts.get("records"), survey.records),
        ("kept", counts.get("kept"), survey.kept),
        ("rows in the shard manifest", published, survey.kept),
    ):
        if said is not None and said != seen:
            yield Finding("alert", f"does not balance: {what} {said:,}, rows on disk {seen:,}")
    if survey.records and not survey.kept:
        yield Finding("alert", "nothing was kept")


def _inputs(run: Run, inputs: Inputs) -> Iterator[Finding]:
    unread = run.document.get("failed") or {}
    if unread:
        yield Finding("alert", f"{len(unread):,} inputs could not be read at all; the same curate command tries again")
    for status, level, what in (
        ("failed", "alert", "could not be read to the end; nothing of them is in this run"),
        ("damaged", "note", "hold damaged stretches; what could be read is in"),
        ("skipped", "note", "were skipped"),
    ):
        n = inputs.by_status.get(status, 0)
        if n:
            text = f"{n:,} of {inputs.files:,} input files {what}"
            yield Finding("alert" if level == "alert" else "note", text)
    if inputs.gaps:
        yield Finding("note", f"{inputs.gaps:,} damaged gaps, {numbers.size(inputs.gap_bytes)} in all")


def _stages(survey: Survey) -> Iterator[Finding]:
    for index, stage in enumerate(datasets.STAGES):
        entered, taken = survey.entered(index), survey.ended(index)
        if entered and taken > ALWAYS * entered:
            yield Finding("alert", f"stage {stage} removed {numbers.share(taken, entered)} of what entered it")


def _errors(survey: Survey) -> Iterator[Finding]:
    for (stage, reason), counts in sorted(survey.reasons.items()):
        if reason in (datasets.ERROR, "crash"):
            yield Finding("alert", f"{counts[0]:,} records ended in {stage}/{reason}: a fault, not their fault")


def _rules(survey: Survey) -> Iterator[Finding]:
    quality = {name: counts for name, counts in survey.rules.items() if name not in datasets.REASONS["language"]}
    never = [name for name, counts in quality.items() if flag(counts) == "never"]
    for name, counts in quality.items():
        if flag(counts) == "always":
            rate = numbers.share(counts.fires, counts.applicable)
            yield Finding("alert", f"rule {name} fires on {rate} of its input: is its bound right?")
    if never:
        yield Finding("note", f"{len(never)} rules never fire: {_listing(never)}")
    nowhere = [name for name, counts in quality.items() if counts.entered and not counts.applicable]
    if nowhere:
        yield Finding("alert", f"{len(nowhere)} rules apply to no document at all: {_listing(nowhere)}")
    silent: dict[str, list[str]] = {}
    for name, counts in quality.items():
        if counts.absent and counts.applicable:
            languages = ", ".join(language for language, _ in counts.absent_languages.most_common(5))
            rate = numbers.share(counts.absent, counts.entered)
            silent.setdefault(f"about {counts.absent:,} documents ({rate}; {languages})", []).append(name)
    for about, names in silent.items():
        say = f"rule {names[0]} says" if len(names) == 1 else f"{len(names)} rules say"
        yield Finding("note", f"{say} nothing {about}" + (f": {_listing(names)}" if len(names) > 1 else ""))


def _pages(survey: Survey) -> Iterator[Finding]:
    """Documents whose text hardly is the page's."""
    for (found, kept), what in (
        (survey.low_visible, f"hold less than {100 * LOW_VISIBLE:g} % of the text that their page shows"),
        (survey.high_mojibake, f"have more than {100 * HIGH_MOJIBAKE:g} % wrongly decoded characters"),
    ):
        if found:
            share = numbers.share(found, survey.with_text)
            yield Finding("alert" if kept else "note", f"{found:,} documents ({share}; {kept:,} kept) {what}")


def _repeated_lines(run: Run, survey: Survey) -> Iterator[Finding]:
    if run.recipe.edit.repeated_lines is None:
        return
    (hold, lost), (taken, before) = survey.repeated_lines, survey.repeated_chars
    share = numbers.share(hold, survey.with_text)
    held = f"{hold:,} of {survey.with_text:,} documents ({share}) hold lines that other documents hold"
    if lost:
        gone = numbers.share(taken, before)
        held += f"; {lost:,} lost some, {taken:,} characters in all ({gone} of all text)"
    yield Finding("note", held)


def _benchmarks(run: Run) -> Iterator[Finding]:
    words = run.recipe.decontaminate.ngram
    for name, counts in (run.document.get("decontaminate") or {}).items():
        if counts["too_short"]:
            text = f"{counts['too_short']:,} of {counts['entries']:,} entries are shorter than {words} words"
            yield Finding("note", f"benchmark {name}: {text} and match nothing")


def _dedup(run: Run, survey: Survey, duplicates: Duplicates) -> Iterator[Finding]:
    settings = run.recipe.dedup
    entered = survey.entered(DEDUP)
    if (settings.exact or settings.near) and entered > 1 and not survey.ended(DEDUP):
        yield Finding("alert", f"dedup removed 0 of {entered:,} documents")
    copies = survey.copies
    if copies.extra:
        share = numbers.share(copies.extra, copies.documents)
        asked = settings.exact or settings.near
        text = "though dedup ran: it did not do its work" if asked else "and dedup is off"
        yield Finding(
            "alert" if asked else "note",
            f"{copies.extra:,} of {copies.documents:,} kept documents looked at ({share}) "
            f"are copies of another, {text}",
        )
    for one in duplicates.against:
        estimated = one["removed"].get("near_estimated", 0)
        if estimated:
            error = one.get("standard_error") or numbers.NONE
            yield Finding(
                "note",
                f"{estimated:,} documents were removed by signature only, for run {one['run_id']}: it kept no "
                f"shingles, so their similarity is an estimate (standard error {error} at the threshold)",
            )
    uncompared = (run.document.get("dedup") or {}).get("uncompared") or 0
    if uncompared:
        yield Finding("alert", f"dedup left {uncompared:,} candidates uncompared (a bucket was over its cap)")
    large = sum(n for size, n in duplicates.sizes.items() if size > LARGE_CLUSTER)
    if large:
        yield Finding(
            "note", f"{large:,} clusters hold more than {LARGE_CLUSTER} documents; the largest is shown below"
        )
    losing = losing_sources(survey)
    if losing:
        text = f"{len(losing):,} hosts lost more than 90 % of their documents in dedup: "
        yield Finding("note", text + _listing([numbers.printable(host) for host, _, _ in losing]))


def _listing(names: list[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def as_json(findings: list[Finding]) -> list[dict[str, Any]]:
    return [{"level": finding.level, "text": finding.text} for finding in findings]
