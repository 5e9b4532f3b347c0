"""Rows to tensors, and what of them is padding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from trainer.stream.packing import PackedRow

MASKED = -100
_UP = np.arange(1 << 14, dtype=np.int32)


class Span(NamedTuple):
    """Tokens [start, end) of the document at `position` of a source, the end-of-document id counted as its last.

    All but the first are targets here, all but the last inputs.
    """

    source: int
    position: int
    start: int
    end: int


@dataclass(frozen=True)
class Utilisation:
    """Exact counts over rows. `positions` = tokens + padded + tail; only padding is masked."""

    positions: int = 0
    tokens: int = 0  # positions that hold a token; as many targets
    padded: int = 0
    tail: int = 0  # padding of rows for which a lane had no document left
    documents: int = 0  # that begin here
    split_tokens: int = 0  # in pieces that are not whole documents

    @property
    def masked(self) -> int:
        return self.padded + self.tail

    def __add__(self, other: Utilisation) -> Utilisation:
        return Utilisation(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))

    @property
    def filled(self) -> float:
        """Share of the positions that hold a token, the tail of the run left out."""
        return self.tokens / max(1, self.positions - self.tail)


@dataclass(frozen=True)
class Batch:
    """This rank's rows of a step.

    `tokens` int32 [b, T]; `targets` int64 [b, T], -100 on padding; `document_ids` int32 [b, T], -1 on padding, else the
    piece's number in its row; `positions` int32 [b, T], from 0 in each piece; `span`: per row, its pieces in order;
    `state`: as `Loader.state_dict()` after this step.
    """

    tokens: torch.Tensor
    targets: torch.Tensor
    document_ids: torch.Tensor
    positions: torch.Tensor
    span: list[list[Span]]
    utilisation: Utilisation
    state: dict[str, Any]
    step: int


def assemble(rows: list[PackedRow], eos_id: int, state: dict[str, Any], step: int, pinned: bool) -> Batch:
    """Rows of one width to a batch; `pinned` memory for CUDA."""
    shape = (len(rows), rows[0].width)
    integers = [torch.empty(shape, dtype=torch.int32, pin_memory=pinned) for _ in range(3)]
    tokens, document_ids, positions = (tensor.numpy() for tensor in integers)
    long = torch.empty(shape, dtype=torch.int64, pin_memory=pinned)
    targets = long.numpy()
    spans: list[list[Span]] = []
    for r, row in enumerate(rows):
        at = 0
        span: list[Span] = []
        for number, (source, position, ids, start, length) in enumerate(row.pieces):
            end, stop = start + length, at + length
            tokens[r, at:stop] = ids[start:end]
            if end == len(ids):
                targets[r, at : stop - 1] = ids[start + 1 : end]
                targets[r, stop - 1] = eos_id
            else:
                targets[r, at:stop] = ids[start + 1 : end + 1]
            document_ids[r, at:stop] = number
            positions[r, at:stop] = _UP[:length] if length <= len(_UP) else np.arange(length, dtype=np.int32)
            span.append(Span(source, position, start, end + 1))
            at = stop
        if at < row.width:
            tokens[r, at:] = eos_id
            targets[r, at:] = MASKED
            document_ids[r, at:] = -1
            positions[r, at:] = 0
        spans.append(span)
    return Batch(integers[0], long, integers[1], integers[2], spans, count(rows), state, step)


def count(rows: list[PackedRow]) -> Utilisation:
    positions = tokens = tail = documents = split = 0
    for row in rows:
        used = sum(piece.length for piece in row.pieces)
        positions += row.width
        tokens += used
        tail += row.width - used if row.last else 0
        documents += sum(piece.start == 0 for piece in row.pieces)
        split += sum(piece.length for piece in row.pieces if piece.length < len(piece.ids))
    return Utilisation(positions, tokens, positions - tokens - tail, tail, documents, split)
