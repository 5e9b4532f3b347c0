"""A few records of every reason, the same ones however the run was split, with what decided about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.datasets import RECORDS
from pipeline.report import contamination
from pipeline.report.checks import Check, check_all, order
from pipeline.report.reading import Run
from pipeline.report.rows import fetch
from pipeline.report.survey import Survey
from pipeline.signals import SIGNALS

EXCERPT = 500
_LEFT_OUT = ("signature", "exact_hash", "input_id", "warc_record_id")


@dataclass(frozen=True)
class SampledRecord:
    """`duplicate`: its row in `duplicates/`, if it was removed there; `overlap`: the row of `contaminated/` that
    rejected it. Strings are cut to EXCERPT + 1 characters."""

    record: dict[str, Any]
    checks: list[Check]
    duplicate: dict[str, Any] | None
    overlap: dict[str, Any] | None = None

    @property
    def signals(self) -> dict[str, Any]:
        return {s.name: self.record.get(s.name) for s in SIGNALS}

    @property
    def excerpt(self) -> str | None:
        edited: str | None = self.record.get("edited")
        return edited if edited is not None else self.record.get("text")


def collect(run: Run, survey: Survey) -> dict[tuple[str, str], list[SampledRecord]]:
    """(stage, reason) -> samples, in pipeline order, kept ones last under ('kept', '')."""
    chosen = survey.samples.chosen()
    places = {record_id: place for entries in chosen.values() for record_id, place in entries}
    columns = [name for name in RECORDS.names if name not in _LEFT_OUT]
    records = fetch(run, places, columns, cut=EXCERPT + 1)
    verdicts = fetch(run, places, ["record_id", "failed_rules"], dataset="verdicts")
    duplicates = _duplicates(run, [i for key, entries in chosen.items() if key[:6] == "dedup/" for i, _ in entries])
    contaminated = {i: places[i] for key, entries in chosen.items() if key[:14] == "decontaminate/" for i, _ in entries}
    overlaps = contamination.of_places(run, contaminated)
    result = {}
    for key, entries in chosen.items():
        stage, _, reason = key.partition("/")
        result[stage, reason] = [
            SampledRecord(
                records[record_id],
                check_all(records[record_id], verdicts[record_id]["failed_rules"] or (), run.recipe),
                duplicates.get(record_id),
                next(iter(overlaps.get(record_id, ())), None),
            )
            for record_id, _ in entries
        ]
    return dict(sorted(result.items(), key=lambda item: order(item[0][0], item[0][1], run.recipe)))


def _duplicates(run: Run, ids: list[str]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    if ids:
        wanted = pa.array(ids, pa.string())
        for batch in run.rows("duplicates", ["record_id", "kept_id", "kept_run", "similarity", "kind", "cluster_size"]):
            for row in batch.filter(pc.is_in(batch["record_id"], value_set=wanted)).to_pylist():
                found[row["record_id"]] = row
    return found
