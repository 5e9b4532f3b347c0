"""Input files as the reader saw them: status, records by type, damaged gaps."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from pipeline.report.reading import Run

#: Rows that are kept to be shown; the sums are over all.
SHOWN = 50


@dataclass
class Inputs:
    files: int = 0
    size: int = 0
    gaps: int = 0
    gap_bytes: int = 0
    by_status: Counter[str] = field(default_factory=Counter)
    records_by_type: Counter[str] = field(default_factory=Counter)
    skipped_by_type: Counter[str] = field(default_factory=Counter)
    shown: list[dict[str, Any]] = field(default_factory=list)  #: those that are not ok first, then by uri
    shown_gaps: list[dict[str, Any]] = field(default_factory=list)  #: uri, offset, length, cause


def read(run: Run) -> Inputs:
    result = Inputs()
    columns = ("uri", "size", "status", "detail", "records_by_type", "skipped_by_type", "gaps", "bytes_covered")
    for batch in run.rows("inputs", columns, size=1000):
        for row in batch.to_pylist():
            _add(result, row)
        result.shown = sorted(result.shown, key=_order)[:SHOWN]
    return result


def _add(result: Inputs, row: dict[str, Any]) -> None:
    row["records_by_type"] = dict(row["records_by_type"] or ())
    row["skipped_by_type"] = dict(row["skipped_by_type"] or ())
    gaps = row.pop("gaps") or []
    row["gaps"] = len(gaps)
    result.files += 1
    result.size += row["size"] or 0
    result.gaps += len(gaps)
    result.gap_bytes += sum(gap["length"] or 0 for gap in gaps)
    result.by_status[row["status"]] += 1
    result.records_by_type.update(row["records_by_type"])
    result.skipped_by_type.update(row["skipped_by_type"])
    result.shown.append(row)
    result.shown_gaps += [{"uri": row["uri"], **gap} for gap in gaps[: SHOWN - len(result.shown_gaps)]]


def _order(row: dict[str, Any]) -> tuple[int, str]:
    severity = {"failed": 0, "damaged": 1, "skipped": 2}
    return (severity.get(row["status"], 3), row["uri"] or "")
