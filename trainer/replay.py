"""One step of a run again: from the nearest saved weights up to it, then the step itself under anomaly detection.

A failing step's own weights are kept (`faults/step-...`), so it is made at once; any other step costs the steps since
the checkpoint before it. Nothing of the run is changed.
"""

from __future__ import annotations

import dataclasses
import math
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from trainer import checkpoint as checkpoints
from trainer.config import TrainConfig
from trainer.errors import TrainUsageError
from trainer.ranks import start
from trainer.step import StepResult, Trainee, train_step
from trainer.stream import Batch
from trainer.stream.lineage import columns
from trainer.train import Session, build, device_of, next_step, read_config


@dataclass(frozen=True)
class Replayed:
    step: int
    #: the checkpoint's step that was begun at
    began: int
    loss: float
    gradient_norm: float
    #: of this rank, by the first operation that made a number that is none; empty where all is sound
    anomaly: list[str]
    #: parameters whose gradients are not finite, in order of the model
    parameters: list[str]
    #: this rank's documents of the step: record_id, url
    documents: list[dict[str, Any]] = field(default_factory=list)


def replay(run: Path, step: int, config: TrainConfig | None = None) -> Replayed:
    """`config`: the run's with another mesh or device; any mesh will do. Raises TrainUsageError where step is none
    that can be made again."""
    config = config or read_config(run)
    config = dataclasses.replace(config, run=dataclasses.replace(config.run, out=str(run)))
    ranks = start(device_of(config), config.run.timeout)
    found = [c for folder in ("faults", "checkpoints") for c in checkpoints.find(run / folder)[0] if c.step <= step]
    began = max(found, key=lambda c: c.step, default=None)
    if began is None:
        raise TrainUsageError(f"{run}: no saved weights from before step {step}; the first are of {_first(run)}")
    stream = dataclasses.replace(config.data, threads=0)
    session = build(dataclasses.replace(config, data=stream), ranks, log=False)
    state = checkpoints.load(began, session.trainee, ranks)
    session.guard.restore(state["faults"])
    session.loader.load_state_dict(state["data"])
    steps = iter(session.loader)
    while True:
        at = session.trainee.step
        checkpoints.seed_step(config.run.seed, at)
        micro_batches = next_step(session, steps)
        if micro_batches is None:
            raise TrainUsageError(f"step {step}: the data end at step {at}")
        if at == step:
            return _under_detection(session, micro_batches, began.step)
        result = train_step(session.trainee, micro_batches, session.guard.accept)
        session.guard.judge(at, result)


def _under_detection(session: Session, micro_batches: Sequence[Batch], began: int) -> Replayed:
    """The optimiser does not step: `accept` turns every step down, after it has looked at the gradients."""
    trainee = session.trainee
    odd: list[str] = []
    anomaly: list[str] = []
    result = StepResult(math.nan, 0, math.nan, 0.0, False)
    with torch.autograd.detect_anomaly():
        try:
            result = train_step(trainee, micro_batches, lambda _loss, _norm: False)
        except RuntimeError as error:
            if "nan" not in str(error):
                raise
            anomaly = [line for line in str(error).splitlines() if line.strip()]
            anomaly += [line.strip() for line in traceback.format_tb(error.__traceback__)[-1:]]
            odd = not_finite(trainee)
    spans = {(span.source, span.position) for batch in micro_batches for row in batch.span for span in row}
    documents = list(columns(session.loader, spans, ("record_id", "url")).values())
    return Replayed(trainee.step - (not anomaly), began, result.loss, result.gradient_norm, anomaly, odd, documents)


def not_finite(trainee: Trainee) -> list[str]:
    def local(tensor: Tensor) -> Tensor:
        return tensor.to_local() if isinstance(tensor, DTensor) else tensor

    return [
        name
        for name, parameter in trainee.named_parameters()
        if parameter.grad is not None and not bool(local(parameter.grad).isfinite().all())
    ]


def _first(run: Path) -> str:
    steps = [c.step for folder in ("faults", "checkpoints") for c in checkpoints.find(run / folder)[0]]
    return f"step {min(steps)}" if steps else "no step"
