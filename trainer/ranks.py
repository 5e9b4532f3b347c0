"""This process among the others: who it is, and how they tell each other small things.

Control messages have a gloo group of their own, so that they need no accelerator and never meet the collectives of a
step or of a checkpoint that is being written.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist

T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    rank: int = 0
    world: int = 1
    group: dist.ProcessGroup | None = None

    @property
    def first(self) -> bool:
        return self.rank == 0

    def gather(self, value: T) -> list[T]:
        """Every rank's value, on every rank."""
        if self.group is None:
            return [value]
        values: list[T | None] = [None] * self.world
        dist.all_gather_object(values, value, group=self.group)
        return values  # type: ignore[return-value]

    def from_first(self, value: T) -> T:
        return self.gather(value)[0]


def asked() -> int:
    """How many processes torchrun (or Slurm, by it) has started for this run."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def start(device: str, timeout: float) -> Ranks:
    """Joins the other processes, if there are any. `timeout` in seconds, of every collective."""
    if device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    if asked() > 1 and not dist.is_initialized():
        backend = "nccl" if device == "cuda" else "gloo"
        dist.init_process_group(backend, timeout=timedelta(seconds=timeout))
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return Ranks()
    return Ranks(dist.get_rank(), dist.get_world_size(), gloo_group(timeout))


def gloo_group(timeout: float) -> dist.ProcessGroup:
    group: dist.ProcessGroup = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout))
    return group
