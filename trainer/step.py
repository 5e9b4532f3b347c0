"""One step of training, the same on every mesh: forward, backward, one norm, one look at it, then the optimiser.

The loss is a sum over valid targets, divided by their count over micro-batches x accumulation x data ranks, which is
known before the first backward pass. Nothing is averaged anywhere else, so how a batch is cut cannot matter.
The host waits once a step, for loss, norm and count together: every rank then knows whether the step is sound, and
all of them take it or none does.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from trainer.errors import TrainUsageError
from trainer.model import ModelConfig, Transformer, initialise
from trainer.optim import OptimizerConfig, build_optimizer, clip_gradients, learning_rate
from trainer.parallel import ParallelConfig, build_mesh, build_parts, parallelize, sharded_modules
from trainer.stages import Pipeline
from trainer.stream.batch import MASKED, Batch


@dataclass
class LossScale:
    """What fp16 losses are multiplied by, so that small gradients survive. Doubled after `patience` sound steps, halved
    after an overflow, which every rank sees in the same norm: GradScaler's rule, without its flag of each rank.
    """

    value: float = 2.0**16
    sound: int = 0
    patience: int = 2000

    def update(self, finite: bool) -> None:
        self.sound = self.sound + 1 if finite else 0
        if not finite:
            self.value = max(1.0, self.value / 2)
        elif self.sound % self.patience == 0:
            self.value *= 2


@dataclass
class Trainee:
    """A rank's share of a model in training. `parts` are its stages: one, the whole model, without a pipeline."""

    model: ModelConfig
    parallel: ParallelConfig
    optimizer: OptimizerConfig
    device: torch.device
    mesh: DeviceMesh | None
    parts: list[Transformer]
    optimizers: list[torch.optim.Optimizer]
    pipeline: Pipeline | None = None
    loss_scale: LossScale | None = None
    #: valid targets of all sound steps: what the learning rate follows
    tokens_seen: int = 0
    #: steps taken, skipped ones included
    step: int = 0

    @property
    def data_rank(self) -> int:
        """Which of `parallel.dp` readers of data this rank is; those of one pipeline or tensor group read alike."""
        if self.mesh is None:
            return 0
        return self.mesh.get_local_rank("replicate") * self.parallel.dp_shard + self.mesh.get_local_rank("shard")

    @property
    def stage_ranks(self) -> int:
        return self.parallel.world // self.parallel.pp

    def named_parameters(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """Names as in the whole model; the ends of a tied pipeline both have `embedding.weight`, always equal."""
        for part in self.parts:
            yield from part.named_parameters()


@dataclass(frozen=True)
class StepResult:
    #: over all ranks, before the step
    loss_sum: float
    valid_tokens: int
    #: of the mean loss, before clipping
    gradient_norm: float
    learning_rate: float
    #: loss and norm are; if not, no rank has stepped
    finite: bool
    #: fp16 alone: the norm is not, the loss is, and the loss scale has been halved
    overflow: bool = False

    @property
    def loss(self) -> float:
        return self.loss_sum / max(1, self.valid_tokens)

    @property
    def stepped(self) -> bool:
        return self.finite and self.valid_tokens > 0


def build_trainee(
    model: ModelConfig,
    parallel: ParallelConfig,
    optimizer: OptimizerConfig,
    *,
    rows: int,
    seq_len: int,
    seed: int = 0,
    device: str = "cpu",
    timeout: float = 600.0,
) -> Trainee:
    """Everything that a rank needs to step. `rows`: of one micro-batch on this rank; a pipeline takes no other number.

    `parallel.refuse` comes first, by the caller. Weights are a function of `seed` alone.
    """
    mesh = build_mesh(parallel, device, timeout)
    stages, parts = build_parts(model, parallel, mesh)
    for part in parts:
        parallelize(part, config=parallel, mesh=mesh)
        part.to_empty(device=device)
        initialise(part, seed)
    where = torch.device(device)
    pipeline = None
    if parallel.pp > 1:
        assert mesh is not None
        pipeline = Pipeline(parallel, mesh, stages, parts, rows, seq_len, where)
    scale = LossScale() if parallel.precision == "fp16" else None
    optimizers = build_optimizer(parts, optimizer)
    return Trainee(model, parallel, optimizer, where, mesh, parts, optimizers, pipeline, scale)


def split(batch: Batch, pieces: int) -> list[Batch]:
    """A batch by rows, for accumulation. Every part keeps the step's state; its `utilisation` is left to the whole."""
    names = ("tokens", "targets", "document_ids", "positions")
    if len(batch.tokens) % pieces:
        raise TrainUsageError(f"{len(batch.tokens)} rows do not cut into {pieces} micro-batches: take a divisor")
    each = len(batch.tokens) // pieces
    return [
        dataclasses.replace(
            batch,
            **{name: getattr(batch, name)[at : at + each] for name in names},
            span=batch.span[at : at + each],
        )
        for at in range(0, len(batch.tokens), each)
    ]


def train_step(
    trainee: Trainee, micro_batches: Sequence[Batch], accept: Callable[[float, float], bool] | None = None
) -> StepResult:
    """Trains on this rank's part of one step; the same number of micro-batches on every rank.

    `accept`, asked about a finite loss and norm, may turn the step down; it sees the same numbers on all ranks.
    """
    parallel, device = trainee.parallel, trainee.device
    exact = torch.float64 if parallel.precision == "fp64" else torch.float32
    count = count_valid(trainee, micro_batches)
    scale = (1.0 / count.clamp_min(1)).to(exact)
    if trainee.loss_scale is not None:
        scale = scale * trainee.loss_scale.value
    loss_sum = torch.zeros((), dtype=exact, device=device)
    replicas = sharded_modules(trainee.parts) if parallel.dp_replicate > 1 else []
    for number, batch in enumerate(micro_batches):
        for module in replicas:  # shards are summed at once, copies only when all is there
            module.set_requires_all_reduce(number == len(micro_batches) - 1)
        loss_sum += _forward_backward(trainee, batch, scale)
    if trainee.pipeline is not None and trainee.model.tied:
        trainee.pipeline.sum_tied()
    norm = clip_gradients(
        trainee.parts,
        trainee.stage_ranks,
        largest=trainee.optimizer.clip,
        order=trainee.optimizer.norm,
        scale=1.0 if trainee.loss_scale is None else trainee.loss_scale.value,
    )
    total = over_ranks(trainee, loss_sum.double())
    loss, length, valid = torch.stack([total, norm.double(), count]).tolist()
    finite = math.isfinite(loss) and math.isfinite(length)
    rate = learning_rate(trainee.tokens_seen, trainee.optimizer)
    overflow = trainee.loss_scale is not None and math.isfinite(loss) and not finite
    if finite and valid and accept is not None:
        finite = accept(loss / valid, length)
    result = StepResult(loss, int(valid), length, rate, finite, overflow)
    if trainee.loss_scale is not None and valid:
        trainee.loss_scale.update(not overflow)
    if result.stepped:
        for optimizer in trainee.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
        trainee.tokens_seen += int(valid)
    for optimizer in trainee.optimizers:
        optimizer.zero_grad(set_to_none=True)
    trainee.step += 1
    return result


def evaluate(trainee: Trainee, batches: Iterable[Batch]) -> tuple[float, int]:
    """(loss summed, valid targets) over all batches of all ranks; the caller divides once. As many batches each."""
    loss_sum = torch.zeros((), dtype=torch.float64, device=trainee.device)
    count = torch.zeros_like(loss_sum)
    with torch.no_grad():
        for batch in batches:
            tokens, fields = _on_device(trainee, batch)
            if trainee.pipeline is not None:
                loss_sum += trainee.pipeline.evaluate(tokens, fields)
            else:
                loss_sum += trainee.parts[0](tokens, **fields)
            count += (fields["targets"] != MASKED).sum()
    for module in sharded_modules(trainee.parts):
        module.reshard()  # or a checkpoint loaded next would not reach the gathered copies
    total = over_ranks(trainee, loss_sum)
    valid = over_ranks(trainee, count) / trainee.parallel.pp
    return float(total), int(valid)


def count_valid(trainee: Trainee, micro_batches: Sequence[Batch]) -> Tensor:
    """Valid targets of this step over all ranks, on the device: nobody waits for it."""
    own = sum(int((batch.targets != MASKED).sum()) for batch in micro_batches)
    count = torch.tensor(float(own), dtype=torch.float64, device=trainee.device)
    return over_ranks(trainee, count) / trainee.parallel.pp


def over_ranks(trainee: Trainee, value: Tensor) -> Tensor:
    """Sum over data ranks and stages of what the ranks of a tensor-parallel group all hold."""
    if dist.is_initialized():
        dist.all_reduce(value)
    return value / trainee.parallel.tp


def _forward_backward(trainee: Trainee, batch: Batch, scale: Tensor) -> Tensor:
    tokens, fields = _on_device(trainee, batch)
    if trainee.pipeline is not None:
        return trainee.pipeline.step(tokens, fields, scale)
    loss: Tensor = trainee.parts[0](tokens, **fields)
    (loss * scale).backward()  # type: ignore[no-untyped-call]
    return loss.detach()


def _on_device(trainee: Trainee, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
    names = ("positions", "document_ids", "targets")
    fields = {name: getattr(batch, name).to(trainee.device, non_blocking=True) for name in names}
    return batch.tokens.to(trainee.device, non_blocking=True), fields
