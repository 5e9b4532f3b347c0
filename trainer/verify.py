"""Training does not depend on how it is split: every mesh against one process, on real shards, in one table.

A row trains the same small model on the same steps and is compared with one process at every step: loss, gradient norm
before clipping, and every weight. The norm is there because AdamW behind a clip cannot tell doubled gradients from
right ones. In float64 the bar is 1e-9, as nothing but rounding may differ; float32 shows what rounding comes to.
Targets are masked raggedly on top of the shards' own, so that no two micro-batches hold equally many.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from trainer import optim, step
from trainer.model import ModelConfig
from trainer.optim import OptimizerConfig
from trainer.parallel import ParallelConfig, refuse
from trainer.step import Trainee, build_trainee, split, train_step
from trainer.stream import Batch, Loader, Source, StreamConfig
from trainer.stream.batch import MASKED
from trainer.workers import Workers

ROWS, LENGTH = 16, 64
#: (loss, norm, weights); None: shown, not judged
BARS: dict[str, tuple[float, float, float | None]] = {"fp64": (1e-9, 1e-9, 1e-9), "fp32": (1e-5, 1e-4, None)}
#: nats that the loss must fall by in a full run
FALL = 1.0
MODEL = ModelConfig(vocab_size=320, width=64, layers=4, heads=4, key_value_heads=2, hidden=128)
ADAMW = OptimizerConfig(learning_rate=1e-2, clip=1.0)
MUON = OptimizerConfig(name="muon", learning_rate=1e-2, clip=1.0)


@dataclass(frozen=True)
class Row:
    name: str
    parallel: ParallelConfig
    accumulation: int = 1
    model: ModelConfig = MODEL
    optimizer: OptimizerConfig = ADAMW
    #: one of each kind, for a quick look
    quick: bool = False


def rows() -> list[Row]:
    """The table, in the order in which it is printed."""
    mesh = ParallelConfig
    tied, unclipped = dataclasses.replace(MODEL, tied=True), dataclasses.replace(ADAMW, clip=None)
    schedules = ("GPipe", "1F1B", "LoopedBFS", "Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV")
    fsdp, tp, pp = mesh(dp_shard=2), mesh(tp=2), mesh(pp=2, microbatches=4)
    zbv = dataclasses.replace(pp, schedule="ZBVZeroBubble")
    return [
        Row("accumulation 2", mesh(), 2),
        Row("accumulation 4", mesh(), 4),
        Row("dp 2", mesh(dp_replicate=2), quick=True),
        Row("fsdp 2", fsdp, quick=True),
        Row("fsdp 2, accumulation 2", fsdp, 2),
        Row("fsdp 2, accumulation 4", fsdp, 4),
        Row("hsdp 2 x 2", mesh(dp_replicate=2, dp_shard=2), 2, quick=True),
        Row("tp 2", tp, quick=True),
        *(Row(f"pp 2, {name}", dataclasses.replace(pp, schedule=name), quick=name == "1F1B") for name in schedules),
        Row("pp 2, accumulation 2", pp, 2),
        Row("fsdp 2 x tp 2", mesh(dp_shard=2, tp=2), quick=True),
        Row("pp 2 x fsdp 2", mesh(pp=2, dp_shard=2, microbatches=4), quick=True),
        Row("pp 2 x tp 2, 1F1B", mesh(pp=2, tp=2, microbatches=4)),
        Row("pp 2 x tp 2, ZBVZeroBubble", mesh(pp=2, tp=2, microbatches=4, schedule="ZBVZeroBubble"), quick=True),
        *(Row(f"tied, {name}", where, model=tied) for name, where in (("fsdp 2", fsdp), ("tp 2", tp), ("pp 2", pp))),
        Row("tied, pp 2, ZBVZeroBubble", zbv, model=tied),
        Row("no clipping, fsdp 2", fsdp, optimizer=unclipped),
        *(
            Row(f"{mode} checkpointing, {name}", dataclasses.replace(where, activation_checkpointing=mode))
            for mode in ("selective", "full")
            for name, where in (("fsdp 2", fsdp), ("pp 2", pp))
        ),
        *(
            Row(f"Muon, {n}", m, a, optimizer=MUON)
            for n, m, a in (("fsdp 2", fsdp, 2), ("tp 2", tp, 1), ("pp 2", pp, 1))
        ),
    ]


@dataclass(frozen=True)
class Outcome:
    name: str
    precision: str
    #: largest relative difference from one process, over all steps
    loss: float
    norm: float
    weights: float
    #: of the row's own loss, first step to last
    first: float
    final: float
    sound: bool


def verify(
    data: str,
    *,
    steps: int = 20,
    precisions: Sequence[str] = ("fp64", "fp32"),
    quick: bool = False,
    plant: str | None = None,
    only: Sequence[str] = (),
    workers: Workers | None = None,
) -> Iterator[Outcome]:
    """Runs the table, a row at a time. `quick`: one mesh of each kind; `plant`: with a fault, which must show."""
    chosen = [row for row in rows() if (row.quick or not quick) and (not only or row.name in only)]
    own = workers or Workers(4)
    try:
        with TemporaryDirectory() as folder:
            known: set[str] = set()
            for precision in precisions:
                for row in chosen:
                    key = f"{precision}-{row.model.tied}-{row.optimizer.name}-{row.optimizer.clip}"
                    plain = dataclasses.replace(row, parallel=ParallelConfig(), accumulation=1)
                    if key not in known:
                        own.run(_train, 1, data, plain, precision, steps, str(Path(folder) / key), None, None)
                        known.add(key)
                    parts = own.run(
                        _train, row.parallel.world, data, row, precision, steps, None, str(Path(folder) / key), plant
                    )
                    yield _judge(row.name, precision, parts, steps)
    finally:
        if workers is None:
            own.close()


def _judge(name: str, precision: str, parts: list[list[tuple[float, ...]]], steps: int) -> Outcome:
    loss, norm, weights = (max(at[i] for part in parts for at in part) for i in range(3))
    first, final = parts[0][0][3], parts[0][-1][3]
    within = [bar is None or value <= bar for value, bar in zip((loss, norm, weights), BARS[precision], strict=True)]
    return Outcome(
        name, precision, loss, norm, weights, first, final, all(within) and (steps < 20 or first - final >= FALL)
    )


def _train(
    data: str, row: Row, precision: str, steps: int, keep: str | None, against: str | None, plant: str | None
) -> list[tuple[float, ...]]:
    """On every rank: the differences of each step from the reference in `against`; or the reference, kept in `keep`."""
    parallel = dataclasses.replace(row.parallel, precision=precision)
    refuse(parallel, row.model, world=parallel.world, batch_size=ROWS, seq_len=LENGTH, accumulation=row.accumulation)
    pieces = parallel.dp * row.accumulation
    trainee = build_trainee(row.model, parallel, row.optimizer, rows=ROWS // pieces, seq_len=LENGTH)
    config = StreamConfig((Source(data),), LENGTH, ROWS, lanes=8, threads=0)
    reference = torch.load(against) if against else []
    out: list[tuple[float, ...]] = []
    kept: list[tuple[float, float, dict[str, Tensor]]] = []
    with PLANTS[plant]() if plant else _nothing():
        # masks go by the row's place in the whole step, so each rank takes its rows out of the same whole
        for number, batch in zip(range(steps), Loader(config), strict=False):
            assert isinstance(batch, Batch)
            mine = split(ragged(batch, number), parallel.dp)[trainee.data_rank]
            result = train_step(trainee, split(mine, row.accumulation))
            weights = whole_weights(trainee)
            if keep:
                kept.append((result.loss, result.gradient_norm, weights))
                continue
            loss, norm, expected = reference[number]
            moved = max(_apart(weight, expected[name]) for name, weight in weights.items())
            out.append((_off(result.loss, loss), _off(result.gradient_norm, norm), moved, result.loss))
    if keep:
        torch.save(kept, keep)
    return out


def ragged(batch: Batch, number: int) -> Batch:
    """Every row with another number of valid targets, by its place in the step."""
    targets = batch.targets.clone()
    for row in range(len(targets)):
        targets[row, 1 + (row * 37 + number * 11) % targets.shape[1] :] = MASKED
    return dataclasses.replace(batch, targets=targets)


def whole_weights(trainee: Trainee) -> dict[str, Tensor]:
    """This rank's stages, gathered."""
    return {
        name: (p.full_tensor() if isinstance(p, DTensor) else p).detach().clone()
        for name, p in trainee.named_parameters()
    }


def _apart(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max() / b.abs().max())


def _off(a: float, b: float) -> float:
    return abs(a - b) / max(abs(b), 1e-300)


# ---------------------------------------------------------------------------------------------------- planted faults


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def _replacing(module: Any, name: str, made: Callable[[Any], Any]) -> Callable[[], Any]:
    @contextmanager
    def planted() -> Iterator[None]:
        right = getattr(module, name)
        setattr(module, name, made(right))
        try:
            yield
        finally:
            setattr(module, name, right)

    return planted


def _doubled(right: Any) -> Any:
    return lambda trainee, batch, scale: right(trainee, batch, scale * 2)


def _mean_of_means(right: Any) -> Any:
    """Each micro-batch divides by its own count, and the means are averaged."""

    def wrong(trainee: Trainee, batch: Batch, scale: Tensor) -> Tensor:
        own = (batch.targets != MASKED).sum().clamp_min(1)
        parts = trainee.parallel.dp * (ROWS // trainee.parallel.dp // len(batch.targets))
        out: Tensor = right(trainee, batch, (1.0 / (own * parts)).to(scale.dtype))
        return out

    return wrong


def _local_norm(_right: Any) -> Any:
    def wrong(found: Any, _stage_ranks: int, _order: float) -> Tensor:
        own = [g.to_local() if isinstance(g, DTensor) else g for _, g in found]
        return torch.stack([g.square().sum() for g in own]).sum().sqrt()

    return wrong


def _no_boundary(right: Any) -> Any:
    return lambda trainee, batch, scale: right(
        trainee, dataclasses.replace(batch, document_ids=torch.zeros_like(batch.document_ids)), scale
    )


#: what `--plant` can break in the compared runs, one at a time
PLANTS: dict[str, Callable[[], Any]] = {
    "doubled-gradient": _replacing(step, "_forward_backward", _doubled),
    "mean-of-means": _replacing(step, "_forward_backward", _mean_of_means),
    "local-norm": _replacing(optim, "gradient_norm", _local_norm),
    "no-document-boundary": _replacing(step, "_forward_backward", _no_boundary),
}
