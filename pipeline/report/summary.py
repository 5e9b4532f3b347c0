"""All that a report shows, gathered once and rendered thrice: as text, as JSON, as a page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pipeline import datasets
from pipeline.report import clusters, elsewhere, findings, funnel, inputs, lengths, numbers, samples
from pipeline.report.counting import Breakdown, Lengths
from pipeline.report.reading import Run
from pipeline.report.survey import KEPT, WORDS, WORDS_KEPT, Survey, take
from pipeline.signals import RULES_BY_NAME

#: Clusters shown, and removed records shown in each.
CLUSTERS, MEMBERS = 10, 5
_ROWS_IN_JSON = 100
_SHARD_LANGUAGES = 12


@dataclass(frozen=True)
class Summary:
    """`published`: lengths of the published texts in `unit`, `words` or `tokens`."""

    run: Run
    survey: Survey
    funnel: list[funnel.FunnelRow]
    lengths: list[lengths.LengthRow]
    published: Lengths
    unit: str
    inputs: inputs.Inputs
    duplicates: clusters.Duplicates
    samples: dict[tuple[str, str], list[samples.SampledRecord]]
    findings: list[findings.Finding]

    @property
    def tokens(self) -> int | None:
        """Tokens of the published texts; None where the run counted none."""
        return self.published.total if self.unit == "tokens" else None


def summarize(run: Run) -> Summary:
    """Read a finished run. Nothing is written."""
    survey = take(run)
    published, unit = lengths.published_lengths(run)
    inputs_seen = inputs.read(run)
    duplicates = clusters.summarize(run, CLUSTERS, MEMBERS)
    return Summary(
        run=run,
        survey=survey,
        funnel=funnel.funnel(survey.reasons, run.recipe),
        lengths=lengths.length_rows(survey, published, unit),
        published=published,
        unit=unit,
        inputs=inputs_seen,
        duplicates=duplicates,
        samples=samples.collect(run, survey),
        findings=findings.find_all(run, survey, inputs_seen, duplicates),
    )


def as_text(summary: Summary) -> str:
    """Funnel, lengths, shards and findings, for a terminal."""
    document = summary.run.document
    survey = summary.survey
    head = f"run {document.get('run_id', numbers.NONE)}   recipe {summary.run.recipe.name}"
    if document.get("finished"):
        head += f"   finished {document['finished']}"
    files = f"{summary.inputs.files:,} input files, {numbers.size(summary.inputs.size)}"
    states = ", ".join(f"{n:,} {status}" for status, n in sorted(summary.inputs.by_status.items()))
    kept = f"kept {survey.kept:,} of {survey.records:,} records ({numbers.share(survey.kept, survey.records)})"
    shards = f"{len(summary.run.manifest['files']):,} shards, {summary.published.total:,} {summary.unit}"
    blocks = [
        f"{head}\n{files} ({states})\n{kept}, {shards}",
        funnel.as_text(summary.funnel, summary.tokens),
        lengths.as_text(summary.lengths),
        _shards_text(summary),
    ]
    if summary.duplicates.against:
        told = elsewhere.as_text(summary.duplicates.against)
        blocks.append(f"removed in favour of documents of earlier runs:\n\n{told}")
    if summary.findings:
        sign = {"alert": "!", "note": "-"}
        blocks.append("\n".join(f"{sign[f.level]} {f.text}" for f in summary.findings))
    return "\n\n".join(blocks)


def shard_rows(summary: Summary) -> list[tuple[str, int, int, int, int | None]]:
    """(language, files, documents, text bytes, tokens) of `shards/`, most documents first."""
    by_language: dict[str, list[int]] = {}
    for entry in summary.run.manifest["files"]:
        row = by_language.setdefault(entry["lang"], [0, 0, 0, 0])
        row[0] += 1
        row[1] += entry["rows"]
        row[2] += entry["text_bytes"]
        row[3] += sum(group["n_tokens"] or 0 for group in entry["row_groups"])
    tokens = summary.tokens is not None
    ranked = sorted(by_language.items(), key=lambda item: (-item[1][1], item[0]))
    return [(lang, r[0], r[1], r[2], r[3] if tokens else None) for lang, r in ranked]


def _shards_text(summary: Summary) -> str:
    rows = shard_rows(summary)
    cells = [["shards", "files", "documents", "text", "tokens"]]
    for lang, files, documents, text_bytes, tokens in rows[:_SHARD_LANGUAGES]:
        cells.append(
            [lang, numbers.count(files), numbers.count(documents), numbers.size(text_bytes), numbers.count(tokens)]
        )
    more = len(rows) - _SHARD_LANGUAGES
    return numbers.table(cells, "<>>>>") + (f"\n… and {more} more languages" if more > 0 else "")


def as_json(summary: Summary) -> dict[str, Any]:
    """The same figures for programs; see the README for the fields."""
    survey = summary.survey
    return {
        "run_id": summary.run.document.get("run_id"),
        "records": survey.records,
        "kept": survey.kept,
        "tokens": summary.tokens,
        "funnel": funnel.as_json(summary.funnel),
        "lengths": [row.as_json() for row in summary.lengths],
        "rules": [rule_json(summary, name) for name in survey.rule_names],
        "breakdowns": {name: breakdown_json(b) for name, b in survey.breakdowns.items()},
        "scores": {
            name: {"bins": bins.tolist(), "no_score": survey.unscored[name], "documents": survey.with_text}
            for name, bins in survey.scores.items()
        },
        "duplicates": {
            "removed": summary.duplicates.removed,
            "clusters": summary.duplicates.clusters,
            "sizes": {str(size): n for size, n in summary.duplicates.sizes.items()},
            "against": summary.duplicates.against,
        },
        "inputs": {
            "files": summary.inputs.files,
            "bytes": summary.inputs.size,
            "by_status": dict(sorted(summary.inputs.by_status.items())),
            "gaps": summary.inputs.gaps,
            "gap_bytes": summary.inputs.gap_bytes,
        },
        "repeated_lines": {
            "documents": survey.repeated_lines[0],
            "documents_shortened": survey.repeated_lines[1],
            "characters_removed": survey.repeated_chars[0],
            "characters_before": survey.repeated_chars[1],
        }
        if summary.run.recipe.edit.repeated_lines
        else None,
        "findings": findings.as_json(summary.findings),
    }


def rule_json(summary: Summary, name: str) -> dict[str, Any]:
    counts = summary.survey.rules[name]
    bounds = summary.run.recipe.quality.rules.get(name)
    rule = RULES_BY_NAME.get(name)
    return {
        "rule": name,
        "signal": rule.signal if rule else None,
        "min": bounds.min if bounds else None,
        "max": bounds.max if bounds else None,
        "entered": counts.entered,
        "applicable": counts.applicable,
        "not_applicable": counts.absent,
        "fires": counts.fires,
        "first": counts.first,
        "sole": counts.sole,
        "flag": findings.flag(counts) if rule else None,
    }


def breakdown_json(breakdown: Breakdown) -> dict[str, Any]:
    rows = breakdown.ranked(WORDS)
    names = [*datasets.STAGES, "kept"]
    return {
        "values": len(breakdown.rows) + breakdown.folded,
        "rows": [
            {
                "value": value,
                "records": int(row[: KEPT + 1].sum()),
                "ended": {n: int(c) for n, c in zip(names, row[: KEPT + 1], strict=True) if c},
                "words": int(row[WORDS]),
                "words_kept": int(row[WORDS_KEPT]),
            }
            for value, row in rows[:_ROWS_IN_JSON]
        ],
    }
