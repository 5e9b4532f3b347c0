"""What to do when memory runs out: the cheap first, each with what it would save, as an estimate."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from trainer.model import ModelConfig
from trainer.parallel import PRECISIONS, ParallelConfig

#: what was being trained, so that an error which only knows that memory is out can be answered
_running: list[Use] = []


@dataclass(frozen=True)
class Use:
    model: ModelConfig
    parallel: ParallelConfig
    #: of one micro-batch on one rank, on one pipeline stage at a time
    rows: int
    seq_len: int
    accumulation: int
    parameters: int

    def activations(self, mode: str) -> float:
        """Bytes that a micro-batch keeps for the backward pass on a rank, all of its layers.

        Counted off the block, per position: without AC its inputs, normalised inputs, queries, keys, values, mixed
        heads, gate, up and their products; selective keeps the results of matrix products and attention; full the
        block's input alone.
        """
        model = self.model
        kv = model.key_value_heads * model.head_width
        size = torch.finfo(PRECISIONS[self.parallel.precision][1]).bits // 8
        numbers = {
            "none": 8 * model.width + 4 * kv + 4 * model.hidden,
            "selective": 4 * model.width + 2 * kv + 2 * model.hidden,
            "full": model.width,
        }[mode]
        layers = model.layers / self.parallel.pp
        return self.rows * self.seq_len * layers * numbers * size / self.parallel.tp

    @property
    def state(self) -> float:
        """Bytes of parameters, gradients and two moments on a rank."""
        size = torch.finfo(PRECISIONS[self.parallel.precision][0]).bits // 8
        return 4 * size * self.parameters / (self.parallel.dp_shard * self.parallel.tp * self.parallel.pp)


def remember(use: Use) -> None:
    _running[:] = [use]


def is_out_of_memory(error: BaseException | None) -> bool:
    while error is not None:
        text = str(error)
        if isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in text:
            return True
        error = error.__cause__
    return False


def advice(error: BaseException) -> str | None:
    """One line, or None where memory is not what failed."""
    if not is_out_of_memory(error):
        return None
    if not _running:
        return "out of memory before the first step: take a smaller model or more fsdp"
    return "out of memory; in order of price: " + "; ".join(ways(_running[0]))


def ways(use: Use) -> list[str]:
    mode = use.parallel.activation_checkpointing
    now = use.activations(mode)
    found = []
    if use.rows > 1:
        found.append(f"data.accumulation={2 * use.accumulation} saves about {_size(now / 2)}, no arithmetic")
    if mode == "none":
        saved = _size(now - use.activations("selective"))
        found.append(f"parallel.activation_checkpointing=selective {saved}, a few per cent of the time")
    if mode != "full":
        saved = _size(now - use.activations("full"))
        found.append(f"parallel.activation_checkpointing=full {saved}, up to a third more arithmetic")
    found.append(f"parallel.dp_shard={2 * use.parallel.dp_shard} {_size(use.state / 2)}, more processes")
    if torch.cuda.is_available():
        found.append("if much is reserved and not allocated: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")
    return found


def _size(n: float) -> str:
    return f"{n / 2**30:.1f} GiB" if n >= 2**30 else f"{n / 2**20:.0f} MiB"
