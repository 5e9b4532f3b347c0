"""Two texts side by side, word by word: what they share and where they differ."""

from __future__ import annotations

import difflib
import textwrap

from pipeline.report import numbers

#: Words of each text that are compared, and words shown at both ends of a long equal stretch.
WORDS = 600
ENDS = 8
COLUMN = 56
#: Longer "words" are those of a script without spaces: then characters are compared.
_LONG = 30


def beside(left: str, right: str, heads: tuple[str, str]) -> str:
    """Two columns under `heads`; `=` marks equal stretches, `≠` others. Long equal stretches are cut in the middle."""
    a, b, gap = _units(left, right)
    rows = [["", *heads]]
    for kind, a1, a2, b1, b2 in difflib.SequenceMatcher(None, a[:WORDS], b[:WORDS], autojunk=False).get_opcodes():
        cells = [_cut(a[a1:a2], gap, kind == "equal"), _cut(b[b1:b2], gap, kind == "equal")]
        lines = [textwrap.wrap(cell, COLUMN) or [""] for cell in cells]
        for i in range(max(map(len, lines))):
            mark = ("=" if kind == "equal" else "≠") if i == 0 else ""
            rows.append([mark, *(column[i] if i < len(column) else "" for column in lines)])
    for what, units in (("the first", a), ("the second", b)):
        if len(units) > WORDS:
            rows.append(["", f"… {what} goes on for {len(units) - WORDS:,} more", ""])
    return numbers.table(rows, "<<<")


def _units(left: str, right: str) -> tuple[list[str], list[str], str]:
    a, b = numbers.printable(left).split(), numbers.printable(right).split()
    if sum(map(len, a + b)) > _LONG * len(a + b):
        return list("".join(a)), list("".join(b)), ""
    return a, b, " "


def _cut(units: list[str], gap: str, equal: bool) -> str:
    if not equal or len(units) <= 3 * ENDS:
        return gap.join(units)
    middle = f" [… {len(units) - 2 * ENDS:,} equal …] "
    return gap.join(units[:ENDS]) + middle + gap.join(units[-ENDS:])
