"""The funnel: how many records, characters and words each stage and reason took, and what was left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from pipeline import datasets
from pipeline.recipe import Recipe
from pipeline.report import numbers
from pipeline.report.checks import order

KEPT = "kept"
#: The first stage whose records all have a text, and so characters and words.
FIRST_WITH_TEXT = datasets.STAGES.index("language")


@dataclass(frozen=True)
class FunnelRow:
    """`reason` None: the whole stage. `entered` and `all` are the wholes of its two shares."""

    stage: str
    reason: str | None
    records: int
    characters: int | None
    words: int | None
    entered: int
    all: int

    @property
    def left(self) -> int:
        return self.entered - self.records


def funnel(reasons: Mapping[tuple[str, str], Sequence[int]], recipe: Recipe) -> list[FunnelRow]:
    """Rows of every stage in order, each followed by its reasons, then one of `kept`.

    `reasons`: (stage, reason) -> [records, characters, words], with ('kept', '') for kept ones.
    """
    everything = sum(counts[0] for counts in reasons.values())
    rows: list[FunnelRow] = []
    entered = everything
    for index, stage in enumerate(datasets.STAGES):
        here = {reason: counts for (s, reason), counts in reasons.items() if s == stage}
        measured = index >= FIRST_WITH_TEXT
        taken = sum(counts[0] for counts in here.values())
        rows.append(_row(stage, None, _sum(list(here.values())), entered, everything, measured))
        for reason in sorted(here, key=partial(_order, stage, recipe)):
            rows.append(_row(stage, reason, here[reason], entered, everything, measured))
        entered -= taken
    kept = reasons.get((KEPT, ""), (0, 0, 0))
    rows.append(_row(KEPT, None, kept, entered, everything, True))
    return rows


def _sum(counts: Sequence[Sequence[int]]) -> list[int]:
    return [sum(c[i] for c in counts) for i in range(3)]


def _row(stage: str, reason: str | None, counts: Sequence[int], entered: int, all_: int, measured: bool) -> FunnelRow:
    characters, words = (counts[1], counts[2]) if measured else (None, None)
    return FunnelRow(stage, reason, counts[0], characters, words, entered, all_)


def _order(stage: str, recipe: Recipe, reason: str) -> tuple[int, int, str]:
    return order(stage, reason, recipe)


def as_text(rows: Sequence[FunnelRow], tokens: int | None = None) -> str:
    """The funnel as an aligned table; stages that took nothing are one short line."""
    head = ["stage", "reason", "records", "of all", "of remaining", "left", "characters", "words"]
    cells = [head]
    for row in rows:
        cells.append(
            [
                row.stage if row.reason is None else "",
                row.reason or "",
                numbers.count(row.records),
                numbers.share(row.records, row.all),
                "" if row.stage == KEPT else numbers.share(row.records, row.entered),
                numbers.count(row.left) if row.reason is None and row.stage != KEPT else "",
                numbers.count(row.characters),
                numbers.count(row.words),
            ]
        )
    if tokens is not None:
        for line in cells:
            line.append("")
        cells[0][-1], cells[-1][-1] = "tokens", numbers.count(tokens)
    return numbers.table(cells, "<<>>>>>>" + (">" if tokens is not None else ""))


def as_json(rows: Sequence[FunnelRow]) -> list[dict[str, Any]]:
    return [asdict(row) for row in rows]
