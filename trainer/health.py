"""Is it going well? One line per step for programs, one per some steps for people, and a word with its rule.

What tells: tokens/s and MFU (arithmetic done of what the chip could do), the share of time that waits for data, the
spread over ranks. GPU-Util comes last: it says only that some kernel was resident.
"""

from __future__ import annotations

import json
import math
import os
import resource
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import torch

from trainer.config import Health
from trainer.errors import TrainUsageError
from trainer.model import ModelConfig
from trainer.ranks import Ranks
from trainer.step import StepResult

#: Dense bf16 FLOP/s of a device whose name holds the word; vendors' data sheets.
PEAKS = {"B200": 2.25e15, "H200": 989e12, "H100": 989e12, "A100": 312e12, "L40": 181e12, "MI300": 1.307e15}
#: of the EMA of the loss, per step
DECAY = 0.98
DATA_BOUND = 0.10
#: above its lowest, in nats, the smoothed loss is diverging
RISE = 0.5


def flops_per_token(model: ModelConfig, seq_len: int) -> float:
    """Forward and backward: 6 per weight that multiplies (the embedding is looked up, the head is not), and 6 x layers
    x width x T for causal attention at full length: a document mask does less, recomputation (AC) is not counted."""
    kv = model.key_value_heads * model.head_width
    block = model.width * (2 * model.width + 2 * kv) + 3 * model.width * model.hidden
    return 6.0 * (model.layers * block + model.vocab_size * model.width) + 6.0 * model.layers * model.width * seq_len


def peak_flops(device: torch.device) -> float | None:
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((peak for word, peak in PEAKS.items() if word in name), None)


@dataclass
class Smooth:
    """Debiased exponential mean: of the first steps it is their mean, not a tenth of it."""

    total: float = 0.0
    weight: float = 0.0
    best: float = math.inf
    steps: int = 0

    def add(self, value: float) -> float:
        self.total = DECAY * self.total + (1 - DECAY) * value
        self.weight = DECAY * self.weight + (1 - DECAY)
        self.steps += 1
        if self.steps >= 20:
            self.best = min(self.best, self.value)
        return self.value

    @property
    def value(self) -> float:
        return self.total / self.weight if self.weight else math.nan


@dataclass
class Window:
    """Since the last line on the screen."""

    began: float = field(default_factory=time.monotonic)
    waited: float = 0.0
    stepping: float = 0.0
    tokens: int = 0
    steps: int = 0
    bad: int = 0


class Monitor:
    """Takes every step; writes `health.jsonl` and says a line every `settings.every` steps, on the first rank."""

    def __init__(
        self,
        settings: Health,
        folder: Path,
        ranks: Ranks,
        device: torch.device,
        model: ModelConfig,
        seq_len: int,
        screen: TextIO | None = None,
    ) -> None:
        self.settings, self.ranks, self.device = settings, ranks, device
        self.screen = screen or sys.stdout
        self.smooth = Smooth()
        self.window = Window()
        self.flops = flops_per_token(model, seq_len)
        self.peak = peak_flops(device)
        self.first_loss: float | None = None
        self.last_loss: float | None = None
        self._live = False
        self._file: TextIO | None = None
        self._board: Any = None
        self._warm = False
        if ranks.first:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = open(folder / "health.jsonl", "a", encoding="utf-8")  # noqa: SIM115 - closed in `close`
            self._board = _tensorboard(folder) if settings.tensorboard else None

    def step(self, step: int, result: StepResult, waited: float, seconds: float, fault: str | None) -> None:
        """`waited` seconds for data, `seconds` in the step itself, on this rank."""
        if fault is None and result.valid_tokens:
            self.smooth.add(result.loss)
            self.last_loss = result.loss
            self.first_loss = result.loss if self.first_loss is None else self.first_loss
        window = self.window
        window.waited += waited
        window.stepping += seconds
        window.tokens += result.valid_tokens
        window.steps += 1
        window.bad += fault is not None
        line = {
            "step": step,
            "loss": result.loss,
            "loss_ema": self.smooth.value,
            "gradient_norm": result.gradient_norm,
            "learning_rate": result.learning_rate,
            "tokens": result.valid_tokens,
            "seconds": seconds,
            "waited": waited,
        }
        self.write(line if fault is None else line | {"fault": fault})
        if step % self.settings.every == 0:
            self._say(step, result)

    def event(self, kind: str, step: int, **more: Any) -> None:
        """Something that is no step: start, validation, skip, rewind, save."""
        self.write({"event": kind, "step": step, **more})

    def say(self, text: str) -> None:
        """A line of its own on the screen."""
        if self.ranks.first:
            print(("\r\033[K" if self._live else "") + text, file=self.screen, flush=True)
            self._live = False

    def write(self, line: dict[str, Any]) -> None:
        if self._file is not None:
            self._file.write(json.dumps({name: _plain(value) for name, value in line.items()}) + "\n")
            self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        if self._board is not None:
            self._board.close()

    def _say(self, step: int, result: StepResult) -> None:
        window, self.window = self.window, Window()
        wall = time.monotonic() - window.began
        own = (window.waited, window.stepping, *memory(self.device))
        waited, stepping, memories, retries = zip(*self.ranks.gather(own), strict=True)
        slowest, fastest = max(stepping), min(stepping)
        speed = window.tokens / wall / self.ranks.world
        figures: dict[str, float | None] = {
            "loss": result.loss,
            "loss_ema": self.smooth.value,
            "gradient_norm": result.gradient_norm,
            "learning_rate": result.learning_rate,
            "tokens_per_second": speed,
            "mfu": None if self.peak is None else speed * self.flops / self.peak,
            "data_stall": max(waited) / wall,
            "memory_gib": max(memories) / 2**30,
            "allocator_retries": sum(retries),
            "spread": (slowest - fastest) / max(1e-9, slowest),
            "gpu_util": gpu_util(self.device),
        }
        # the first step waits for files to be opened, which says nothing of the speed to come
        word, rule = verdict(self.smooth, max(waited) / wall if self._warm else 0.0, window.bad)
        self._warm = True
        self.write({"event": "health", "step": step, **figures, "verdict": word, "rule": rule})
        if self._board is not None:
            for name, value in figures.items():
                if value is not None:
                    self._board.add_scalar(name, value, step)
        if not self.ranks.first:
            return
        text = as_text(step, figures) + f"  {word}" + ("" if word == "healthy" else f": {rule}")
        if self.screen.isatty() and word == "healthy":
            print(f"\r\033[K{text}", end="", file=self.screen, flush=True)
            self._live = True
        else:
            self.say(text)


def verdict(smooth: Smooth, stall: float, bad: int) -> tuple[str, str]:
    """A word, and the rule that gave it."""
    if bad:
        return "diverging", f"{bad} of the last steps skipped"
    if smooth.value > smooth.best + RISE:
        return "diverging", f"smoothed loss {smooth.value:.2f} is over {RISE} above its lowest {smooth.best:.2f}"
    if stall > DATA_BOUND:
        return "data-bound", f"{stall:.0%} of the time waits for data, over {DATA_BOUND:.0%}"
    return "healthy", f"loss within {RISE} of its lowest, waits for data {stall:.0%} of the time"


def as_text(step: int, figures: dict[str, float | None]) -> str:
    mfu, util, retries = figures["mfu"], figures["gpu_util"], figures["allocator_retries"]
    parts = [
        f"step {step:>6}",
        f"loss {figures['loss']:.4f} ({figures['loss_ema']:.4f})",
        f"norm {figures['gradient_norm']:.3g}",
        f"lr {figures['learning_rate']:.2e}",
        f"{figures['tokens_per_second']:,.0f} tokens/s/{'GPU' if mfu is not None or util is not None else 'rank'}",
        None if mfu is None else f"MFU {mfu:.1%}",
        f"data {figures['data_stall']:.1%}",
        f"memory {figures['memory_gib']:.2f} GiB",
        f"retries {retries:.0f}" if retries else None,
        f"spread {figures['spread']:.1%}",
        None if util is None else f"GPU-Util {util:.0f}%",
    ]
    return "  ".join(part for part in parts if part is not None)


def memory(device: torch.device) -> tuple[int, int]:
    """(peak bytes, allocator retries): reserved on CUDA, of the process elsewhere."""
    if device.type == "cuda":
        return torch.cuda.max_memory_reserved(device), torch.cuda.memory_stats(device).get("num_alloc_retries", 0)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, 0


def gpu_util(device: torch.device) -> float | None:
    if device.type != "cuda":
        return None
    try:
        return float(torch.cuda.utilization(device))
    except Exception:  # needs NVML's Python package, which not every machine has
        return None


def _plain(value: Any) -> Any:
    """JSON has no NaN; as words they stay readable."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _tensorboard(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise TrainUsageError("health.tensorboard needs the package: pip install tensorboard") from None
    return SummaryWriter(os.fspath(folder / "tensorboard"))
