"""Which of a record's lines many documents of the run hold, and which of them went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.repeated_lines import Table, repeats
from pipeline.report import numbers
from pipeline.report.reading import Run
from pipeline.report.rows import Place

_SHOWN = 40


@dataclass(frozen=True)
class RepeatedLine:
    """`documents`: of the run that hold it. `kept_id`: whose copy stays; null where nobody's does.

    Of a sentence, both are those of the spans that it lies in.
    """

    text: str
    documents: int
    removed: bool
    kept_id: str | None

    def as_json(self) -> dict[str, Any]:
        return {"text": self.text, "documents": self.documents, "removed": self.removed, "kept_id": self.kept_id}


def of_record(run: Run, record_id: str, place: Place, text: str) -> list[RepeatedLine]:
    """The repeated lines of a record, in order; `text` is its text after the recipe's other line edits."""
    settings = run.recipe.edit.repeated_lines
    manifest = run.storage.read_manifest("lines")
    records = run.storage.read_manifest("records")
    if settings is None or manifest is None or records is None:
        return []
    own = _place(records.parts[place[0]].meta)
    path = next((part.path for part in manifest.parts if _place(part.meta) == own), None)
    if path is None:
        return []
    with run.open_part(path) as file:
        table = file.read()
    known = Table(np.asarray(table["hash"]), np.asarray(pc.fill_null(table["first"], 0)))
    found = repeats(text, known, record_id, settings)
    documents = dict(zip(known.hashes.tolist(), table["documents"].to_pylist(), strict=True))
    keepers = _keepers(run, {line for one in found if one.removed for line in one.hashes})
    return [
        RepeatedLine(
            one.text.strip(),
            max(documents[line] for line in one.hashes),
            one.removed,
            next((keepers[line] for line in one.hashes if line in keepers), None) if one.removed else record_id,
        )
        for one in found
    ]


def _keepers(run: Run, wanted: set[int]) -> dict[int, str]:
    """Hash -> id of the record that keeps its line."""
    found: dict[int, str] = {}
    manifest, records = run.storage.read_manifest("lines"), run.storage.read_manifest("records")
    if not wanted or manifest is None or records is None:
        return found
    values = pa.array(sorted(wanted), pa.uint64())
    paths = {_place(part.meta): part.path for part in records.parts}
    for part in manifest.parts:
        with run.open_part(part.path) as file:
            table = file.read(columns=["hash", "first"])
        table = table.filter(pc.and_(pc.is_in(table["hash"], value_set=values), pc.is_valid(table["first"])))
        if table.num_rows:
            with run.open_part(paths[_place(part.meta)]) as file:
                ids = {int(one[:16], 16): one for one in file.read(columns=["record_id"])["record_id"].to_pylist()}
            pairs = zip(table["hash"].to_pylist(), table["first"].to_pylist(), strict=True)
            found |= {line: ids[first] for line, first in pairs if first in ids}
        if len(found) == len(wanted):
            break
    return found


def _place(meta: dict[str, Any]) -> tuple[str, int]:
    return meta["input_id"], meta["stretch"]


def as_text(lines: Sequence[RepeatedLine]) -> str:
    """For a terminal."""
    rows = [["repeated line", "documents", "here"]]
    for line in lines[:_SHOWN]:
        stays = "stays" if not line.removed else f"removed, kept in {line.kept_id}" if line.kept_id else "removed"
        rows.append([numbers.excerpt(numbers.printable(line.text), 60), numbers.count(line.documents), stays])
    more = len(lines) - _SHOWN
    return numbers.table(rows, "<><") + (f"\n… and {more:,} more" if more > 0 else "")
