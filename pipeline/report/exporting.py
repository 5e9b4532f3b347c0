"""Rejected or kept rows as plain dictionaries, ready for JSON lines."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline import datasets
from pipeline.errors import UsageError
from pipeline.recipe import nearest
from pipeline.report import contamination
from pipeline.report.reading import Run

_LEFT_OUT = ("signature", "exact_hash")
_BATCH = 512


def kept(run: Run) -> Iterator[dict[str, Any]]:
    """Published rows, as they stand in `shards/`, in manifest order."""
    for path in run.parts("shards"):
        with run.open_part(path) as file:
            for batch in file.iter_batches(batch_size=_BATCH):
                yield from (_plain(row) for row in batch.to_pylist())


def rejected(run: Run, stage: str | None, reason: str | None) -> Iterator[dict[str, Any]]:
    """Rows of `records/` with their verdict, of one stage, one reason, or both, in crawl order.

    Those of `decontaminate` hold their rows of `contaminated/` too, under that name. Row groups without a match are not
    read, but for their verdicts.
    """
    columns = [name for name in datasets.RECORDS.names if name not in _LEFT_OUT]
    for part, (left, right) in enumerate(zip(run.parts("records"), run.parts("verdicts"), strict=True)):
        with run.open_part(right) as verdicts:
            table = verdicts.read(columns=["record_id", "kept", "stage", "reason", "failed_rules"])
        match = _match(table, stage, reason)
        if not match.any():
            continue
        overlapping = table.filter(pa.array(match & np.asarray(_equal(table, "stage", "decontaminate"))))
        overlaps = contamination.of_part(run, part, overlapping["record_id"].to_pylist())
        with run.open_part(left) as records:
            first_row = 0
            for group in range(records.num_row_groups):
                end = first_row + records.metadata.row_group(group).num_rows
                rows = np.flatnonzero(match[first_row:end])
                if rows.size:
                    wanted = records.read_row_group(group, columns=columns).take(pa.array(rows))
                    decided = table.slice(first_row, end - first_row).take(pa.array(rows))
                    for row in _joined(wanted, decided):
                        found = overlaps.get(row["record_id"])
                        yield {**row, "contaminated": found} if found else row
                first_row = end


def check_names(run: Run, stage: str | None, reason: str | None) -> tuple[str | None, str | None]:
    """(stage, reason) of what was asked for; `reason` may be written `stage/reason`.

    Raises UsageError, with the nearest name, for a stage or reason that no run of this recipe can give.
    """
    if stage is not None and stage not in datasets.STAGES:
        raise UsageError(f"unknown stage {stage!r}{nearest(stage, datasets.STAGES)}")
    if reason is None:
        return stage, None
    if "/" in reason:
        stage, reason = reason.split("/", 1)
        return check_names(run, stage, reason)
    counted = (run.document.get("counts") or {}).get("rejected") or {}
    known: dict[str, set[str]] = {
        name: {*reasons, *counted.get(name, ()), datasets.ERROR} for name, reasons in datasets.REASONS.items()
    }
    known["decontaminate"].update(run.recipe.decontaminate.benchmarks)
    names = known[stage] if stage else set().union(*known.values())
    if reason not in names:
        where = f" of stage {stage}" if stage else ""
        raise UsageError(f"unknown reason {reason!r}{where}{nearest(reason, sorted(names))}")
    return stage, reason


def _match(table: pa.Table, stage: str | None, reason: str | None) -> npt.NDArray[np.bool_]:
    mask = np.ones(len(table), np.bool_)
    for name, wanted in (("stage", stage), ("reason", reason)):
        if wanted is not None:
            mask &= np.asarray(_equal(table, name, wanted))
    return mask


def _equal(table: pa.Table, name: str, wanted: str) -> pa.ChunkedArray:
    return pc.fill_null(pc.equal(table[name], wanted), False)


def _joined(records: pa.Table, verdicts: pa.Table) -> Iterator[dict[str, Any]]:
    for start in range(0, len(records), _BATCH):
        rows = records.slice(start, _BATCH).to_pylist()
        for row, verdict in zip(rows, verdicts.slice(start, _BATCH).to_pylist(), strict=True):
            yield _plain({**row, **verdict})


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """JSON has no NaN and no infinity: they become null."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
