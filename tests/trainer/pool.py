"""What the test's spawned processes run: functions of this module, with small made-up batches."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from trainer.model import ModelConfig
from trainer.optim import OptimizerConfig
from trainer.parallel import ParallelConfig
from trainer.step import build_trainee, evaluate, split, train_step
from trainer.stream.batch import Batch, Utilisation
from trainer.verify import whole_weights

MODEL = ModelConfig(vocab_size=320, width=32, layers=4, heads=4, key_value_heads=2, hidden=64)
ROWS, LENGTH = 8, 32


def made(step: int, rows: int = ROWS, length: int = LENGTH) -> Batch:
    """Two documents a row, and rows of very different numbers of valid targets; the first has none."""
    generator = torch.Generator().manual_seed(step)
    tokens = torch.randint(0, 300, (rows, length), generator=generator).int()
    targets = torch.randint(0, 300, (rows, length), generator=generator)
    documents = torch.zeros(rows, length, dtype=torch.int32)
    positions = torch.arange(length, dtype=torch.int32).repeat(rows, 1)
    for row in range(rows):
        cut = 3 + (row * 5 + step) % (length - 6)
        documents[row, cut:] = 1
        positions[row, cut:] -= cut
        targets[row, (row * row * 7) % length :] = -100
    return Batch(tokens, targets, documents, positions, [[]] * rows, Utilisation(), {}, step)


def train(
    parallel: ParallelConfig,
    model: ModelConfig = MODEL,
    optimizer: OptimizerConfig | None = None,
    steps: int = 2,
    accumulation: int = 1,
    rows: int = ROWS,
) -> dict[str, Any]:
    """Losses, norms, weights and a validation sum after some steps, as this rank has them."""
    pieces = parallel.dp * accumulation
    trainee = build_trainee(model, parallel, optimizer or OptimizerConfig(), rows=rows // pieces, seq_len=LENGTH)
    results, weights = [], []
    for step in range(steps):
        mine = split(made(step, rows), parallel.dp)[trainee.data_rank]
        results.append(train_step(trainee, split(mine, accumulation)))
        weights.append(whole_weights(trainee))
    held = evaluate(trainee, split(split(made(99, rows), parallel.dp)[trainee.data_rank], accumulation))
    return {
        "losses": [r.loss for r in results],
        "norms": [r.gradient_norm for r in results],
        "finite": [r.finite for r in results],
        "weights": weights,
        "held": held,
    }


def first_weights(parallel: ParallelConfig, model: ModelConfig) -> dict[str, Tensor]:
    return whole_weights(build_trainee(model, parallel, OptimizerConfig(), rows=4, seq_len=LENGTH))


def huge_on_one_rank(parallel: ParallelConfig, order: float) -> tuple[float, float]:
    """The norm, and the largest weight's move under plain descent, with one huge gradient in the last rows."""
    optimizer = OptimizerConfig(clip=1.0, norm=order)
    trainee = build_trainee(dataclasses.replace(MODEL), parallel, optimizer, rows=ROWS // parallel.dp, seq_len=LENGTH)
    first = trainee.parts[0].layers()[0].feed_forward.gate.weight

    def planted(_grad: Tensor) -> Tensor:
        huge = torch.zeros(first.shape, dtype=first.dtype)
        huge[-1, -1] = 1e4
        if isinstance(first, DTensor):
            from torch.distributed.tensor import distribute_tensor

            return distribute_tensor(huge, first.device_mesh, first.placements)
        return huge

    seen: list[float] = []
    for one in trainee.optimizers:
        one.register_step_pre_hook(
            lambda *_: seen.append(
                float((first.grad.full_tensor() if isinstance(first.grad, DTensor) else first.grad).abs().max())
            )
        )
    first.register_post_accumulate_grad_hook(lambda p: setattr(p, "grad", planted(p.grad)))
    result = train_step(trainee, [split(made(0), parallel.dp)[trainee.data_rank]])
    return result.gradient_norm, seen[0]
