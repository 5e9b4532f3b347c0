"""The loss: cross-entropy as a sum over valid targets, from hidden states, without ever holding all the logits.

Logits of T x V are the largest thing in a small model's memory (8,192 x 128,256 in float32: 4.2 GB). They are made for
some positions at a time and made again in the backward pass: the price is one more product with the head's matrix, a
third of the head's time. Only one number per position is kept, so a pipeline may have any number of them in flight.
A sum, never a mean: whoever divides (`step.py`) divides once, by the count over everything.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

MASKED = -100
#: logits held at once: 128 MB in float32
LOGITS = 1 << 25


def cross_entropy_sum(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """Sum of -log softmax(hidden @ weight.T)[target] over targets other than -100; at least float32.

    `hidden` [b, T, d], `weight` [V, d], `targets` [b, T]. Where `weight` is sharded by rows (tensor parallel), `hidden`
    is this rank's part [b, T / tp, d], and the softmax runs over all ranks' logits, none of which are gathered.
    """
    group, first = None, 0
    if isinstance(weight, DTensor):
        mesh = weight.device_mesh
        group = mesh.get_group()
        weight = weight.to_local()
        first = mesh.get_local_rank() * weight.shape[0]
        whole = DTensor.from_local(hidden, mesh, [Shard(1)], run_check=False).redistribute(placements=[Replicate()])
        hidden = whole.to_local(grad_placements=[Partial()])
    loss: Tensor = _CrossEntropySum.apply(hidden.flatten(0, -2), weight, targets.flatten(), group, first)  # type: ignore[no-untyped-call]
    return loss


class _CrossEntropySum(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, group: dist.ProcessGroup | None, first: int
    ) -> Tensor:
        """`hidden` [n, d], `weight` [V / tp, d] whose row 0 is the vocabulary's row `first`, `targets` [n]."""
        exact = torch.promote_types(hidden.dtype, torch.float32)
        logsums, losses = [], hidden.new_zeros((), dtype=exact)
        for part, target in _pieces(hidden, targets, weight):
            logits = (part @ weight.T).to(exact)
            top = logits.amax(-1)
            if group is not None:
                dist.all_reduce(top, dist.ReduceOp.MAX, group)
            own, row = _own_rows(target, first, weight)
            at_target = logits.gather(-1, row[:, None]).squeeze(-1).where(own, 0)
            both = torch.stack([(logits - top[:, None]).exp_().sum(-1), at_target])
            if group is not None:
                dist.all_reduce(both, dist.ReduceOp.SUM, group)
            logsum = both[0].log() + top
            losses = losses + (logsum - both[1]).where(target != MASKED, 0).sum()
            logsums.append(logsum)
        ctx.save_for_backward(hidden, weight, targets, torch.cat(logsums))
        ctx.first = first
        return losses

    @staticmethod
    def backward(ctx: Any, *scales: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, targets, logsums = ctx.saved_tensors
        exact = logsums.dtype
        to_hidden = torch.empty_like(hidden)
        to_weight = torch.zeros_like(weight, dtype=exact)
        at = 0
        for part, target in _pieces(hidden, targets, weight):
            stop = at + part.shape[0]
            slope = ((part @ weight.T).to(exact) - logsums[at:stop, None]).exp_()
            own, row = _own_rows(target, ctx.first, weight)
            slope.scatter_add_(-1, row[:, None], -own.to(exact)[:, None])
            slope = (slope * ((target != MASKED) * scales[0])[:, None]).to(hidden.dtype)
            torch.mm(slope, weight, out=to_hidden[at:stop])
            to_weight += slope.T @ part
            at = stop
        return to_hidden, to_weight.to(weight.dtype), None, None, None


def _pieces(hidden: Tensor, targets: Tensor, weight: Tensor) -> zip[tuple[Tensor, Tensor]]:
    size = max(1, LOGITS // weight.shape[0])
    return zip(torch.split(hidden, size), torch.split(targets, size), strict=True)


def _own_rows(target: Tensor, first: int, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Which targets are rows of this shard, and a row that exists for each."""
    row = target - first
    own = (row >= 0) & (row < weight.shape[0]) & (target != MASKED)
    return own, row.where(own, 0)


def perplexity(loss_sum: float, valid_tokens: int) -> float:
    """exp of the mean loss, in the tokenizer's tokens: comparable only between runs of one tokenizer."""
    return math.exp(min(loss_sum / max(1, valid_tokens), 700.0))


def bits_per_byte(loss_sum: float, target_bytes: int) -> float:
    """Of the text that the valid targets stand for, in UTF-8: comparable between tokenizers."""
    return loss_sum / math.log(2) / max(1, target_bytes)
