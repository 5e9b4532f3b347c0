"""Single records of a run: where they lie and what they hold, reading only the row groups that have them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.report.reading import Run
from pipeline.storage import read_rows

#: (part of records/, row in it)
Place = tuple[int, int]


def find(run: Run, ids: Iterable[str]) -> dict[str, Place]:
    """Places of records by id; ids that are not there are left out."""
    return find_values(run, "record_id", set(ids), unique=True)


def find_values(run: Run, column: str, values: set[str], *, unique: bool = False) -> dict[str, Place]:
    """Places of the records whose `column` is one of `values`, keyed by record id.

    Row groups whose statistics exclude every value are not read; with `unique` it stops at the last one found.
    """
    found: dict[str, Place] = {}
    if not values:
        return found
    wanted = pa.array(sorted(values), pa.string())
    for part, path in enumerate(run.parts("records")):
        with run.open_part(path) as file:
            first_row = 0
            for group in range(file.num_row_groups):
                metadata = file.metadata.row_group(group)
                if _may_hold(metadata, column, values):
                    table = file.read_row_group(group, columns=[column])
                    hits = np.flatnonzero(np.asarray(pc.is_in(table[column], value_set=wanted)))
                    if hits.size:
                        ids = file.read_row_group(group, columns=["record_id"])["record_id"].take(pa.array(hits))
                        for record_id, row in zip(ids.to_pylist(), hits.tolist(), strict=True):
                            found[record_id] = (part, first_row + row)
                first_row += metadata.num_rows
                if unique and len(found) == len(values):
                    return found
    return found


def fetch(
    run: Run,
    places: Mapping[str, Place],
    columns: Sequence[str] | None = None,
    dataset: str = "records",
    cut: int | None = None,
) -> dict[str, dict[str, Any]]:
    """Rows at `places`, keyed by record id; `dataset` is `records` or the `verdicts` beside them.

    With `cut`, strings are cut to so many characters before they leave Arrow: a huge page costs no memory here.
    """
    by_part: dict[int, dict[int, str]] = defaultdict(dict)
    for record_id, (part, row) in places.items():
        by_part[part][row] = record_id
    result: dict[str, dict[str, Any]] = {}
    paths = run.parts(dataset) if by_part else []
    for part in sorted(by_part):
        wanted = by_part[part]
        for positions, table in read_rows(run.storage, paths[part], sorted(wanted), columns):
            table = table if cut is None else _cut(table, cut)
            for position, row in zip(positions.tolist(), table.to_pylist(), strict=True):
                result[wanted[position]] = row
    return result


def _cut(table: pa.Table, length: int) -> pa.Table:
    columns = [
        pc.utf8_slice_codeunits(column, 0, length) if pa.types.is_string(column.type) else column
        for column in table.columns
    ]
    return pa.table(columns, names=table.column_names)


def _may_hold(group: Any, column: str, values: set[str]) -> bool:
    """False only where the column's minimum and maximum in this row group exclude every value."""
    for index in range(group.num_columns):
        chunk = group.column(index)
        if chunk.path_in_schema == column:
            statistics = chunk.statistics
            if statistics is None or not statistics.has_min_max:
                return True
            low, high = statistics.min, statistics.max
            if not isinstance(low, str) or not isinstance(high, str):
                return True
            # Writers may cut long maxima: a cut one is a prefix of the true one, so compare with room above.
            return any(low <= value and (value <= high or value.startswith(high)) for value in values)
    return True
