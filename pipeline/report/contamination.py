"""Rows of `contaminated/` of single records, and what they say for people."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.report import numbers
from pipeline.report.numbers import printable
from pipeline.report.reading import Run
from pipeline.report.rows import Place

DATASET = "contaminated"
#: Characters shown of a span, and before and after it
_SPAN, _AROUND = 600, 80


def part_of(run: Run, part: int) -> str | None:
    """The file about this part of `records/`; None where the run compared with no benchmark."""
    if not run.recipe.decontaminate.benchmarks:
        return None
    return run.parts(DATASET)[part]


def of_part(run: Run, part: int, ids: Collection[str]) -> dict[str, list[dict[str, Any]]]:
    """record_id -> its rows, the one that rejects first, of records of one part."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    path = part_of(run, part) if ids else None
    if path is None:
        return found
    wanted = pa.array(sorted(ids), pa.string())
    with run.open_part(path) as file:
        for batch in file.iter_batches():
            for row in batch.filter(pc.is_in(batch["record_id"], value_set=wanted)).to_pylist():
                found[row["record_id"]].append(row)
    return found


def of_places(run: Run, places: Mapping[str, Place]) -> dict[str, list[dict[str, Any]]]:
    """The same for records anywhere."""
    by_part: dict[int, list[str]] = defaultdict(list)
    for record_id, (part, _) in places.items():
        by_part[part].append(record_id)
    found: dict[str, list[dict[str, Any]]] = {}
    for part in sorted(by_part):
        found |= of_part(run, part, by_part[part])
    return found


def line(row: Mapping[str, Any], ngram: int) -> str:
    """What matched and how much of it, in one line."""
    file = printable(row["file"])
    return (
        f"holds words of {row['benchmark']}: entry {row['entry']:,} of {file}, {printable(row['field'])}; "
        f"characters {row['span_start']:,} to {row['span_end']:,}; {row['ngrams']:,} runs of {ngram} words in all"
    )


def quote(row: Mapping[str, Any], text: str | None) -> str:
    """The matched span between » and «, within the document's text where that is stored."""
    span = numbers.excerpt(_flat(row["span"]), _SPAN)
    if text is None:
        return f"»{span}«"
    start, end = row["span_start"], row["span_end"]
    before, after = text[max(0, start - _AROUND) : start], text[end : end + _AROUND]
    left = "…" if start > _AROUND else ""
    right = "…" if end + _AROUND < len(text) else ""
    return f"{left}{_flat(before)}»{span}«{_flat(after)}{right}"


def _flat(text: str) -> str:
    return printable(" ".join(text.split("\n")))
