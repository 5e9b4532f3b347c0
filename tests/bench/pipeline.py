"""The pipeline's bubble against (p - 1) / (m + p - 1), and the bytes that activation checkpointing keeps.

    python -m tests.bench.pipeline [--microbatches 8]

p = 2 with real stages, p = 4 with stages that sleep (a forward 20 ms, a backward 40 ms), as four real stages on two
cores would measure the cores. A rank is busy while it is in a stage's forward or backward; the rest of the step is
idle. Bytes: what autograd saves for one forward pass, each storage once, parameters left out.
"""

from __future__ import annotations

import argparse
import dataclasses
from time import perf_counter, sleep
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import get_schedule_class

from tests.trainer.pool import made
from trainer.model import ModelConfig, Transformer, initialise
from trainer.optim import OptimizerConfig
from trainer.parallel import ParallelConfig
from trainer.step import build_trainee, train_step
from trainer.workers import Workers

MODEL = ModelConfig(width=128, layers=4, hidden=384)
FORWARD, BACKWARD = 0.02, 0.04


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--microbatches", type=int, default=8)
    m = parser.parse_args().microbatches
    print(f"{'stages':<22}{'schedule':<10}{'idle':>8}{'formula':>9}{'apart':>8}")
    with Workers(4) as workers:
        for name, p, function in (("2 real", 2, real), ("4 sleeping", 4, sleeping)):
            for schedule in ("GPipe", "1F1B"):
                shares = workers.run(function, p, schedule, m)
                idle, due = sum(shares) / p, (p - 1) / (m + p - 1)
                print(f"{name:<22}{schedule:<10}{idle:>8.3f}{due:>9.3f}{abs(idle - due):>8.3f}")
    for mode in ("none", "selective", "full"):
        print(f"checkpointing {mode:<10}{saved_bytes(mode) / 2**20:>8.2f} MB saved for one forward pass")
    return 0


class Busy:
    """Time inside a stage's own work: its waits for neighbours are outside."""

    def __init__(self, stage: PipelineStage) -> None:
        self.seconds = 0.0
        for name in ("forward_one_chunk", "backward_one_chunk"):
            setattr(stage, name, self._timed(getattr(stage, name)))

    def _timed(self, function: Any) -> Any:
        def timed(*arguments: Any, **named: Any) -> Any:
            start = perf_counter()
            out = function(*arguments, **named)
            self.seconds += perf_counter() - start
            return out

        return timed


def real(schedule: str, microbatches: int) -> float:
    """Share of a step's time that this rank idles; the least of five steps, as other work on the cores adds to it."""
    parallel = ParallelConfig(pp=2, schedule=schedule, microbatches=microbatches)
    trainee = build_trainee(MODEL, parallel, OptimizerConfig(), rows=microbatches * 2, seq_len=256)
    assert trainee.pipeline is not None
    busy, batch = Busy(trainee.pipeline.schedule._stage), made(0, microbatches * 2, 256)
    shares = []
    pipeline, inner = trainee.pipeline, trainee.pipeline.step

    def timed(*arguments: Any) -> Tensor:
        dist.barrier()
        busy.seconds, start = 0.0, perf_counter()
        out = inner(*arguments)
        dist.barrier()
        shares.append(1 - busy.seconds / (perf_counter() - start))
        return out

    pipeline.step = timed  # type: ignore[method-assign]
    for _ in range(6):
        train_step(trainee, [batch])
    return min(shares[1:])


class _Sleep(torch.autograd.Function):
    @staticmethod
    def forward(_ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        sleep(FORWARD)
        return x + weight

    @staticmethod
    def backward(_ctx: Any, *slopes: Tensor) -> tuple[Tensor, Tensor]:
        sleep(BACKWARD)
        return slopes[0], slopes[0].sum()


class Sleeper(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = _Sleep.apply(x, self.weight)
        return out


def sleeping(schedule: str, microbatches: int) -> float:
    stage = PipelineStage(Sleeper(), dist.get_rank(), dist.get_world_size(), torch.device("cpu"))
    runner = get_schedule_class(schedule)(stage, microbatches, loss_fn=lambda x, _y: x.sum(), scale_grads=False)
    busy, x = Busy(stage), torch.zeros(microbatches, 4)
    inputs = (x,) if stage.is_first else ()
    for turn in range(2):  # the first finds the shapes
        dist.barrier()
        busy.seconds, start = 0.0, perf_counter()
        runner.step(*inputs, target=x if stage.is_last else None)
        dist.barrier()
        share = 1 - busy.seconds / (perf_counter() - start)
        del turn
    return share


def saved_bytes(mode: str) -> int:
    model = Transformer(dataclasses.replace(MODEL))
    initialise(model, 0)
    for block in model.layers():
        block.recompute(mode)
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    seen: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            seen[storage.data_ptr()] = storage.nbytes()
        held.append(tensor)  # or a freed storage's address is given out again
        return tensor

    held: list[Tensor] = []
    batch = made(0, 4, 256)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model(batch.tokens, batch.positions, batch.document_ids, batch.targets)
    return sum(seen.values())


if __name__ == "__main__":
    raise SystemExit(main())
