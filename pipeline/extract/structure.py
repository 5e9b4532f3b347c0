"""What the elements around a block make of it in plain text: an item of a list, a cell of a table's row, a title."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.compiled import njit
from pipeline.extract import state as st
from pipeline.extract import tags
from pipeline.extract.scan import Blocks

Ints = npt.NDArray[np.int32]

#: A table lays out a page, rather than data, where a cell has more kept blocks than this, or this many words in several
_MAX_CELL_BLOCKS, _MAX_CELL_WORDS = 3, 60


class Structure(NamedTuple):
    """By element; -1 is none. Items and levels end at a cell, cells and rows at a table."""

    item: Ints  #: the nearest list item
    level: Ints  #: lists around it
    cell: Ints
    row: Ints  #: the row, where it holds data and has two kept cells or more


def structure(blocks: Blocks, kept: npt.NDArray[np.bool_]) -> Structure:
    """The structure around the kept blocks of a page."""
    m = len(blocks.parent)
    item, level, cell, row = (np.empty(m, np.int32) for _ in range(4))
    _around(blocks.parent, blocks.tag, item, level, cell, row)
    cells, sizes = np.zeros((m, 2), np.int32), np.zeros((m, 2), np.int32)
    _data_rows(blocks.owner, blocks.counts, blocks.first_span, blocks.span_kind, kept, cell, row, cells, sizes)
    return Structure(item, level, cell, row)


@njit
def _around(parent: Any, tag: Any, item: Any, level: Any, cell: Any, row: Any) -> None:
    item[0] = cell[0] = row[0] = -1
    level[0] = 0
    for e in range(1, parent.size):
        p, t = parent[e], tag[e]
        item[e], level[e], cell[e], row[e] = item[p], level[p], cell[p], row[p]
        flags = tags.FLAGS[t]
        if flags & tags.LIST:
            level[e] += 1
        elif flags & tags.ITEM:
            item[e] = e
        elif t == tags.TABLE:
            cell[e] = row[e] = -1
        elif t == tags.TR:
            row[e], cell[e] = e, -1
        elif tags.TABLE_LEVEL[t] == 1 and row[e] >= 0:
            cell[e], item[e], level[e] = e, -1, 0


@njit
def _data_rows(
    owner: Any, counts: Any, first_span: Any, span_kind: Any, kept: Any, cell: Any, row: Any, cells: Any, sizes: Any
) -> None:  # fmt: skip
    """Set `row` to -1 for elements in rows that are no rows of data. `cells` [kept cells, is layout], `sizes`
    [blocks, words], int32[m, 2] of zeros, are room for work."""
    for b in range(owner.size):
        e = owner[b]
        if not kept[b] or row[e] < 0 or cell[e] < 0:
            continue
        r, d = row[e], cell[e]
        if sizes[d, 0] == 0:
            cells[r, 0] += 1
        sizes[d, 0] += 1
        sizes[d, 1] += counts[b, st.WORDS]
        several = sizes[d, 0] > 1
        if sizes[d, 0] > _MAX_CELL_BLOCKS or (several and sizes[d, 1] > _MAX_CELL_WORDS):
            cells[r, 1] = 1
        if span_kind[first_span[b]] & st.PRE:
            cells[r, 1] = 1
    for e in range(row.size):
        r = row[e]
        if r >= 0 and (cells[r, 0] < 2 or cells[r, 1]):
            row[e] = -1
