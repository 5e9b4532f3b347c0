"""Stages of a pipeline in motion: a training pass by torch's schedules, a pass forward only, and tied ends.

All ranks of a pipeline read the same batch; a stage hands on
[rows, T / tp, d], and the last stage's output is its summed loss, so the schedule's own loss function only scales it.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import get_schedule_class
from torch.distributed.tensor import DTensor

from trainer.model import Transformer
from trainer.parallel import PRECISIONS, ParallelConfig


class Pipeline:
    """This rank's stages, for batches of `rows` x `seq_len` only: gloo aborts on a second shape."""

    def __init__(
        self,
        config: ParallelConfig,
        mesh: DeviceMesh,
        stages: list[int],
        parts: list[Transformer],
        rows: int,
        seq_len: int,
        device: torch.device,
    ) -> None:
        self.config, self.stages, self.parts, self.device = config, stages, parts, device
        self.group = mesh.get_group("pp")
        self.rank = mesh.get_local_rank("pp")
        each = rows // config.pieces
        arithmetic = PRECISIONS[config.precision][1]
        tokens = torch.empty(each, seq_len, dtype=torch.int32, device="meta")
        self.stream = torch.empty(
            each, seq_len // config.tp, parts[0].config.width, dtype=arithmetic, device="meta", requires_grad=True
        )
        loss = torch.empty((), dtype=torch.promote_types(arithmetic, torch.float32), device="meta", requires_grad=True)
        # shapes are given, so that no schedule runs the stages once more to find them
        made = [
            PipelineStage(
                part,
                stage,
                config.stages,
                device,
                input_args=tokens if part.first else self.stream,
                output_args=loss if part.last else self.stream,
                group=self.group,
            )
            for stage, part in zip(stages, parts, strict=True)
        ]
        self.sums: list[Tensor] = []
        # scale_grads would divide by the microbatches: a mean of means
        self.schedule = get_schedule_class(config.schedule)(
            made[0] if config.stages_on_rank == 1 else made, config.pieces, loss_fn=self._scaled, scale_grads=False
        )

    def step(self, tokens: Tensor, fields: dict[str, Tensor], scale: Tensor) -> Tensor:
        """Forward and backward over one batch; the summed loss on the ranks of the last stage, 0 elsewhere."""
        self.sums.clear()
        inputs = (tokens,) if any(part.first for part in self.parts) else ()
        last = any(part.last for part in self.parts)
        target = fields["targets"] if last else None
        self.schedule.step(*inputs, **fields, target=target, return_outputs=False, loss_kwargs={"scale": scale})
        return torch.stack(self.sums).sum() if self.sums else torch.zeros_like(scale)

    def _scaled(self, loss: Tensor, _target: Tensor, scale: Tensor) -> Tensor:
        self.sums.append(loss.detach())
        return loss * scale

    @torch.no_grad()
    def evaluate(self, tokens: Tensor, fields: dict[str, Tensor]) -> Tensor:
        """The summed loss, forward only; stages of one rank that meet hand over directly."""
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        parts = dict(zip(self.stages, self.parts, strict=True))
        pieces = self.config.pieces
        for piece in range(pieces):
            part_of = {name: field.chunk(pieces)[piece] for name, field in fields.items()}
            hidden = tokens.chunk(pieces)[piece]
            for stage in range(self.config.stages):
                if stage not in parts:
                    continue
                if stage and (before := self.config.rank_of(stage - 1)) != self.rank:
                    hidden = torch.empty(self.stream.shape, dtype=self.stream.dtype, device=self.device)
                    dist.recv(hidden, group=self.group, group_src=before)
                hidden = parts[stage](hidden, **part_of)
                if parts[stage].last:
                    total += hidden
                elif (after := self.config.rank_of(stage + 1)) != self.rank:
                    dist.send(hidden.contiguous(), group=self.group, group_dst=after)
        return total

    def sum_tied(self) -> None:
        """Adds the gradients of a tied matrix at both ends of the pipeline, so that both copies take the same step."""
        first, last = (self.config.rank_of(stage) for stage in (0, self.config.stages - 1))
        ends = [part.embedding.weight for part in self.parts if part.embedding is not None]
        own = [_local(weight.grad) for weight in ends if weight.grad is not None]
        if first == last and len(own) == 2:
            total = own[0] + own[1]
            for gradient in own:
                gradient.copy_(total)
        elif first != last and own:
            other = torch.empty_like(own[0])
            peer = last if self.rank == first else first
            exchange = [
                dist.P2POp(dist.isend, own[0].contiguous(), group=self.group, group_peer=peer),
                dist.P2POp(dist.irecv, other, group=self.group, group_peer=peer),
            ]
            for work in dist.batch_isend_irecv(exchange):
                work.wait()
            own[0].add_(other)


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
