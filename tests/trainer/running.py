"""Whole training runs, tiny, for tests: their data, their configuration, and what worker processes are handed."""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from tests.trainer.stream import made
from trainer import train as training
from trainer.config import TrainConfig, from_tree
from trainer.step import StepResult, Trainee
from trainer.stream import Batch
from trainer.train import Outcome, train

WORDS = ("the", "mill", "grinds", "grain", "into", "flour", "and", "bran", "while", "water", "turns", "a", "wheel")


def write_data(folder: Path, documents: int = 400) -> Path:
    """A curated run of made-up sentences, which a small model learns something of in a few steps."""
    chance = random.Random(7)
    texts = [" ".join(chance.choices(WORDS, k=chance.randint(5, 60))) + "." for _ in range(documents)]
    groups = [texts[at : at + 50] for at in range(0, documents, 50)]
    return made.run(folder, [groups[:4], groups[4:]])


def tree(data: Path, out: Path, *, steps: int = 12, **sections: dict[str, Any]) -> dict[str, Any]:
    """A configuration of two layers; `sections` are merged into it."""
    base: dict[str, Any] = {
        "model": {
            "size": "1m", "width": 32, "layers": 2, "heads": 2, "key_value_heads": 2, "hidden": 64,
        },
        "data": {"dir": [str(data)], "seq_len": 64, "batch_size": 8, "threads": 0, "log_every": 5},
        "run": {"out": str(out), "steps": steps, "device": "cpu", "timeout": 60.0},
        "optimizer": {"total_tokens": 100_000, "warmup_tokens": 1_000},
        "checkpoints": {"every": 4},
        "health": {"every": 5},
    }  # fmt: skip
    for name, values in sections.items():
        base[name] = base.get(name, {}) | values
    return base


def config(*arguments: Any, **sections: Any) -> TrainConfig:
    return from_tree(tree(*arguments, **sections))


def lines(out: Path, event: str | None = None) -> list[dict[str, Any]]:
    """Of `health.jsonl`: steps, or what it says of an event."""
    found = [json.loads(line) for line in (out / "health.jsonl").read_text().splitlines()]
    return [line for line in found if line.get("event") == event]


def losses(out: Path) -> dict[int, float]:
    """Step -> loss; where a step was made twice, before and after a resume, the later."""
    return {line["step"]: line["loss"] for line in lines(out)}


# ------------------------------------------------------------------------------------------- in worker processes


def run(settings: dict[str, Any]) -> Outcome:
    return train(from_tree(settings))


def run_until(settings: dict[str, Any], steps: int) -> Outcome:
    """Stops after `steps` with the schedule of the whole run."""
    return train(from_tree(settings | {"run": settings["run"] | {"steps": steps}}))


def poisoned(settings: dict[str, Any], kind: str, steps: list[int], rank: int) -> dict[str, Any]:
    """Trains with rank `rank` poisoned at some steps; how it ended, and a digest of this rank's last weights."""
    real = training.train_step
    seen: list[Trainee] = []

    def step(trainee: Trainee, micro_batches: list[Batch], accept: Any = None) -> StepResult:
        seen[:] = [trainee]
        here = trainee.step in steps and (dist.get_rank() if dist.is_initialized() else 0) == rank
        if here and kind == "masked":
            micro_batches = [
                dataclasses.replace(batch, targets=torch.full_like(batch.targets, -100)) for batch in micro_batches
            ]
        if not here or kind == "masked":
            return real(trainee, micro_batches, accept)
        factor = {"nan": float("nan"), "inf": float("inf"), "1e30": 1e30}[kind]
        module = trainee.parts[0].norm
        assert module is not None

        def poison(_module: Any, _inputs: Any, output: Tensor) -> Tensor:
            return output * factor

        handle = module.register_forward_hook(poison)
        try:
            return real(trainee, micro_batches, accept)
        finally:
            handle.remove()

    training.train_step = step  # type: ignore[assignment]
    try:
        outcome = train(from_tree(settings))
        return {"outcome": outcome, "sound": all(bool(p.isfinite().all()) for _, p in whole(seen[0]))}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    finally:
        training.train_step = real


def whole(trainee: Trainee) -> list[tuple[str, Tensor]]:
    return [(n, p.full_tensor() if hasattr(p, "full_tensor") else p) for n, p in trainee.named_parameters()]
