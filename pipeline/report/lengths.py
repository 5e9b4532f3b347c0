"""Length skew: which lengths each stage let through, and how much of the text a few long documents hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pipeline import datasets
from pipeline.report import numbers
from pipeline.report.counting import Lengths, skew
from pipeline.report.reading import Run
from pipeline.report.survey import LANGUAGE, Survey

#: Stages that see texts: lengths exist after these.
STAGES = ("extract", *datasets.STAGES[LANGUAGE:])


@dataclass(frozen=True)
class LengthRow:
    """Documents alive after `stage`, their lengths in `unit`; `shift` = distance to the distribution after extract."""

    stage: str
    unit: str
    lengths: Lengths
    shift: float | None

    @property
    def top_bucket(self) -> int | None:
        buckets = self.lengths.buckets()
        return max(buckets) if buckets else None

    @property
    def top(self) -> tuple[int, int]:
        """Documents and words (tokens) in the highest bucket."""
        buckets = self.lengths.buckets()
        return buckets[max(buckets)] if buckets else (0, 0)

    def as_json(self) -> dict[str, Any]:
        documents, total = self.top
        return {
            "stage": self.stage,
            "unit": self.unit,
            "documents": self.lengths.n,
            "total": self.lengths.total,
            "p50": self.lengths.percentile(50),
            "p95": self.lengths.percentile(95),
            "p99": self.lengths.percentile(99),
            "max": self.lengths.percentile(100),
            "top_bucket": self.top_bucket,
            "top_bucket_documents": documents,
            "top_bucket_total": total,
            "skew": self.shift,
            "buckets": {str(b): list(counts) for b, counts in self.lengths.buckets().items()},
        }


def length_rows(survey: Survey, published: Lengths | None, unit: str) -> list[LengthRow]:
    """One row after extraction and after every later stage, in words; then the published texts in `unit`."""
    start = survey.surviving(LANGUAGE - 1)
    rows = [LengthRow("extract", "words", start, None)]
    for stage in datasets.STAGES[LANGUAGE:]:
        after = survey.surviving(datasets.STAGES.index(stage))
        rows.append(LengthRow(stage, "words", after, skew(start, after)))
    if published is not None:
        # Words and tokens fall into other buckets: their distance would say nothing.
        rows.append(LengthRow("published", unit, published, skew(start, published) if unit == "words" else None))
    return rows


def published_lengths(run: Run) -> tuple[Lengths, str]:
    """Lengths of the published texts and their unit: tokens where the run counted them, else words."""
    unit = str(run.manifest["length_unit"])
    lengths = Lengths()
    column = "n_tokens" if unit == "tokens" else "n_words"
    for batch in run.rows("shards", [column]):
        lengths.add(batch[column].to_numpy())
    return lengths, unit


def as_text(rows: list[LengthRow]) -> str:
    head = ["lengths after", "documents", "unit", "total", "p50", "p95", "p99", "longest", "top bucket", "of total"]
    cells = [[*head, "of docs", "skew"]]
    for row in rows:
        documents, total = row.top
        cells.append(
            [
                row.stage,
                numbers.count(row.lengths.n),
                row.unit,
                numbers.count(row.lengths.total),
                *(numbers.count(row.lengths.percentile(p)) for p in (50, 95, 99, 100)),
                bucket_name(row.top_bucket),
                numbers.share(total, row.lengths.total),
                numbers.share(documents, row.lengths.n),
                numbers.NONE if row.shift is None else f"{row.shift:.3f}",
            ]
        )
    return numbers.table(cells, "<><>>>>>>>>>")


def bucket_name(bucket: int | None) -> str:
    """7 -> '128–255'."""
    if bucket is None:
        return numbers.NONE
    if bucket == 0:
        return "0–1"
    if bucket < 10:
        return f"{2**bucket}–{2 ** (bucket + 1) - 1}"
    return f"{_power(bucket)}–{_power(bucket + 1)}"


def _power(exponent: int) -> str:
    """2**12 -> '4k': binary steps, named as people do."""
    return f"{2 ** (exponent % 10)}{('', 'k', 'M', 'G', 'T')[exponent // 10]}"
