"""Optimisers, the schedule of the learning rate in tokens, and the one gradient norm that every mesh agrees on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from trainer.initial import local_slice


@dataclass(frozen=True)
class OptimizerConfig:
    #: `adamw`, or `muon` for the blocks' matrices and AdamW for the rest
    name: str = "adamw"
    learning_rate: float = 3e-3
    #: `cosine` down to `final`, or `wsd`: warmup, stable, then linear down to `final` over the last `decay` share
    schedule: str = "cosine"
    warmup_tokens: int = 0
    #: of the whole run; 0: no decay
    total_tokens: int = 0
    decay: float = 0.2
    #: lowest rate as a share of `learning_rate`
    final: float = 0.1
    betas: tuple[float, float] = (0.9, 0.95)
    epsilon: float = 1e-8
    #: of matrices; norms have none
    weight_decay: float = 0.1
    #: Muon's; its rate is `learning_rate` too, its updates being scaled to AdamW's size (arXiv 2502.16982)
    momentum: float = 0.95
    #: largest gradient norm; None: no clipping, the norm is still measured
    clip: float | None = 1.0
    #: 2 or inf
    norm: float = 2.0


def learning_rate(tokens_seen: int, config: OptimizerConfig) -> float:
    """For the step that starts after `tokens_seen` valid targets. The first step of a warmup is not 0 long: see below.

    In tokens, so that a changed batch size bends nothing. A step's rate is the one at its start, except that warmup
    begins at 1 % rather than 0, which would throw the first batch away.
    """
    if tokens_seen < config.warmup_tokens:
        return config.learning_rate * max(0.01, tokens_seen / config.warmup_tokens)
    if not config.total_tokens:
        return config.learning_rate
    done = min(1.0, (tokens_seen - config.warmup_tokens) / max(1, config.total_tokens - config.warmup_tokens))
    if config.schedule == "wsd":
        left = min(1.0, (1.0 - done) / config.decay) if config.decay else 1.0
    else:
        left = 0.5 * (1.0 + math.cos(math.pi * done))
    return config.learning_rate * (config.final + (1.0 - config.final) * left)


def build_optimizer(parts: Sequence[nn.Module], config: OptimizerConfig) -> list[torch.optim.Optimizer]:
    """AdamW, or Muon and AdamW, over the parameters of all parts on this rank; the first's state is Muon's, if any."""
    named = [pair for part in parts for pair in part.named_parameters()]
    by_muon = [p for name, p in named if config.name == "muon" and p.ndim == 2 and name.startswith("blocks.")]
    taken = {id(p) for p in by_muon}
    rest = [p for _, p in named if id(p) not in taken]
    groups: list[dict[str, Any]] = [
        {"params": [p for p in rest if p.ndim > 1], "weight_decay": config.weight_decay},
        {"params": [p for p in rest if p.ndim == 1], "weight_decay": 0.0},
    ]
    optimizers: list[torch.optim.Optimizer] = []
    if by_muon:
        optimizers.append(Muon(by_muon, config.learning_rate, config.momentum, config.weight_decay))
    groups = [group for group in groups if group["params"]]
    if groups:
        adamw = torch.optim.AdamW(groups, lr=config.learning_rate, betas=config.betas, eps=config.epsilon, fused=True)
        optimizers.append(adamw)
    return optimizers


class Muon(torch.optim.Optimizer):
    """Momentum, made orthogonal: for matrices only (Jordan 2024; scale and decay as in arXiv 2502.16982).

    Newton-Schulz runs on the whole matrix, gathered over the mesh, in the parameters' type but at least float32, so
    the step is the same on every mesh; torch's runs in bfloat16, which moves weights by 2e-3 from mesh to mesh. Each
    rank computes every matrix of its stage: simple and exact, and on a large mesh the same work many times.
    """

    def __init__(self, parameters: Iterable[Tensor], lr: float, momentum: float, weight_decay: float) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["momentum"] = torch.zeros_like(parameter)
                momentum = state["momentum"].lerp_(parameter.grad, 1 - group["momentum"])
                update = parameter.grad.lerp(momentum, group["momentum"])  # Nesterov
                whole = update.full_tensor() if isinstance(update, DTensor) else update
                step = orthogonal(whole)[local_slice(parameter)]
                local = parameter.to_local() if isinstance(parameter, DTensor) else parameter
                local.mul_(1 - group["lr"] * group["weight_decay"])
                local.add_(step.to(local.dtype), alpha=-group["lr"] * 0.2 * max(parameter.shape) ** 0.5)


def orthogonal(matrix: Tensor, steps: int = 5) -> Tensor:
    """The nearest orthogonal matrix, roughly: singular values end in 0.7 to 1.2 (Jordan's quintic Newton-Schulz)."""
    x = matrix.to(torch.promote_types(matrix.dtype, torch.float32))
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    x = x / x.norm().clamp_min(1e-30)
    for _ in range(steps):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    out: Tensor = x.T if tall else x
    return out


def gradients(parts: Sequence[nn.Module]) -> Iterator[tuple[bool, Tensor, Tensor]]:
    """(counts in the norm, parameter, gradient) of this rank; one that is still a sum over ranks is summed first."""
    for part in parts:
        borrowed = getattr(part, "borrowed", ())
        for name, parameter in part.named_parameters():
            if (gradient := parameter.grad) is None:
                continue
            if (
                isinstance(parameter, DTensor)
                and isinstance(gradient, DTensor)
                and gradient.placements != parameter.placements
            ):
                gradient = parameter.grad = gradient.redistribute(placements=parameter.placements)
            yield name not in borrowed, parameter, gradient


def gradient_norm(found: Sequence[tuple[Tensor, Tensor]], stage_ranks: int, order: float = 2.0) -> Tensor:
    """Norm over all parameters of all ranks, the same number on each, by one collective whatever the mesh.

    `found`: (parameter, gradient) of this rank, a tied pair once in the pipeline; `stage_ranks`: how many ranks hold a
    stage. A rank adds the squares of its own slices, divided by the number of ranks that hold the same
    slice: for a pipeline, replicas and every kind of sharding that is all there is to it. Non-finite values survive.
    """
    locals_ = [g.to_local() if isinstance(g, DTensor) else g for _, g in found]
    device = locals_[0].device if locals_ else torch.device("cpu")
    exact = torch.promote_types(max((g.dtype for g in locals_), key=lambda t: t.itemsize), torch.float32)
    total = torch.zeros((), dtype=exact, device=device)
    if order == math.inf:
        tops = [g.abs().amax().to(exact) for g in locals_ if g.numel()]
        total = torch.stack([total, *tops]).amax().nan_to_num(nan=math.inf)  # a reduction's MAX may lose a NaN
        if dist.is_initialized():
            dist.all_reduce(total, dist.ReduceOp.MAX)
        return total
    for copies in sorted({_copies(p, stage_ranks) for p, _ in found}):
        same = [g for g, (p, _) in zip(locals_, found, strict=True) if _copies(p, stage_ranks) == copies]
        norms = torch._foreach_norm(same, 2, dtype=exact)
        total = total + torch.stack(list(norms)).square().sum() / copies
    if dist.is_initialized():
        dist.all_reduce(total)
    return total.sqrt()


def _copies(parameter: Tensor, stage_ranks: int) -> int:
    """On how many ranks this rank's slice lies."""
    slices = 1
    if isinstance(parameter, DTensor):
        for placement, size in zip(parameter.placements, parameter.device_mesh.shape, strict=True):
            slices *= 1 if placement.is_replicate() else size
    return stage_ranks // slices


def clip_gradients(
    parts: Sequence[nn.Module],
    stage_ranks: int = 1,
    *,
    largest: float | None = None,
    order: float = 2.0,
    scale: float = 1.0,
) -> Tensor:
    """Divides all gradients by `scale`, then limits their norm to `largest`. Returns the norm before the limit.

    The caller looks at the norm before it steps: nothing is hidden here.
    """
    found = list(gradients(parts))
    norm = gradient_norm([(p, g) for counts, p, g in found if counts], stage_ranks, order) / scale
    factor = torch.full_like(norm, 1.0 / scale)
    if largest is not None:
        factor = factor * (largest / (norm + 1e-6)).clamp_max(1.0)
    if largest is not None or scale != 1.0:
        locals_ = [g.to_local() if isinstance(g, DTensor) else g for _, _, g in found]
        torch._foreach_mul_(locals_, factor.to(locals_[0].dtype) if locals_ else 1.0)
    return norm
