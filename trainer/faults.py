"""Bad steps: which they are, when the run goes back, when it gives up.

A step whose loss or gradient norm is not finite, or a spike (OLMo's rule: more than 6 standard deviations above the
mean of the last 128 sound steps), is taken by no rank: all see the same two numbers before the optimiser does.
Several within the window rewind the weights to the last good checkpoint while the data goes on, so the stretch between
is skipped (PaLM, arXiv 2204.02311, section 5.1: the same data elsewhere did no harm). Rewinds are counted, kept in
checkpoints, and bounded.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from trainer.config import Faults
from trainer.step import StepResult

#: the least standard deviation, as a share of the mean: on a flat curve the smallest bump would be far out
FLAT = 0.01


@dataclass
class Guard:
    settings: Faults
    #: (loss, norm) of the last sound steps
    history: deque[tuple[float, float]] = field(default_factory=deque)
    #: [step, reason] of every bad step, over the whole run
    skipped: list[list[Any]] = field(default_factory=list)
    #: {"at", "to", "reason"} of every rewind
    rewinds: list[dict[str, Any]] = field(default_factory=list)
    #: what `accept` last had against a step
    objection: str | None = None

    def accept(self, loss: float, norm: float) -> bool:
        """Whether a step with these finite numbers is to be taken. The same answer on all ranks."""
        self.objection = self.spike(loss, norm)
        return self.objection is None

    def spike(self, loss: float, norm: float) -> str | None:
        if not self.settings.sigma or len(self.history) < self.settings.window // 2:
            return None
        for name, value, before in zip(
            ("loss", "gradient norm"), (loss, norm), zip(*self.history, strict=True), strict=True
        ):
            mean = sum(before) / len(before)
            deviation = math.sqrt(sum((x - mean) ** 2 for x in before) / (len(before) - 1))
            deviation = max(deviation, FLAT * abs(mean), 1e-12)
            if value > mean + self.settings.sigma * deviation:
                away = (value - mean) / deviation
                return f"{name} {value:.4g} is {away:.1f} standard deviations above {mean:.4g} of {len(before)} steps"
        return None

    def judge(self, step: int, result: StepResult) -> str | None:
        """Notes a step; what is wrong with it, or None. An overflow of fp16 is the loss scale's affair."""
        objection, self.objection = self.objection, None
        if result.overflow or not result.valid_tokens:
            return None
        if not result.finite:
            objection = objection or not_finite(result)
            self.skipped.append([step, objection])
            return objection
        self.history.append((result.loss, result.gradient_norm))
        while len(self.history) > self.settings.window:
            self.history.popleft()
        return None

    def trouble(self, step: int) -> list[int] | None:
        """The bad steps of the last window since the last rewind, if they are enough to go back."""
        since = max(step - self.settings.window, self.rewinds[-1]["at"] if self.rewinds else -1)
        recent = [bad for bad, _ in self.skipped if bad >= since]
        return recent if len(recent) >= self.settings.patience else None

    def as_json(self) -> dict[str, Any]:
        return {
            "history": [list(pair) for pair in self.history],
            "skipped": self.skipped,
            "rewinds": self.rewinds,
        }

    def restore(self, tree: dict[str, Any], *, history_only: bool = False) -> None:
        """As it was in a checkpoint; a rewind takes the history alone, for what was skipped stays skipped."""
        self.history = deque((loss, norm) for loss, norm in tree["history"])
        if not history_only:
            self.skipped, self.rewinds = tree["skipped"], tree["rewinds"]


def not_finite(result: StepResult) -> str:
    if not math.isfinite(result.loss_sum):
        return f"loss is {result.loss_sum}"
    return f"gradient norm is {result.gradient_norm}"
