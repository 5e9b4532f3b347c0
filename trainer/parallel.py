"""How a model is split: one mesh of four dimensions, one function that applies it, and what is refused beforehand.

    mesh (pp, replicate, shard, tp):  pipeline stages x copies x FSDP shards x tensor parallel

Take FSDP until its gathers no longer hide behind the arithmetic, then tensor parallel inside a node, then a pipeline
across nodes. All of it works on gloo and CPU, which is how `gristmill verify` can hold every mesh against one process.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import HashStore
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.distributed_c10d import _set_pg_timeout
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from trainer.errors import TrainUsageError
from trainer.model import ModelConfig, Transformer

DIMENSIONS = ("pp", "replicate", "shard", "tp")
#: schedule -> stages on each rank (None: two or more)
SCHEDULES: dict[str, int | None] = {
    "GPipe": 1,
    "1F1B": 1,
    "LoopedBFS": None,
    "Interleaved1F1B": None,
    "InterleavedZeroBubble": None,
    "ZBVZeroBubble": 2,
    "DualPipeV": 2,
}
#: those that do a backward pass in two halves
SPLIT_BACKWARD = ("InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV")
#: stage i lies on rank i mod p, or for these on a V: 0, 1, ..., p - 1, p - 1, ..., 1, 0
V_SHAPED = ("ZBVZeroBubble", "DualPipeV")
RECOMPUTE = ("none", "selective", "full")
#: name -> type of the parameters, type of the arithmetic
PRECISIONS: dict[str, tuple[torch.dtype, torch.dtype]] = {
    "fp32": (torch.float32, torch.float32),
    "fp64": (torch.float64, torch.float64),
    "bf16": (torch.float32, torch.bfloat16),
    "fp16": (torch.float32, torch.float16),
}


@dataclass(frozen=True)
class ParallelConfig:
    dp_replicate: int = 1
    dp_shard: int = 1
    tp: int = 1
    pp: int = 1
    schedule: str = "1F1B"
    #: pieces that a rank's rows are cut into for the pipeline; None: twice the stages
    microbatches: int | None = None
    #: None: what the schedule needs, two for the interleaved ones
    stages_per_rank: int | None = None
    activation_checkpointing: str = "none"
    compile: bool = False
    #: fp32, fp64, bf16, fp16: of the arithmetic. Parameters and reductions stay in float32 (fp64: float64)
    precision: str = "fp32"

    @property
    def world(self) -> int:
        return self.pp * self.dp_replicate * self.dp_shard * self.tp

    @property
    def dp(self) -> int:
        return self.dp_replicate * self.dp_shard

    @property
    def stages_on_rank(self) -> int:
        return 1 if self.pp == 1 else self.stages_per_rank or SCHEDULES[self.schedule] or 2

    @property
    def stages(self) -> int:
        return self.pp * self.stages_on_rank

    @property
    def pieces(self) -> int:
        return 1 if self.pp == 1 else self.microbatches or 2 * self.stages

    @property
    def mixed(self) -> bool:
        parameters, arithmetic = PRECISIONS[self.precision]
        return parameters != arithmetic

    def rank_of(self, stage: int) -> int:
        """The pipeline rank that a stage lies on."""
        if self.schedule in V_SHAPED and self.pp > 1:
            return min(stage, 2 * self.pp - 1 - stage)
        return stage % self.pp


# ---------------------------------------------------------------------------------------------------- what cannot be


def refuse(
    config: ParallelConfig,
    model: ModelConfig,
    *,
    world: int,
    batch_size: int,
    seq_len: int,
    accumulation: int = 1,
    mode: str = "packed",
) -> None:
    """Raises TrainUsageError, with the nearest setting that works, for what cannot; `batch_size` over all ranks."""
    _known("schedule", config.schedule, SCHEDULES)
    _known("activation_checkpointing", config.activation_checkpointing, RECOMPUTE)
    _known("precision", config.precision, PRECISIONS)
    for name in ("dp_replicate", "dp_shard", "tp", "pp"):
        if getattr(config, name) < 1:
            raise TrainUsageError(f"{name} {getattr(config, name)}: at least 1")
    if config.world != world:
        others = config.dp_replicate * config.tp * config.pp
        way = f"dp_shard={world // others}" if world % others == 0 else f"{config.world} processes"
        raise TrainUsageError(
            f"a mesh of pp {config.pp} x replicate {config.dp_replicate} x shard {config.dp_shard} x tp {config.tp} "
            f"takes {config.world} processes and there are {world}: take {way}"
        )
    _refuse_shapes(config, model, batch_size, seq_len, accumulation)
    if config.pp > 1:
        _refuse_pipeline(config, model, batch_size // (config.dp * accumulation), mode)


def _refuse_shapes(
    config: ParallelConfig, model: ModelConfig, batch_size: int, seq_len: int, accumulation: int
) -> None:
    if model.width % model.heads or model.head_width % 2:
        raise TrainUsageError(f"width {model.width} over {model.heads} heads: each must have an even, whole width")
    if model.heads % model.key_value_heads:
        near = _nearest(model.key_value_heads, _divisors(model.heads))
        raise TrainUsageError(f"{model.key_value_heads} key-value heads do not divide {model.heads} heads: take {near}")
    for what, size in (
        ("key-value heads", model.key_value_heads),
        ("heads", model.heads),
        ("hidden width", model.hidden),
        ("vocabulary", model.vocab_size),
        ("positions of a row (seq_len)", seq_len),
    ):
        if size % config.tp:
            raise TrainUsageError(f"tp {config.tp} does not divide the {size} {what}: {_divide(size, config.tp)}")
    each = config.dp * accumulation
    if batch_size % each:
        raise TrainUsageError(
            f"batch_size {batch_size} does not divide over {config.dp} data ranks x {accumulation} accumulation: "
            f"take {_multiple(batch_size, each)}"
        )


def _refuse_pipeline(config: ParallelConfig, model: ModelConfig, rows: int, mode: str) -> None:
    if mode == "bucketed":
        raise TrainUsageError(
            "bucketed batches have rows of many lengths and a pipeline takes one: mode=packed or pp=1"
        )
    fixed = SCHEDULES[config.schedule]
    if (fixed and config.stages_on_rank != fixed) or (not fixed and config.stages_on_rank < 2):
        raise TrainUsageError(
            f"{config.schedule} has {fixed or 'two or more'} stages on a rank, not {config.stages_on_rank}: "
            f"stages_per_rank={fixed or 2}"
        )
    if config.stages > model.layers:
        raise TrainUsageError(
            f"{config.stages} stages and only {model.layers} layers: take pp={model.layers // config.stages_on_rank}"
            + ("" if config.stages_on_rank == 1 or config.pp > model.layers else " or schedule=1F1B")
        )
    fitting = [m for m in _divisors(rows) if _runs(config, m)]
    if config.pieces not in fitting:
        raise TrainUsageError(
            f"{config.schedule} over {config.stages} stages cannot cut {rows} rows of a rank into {config.pieces} "
            + (f"microbatches: take {_nearest(config.pieces, fitting)}" if fitting else _more_rows(config, rows))
        )
    if config.schedule in SPLIT_BACKWARD:
        near = "Interleaved1F1B"
        if config.activation_checkpointing == "selective":
            raise TrainUsageError(
                f"{config.schedule} splits the backward pass, which selective activation checkpointing cannot follow: "
                f"take activation_checkpointing=full, or schedule={near}"
            )
        if config.compile:
            raise TrainUsageError(
                f"{config.schedule} splits the backward pass, which torch.compile cannot follow: "
                f"take compile=false, or schedule={near}"
            )


def _runs(config: ParallelConfig, microbatches: int) -> bool:
    """Whether a schedule takes so many microbatches; its own errors in torch come later and say less."""
    if config.schedule in ("1F1B", "DualPipeV"):
        return microbatches >= config.stages
    if config.schedule in ("Interleaved1F1B", "InterleavedZeroBubble"):
        return microbatches % max(1, microbatches // config.pp) == 0
    return True


def _more_rows(config: ParallelConfig, rows: int) -> str:
    least = next(m for m in range(rows + 1, rows + 4 * config.stages + 1) if _runs(config, m))
    return f"microbatches: take {least} rows a rank (a larger batch_size), or schedule=GPipe"


def _known(name: str, value: str, choices: Iterable[str]) -> None:
    if value not in choices:
        raise TrainUsageError(f"{name} {value!r}: one of {', '.join(choices)}")


def _divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


def _nearest(value: int, choices: Iterable[int]) -> int:
    return min(choices, key=lambda choice: (abs(choice - value), choice))


def _divide(size: int, tp: int) -> str:
    return f"take tp={max(d for d in _divisors(size) if d <= tp)}"


def _multiple(value: int, of: int) -> int:
    return max(of, round(value / of) * of)


# --------------------------------------------------------------------------------------------------------- the mesh


def build_mesh(config: ParallelConfig, device: str = "cpu", timeout: float = 600.0) -> DeviceMesh | None:
    """The mesh, or None for one process that needs none. `timeout` (seconds) is set on every group of it.

    The groups of a mesh do not inherit the default group's time-out: on gloo a hung rank would hold the others for 30
    minutes. Mixed precision is FSDP's, so one process in bf16 has a group of itself.
    """
    if config.world == 1 and not config.mixed:
        return None
    if not dist.is_initialized():
        backend = "nccl" if device == "cuda" else "gloo"
        dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1)
    sizes = (config.pp, config.dp_replicate, config.dp_shard, config.tp)
    mesh = init_device_mesh(device, sizes, mesh_dim_names=DIMENSIONS)
    for group in [None, *(mesh.get_group(name) for name in DIMENSIONS)]:
        _set_pg_timeout(timedelta(seconds=timeout), group)
    return mesh


def stage_layers(layers: int, stages: int) -> list[range]:
    """Blocks of each stage, as even as can be; the middle takes what is over, the ends having embedding and head."""
    sizes = [layers // stages] * stages
    order = sorted(range(stages), key=lambda stage: abs(2 * stage - stages + 1))
    for stage in order[: layers % stages]:
        sizes[stage] += 1
    bounds = [sum(sizes[:stage]) for stage in range(stages + 1)]
    return [range(start, stop) for start, stop in pairwise(bounds)]


def build_parts(
    model: ModelConfig, config: ParallelConfig, mesh: DeviceMesh | None
) -> tuple[list[int], list[Transformer]]:
    """This rank's stages and their parts of the model, on the meta device and whole; one process has one, the model."""
    rank = 0 if mesh is None else mesh.get_local_rank("pp")
    mine = [stage for stage in range(config.stages) if config.rank_of(stage) == rank]
    layers = stage_layers(model.layers, config.stages)
    with torch.device("meta"):
        parts = [
            Transformer(model, layers[stage], first=stage == 0, last=stage == config.stages - 1).to(
                PRECISIONS[config.precision][0]
            )
            for stage in mine
        ]
    return mine, parts


# ------------------------------------------------------------------------------------------------------ the function


def parallelize(part: Transformer, *, config: ParallelConfig, mesh: DeviceMesh | None) -> None:
    """Splits one part in place: tensor parallel, then checkpointing of activations, then compile, then FSDP."""
    if mesh is not None and config.tp > 1:
        _tensor_parallel(part, mesh["tp"])
    for block in part.layers():
        block.recompute(config.activation_checkpointing)
        if config.compile:
            block.compile_call()
    if mesh is not None and (config.dp > 1 or config.mixed):
        _fully_shard(part, config, mesh["replicate", "shard"] if config.dp_replicate > 1 else mesh["shard"])


def _tensor_parallel(part: Transformer, mesh: DeviceMesh) -> None:
    """Megatron's split with sequence parallel: between blocks a rank holds [b, T / tp, d], in them its heads.

    Every parameter is in the plan, norms too (replicated): so all live on one mesh, and gradients are sums over it.
    The stream between modules is plain local tensors, which a pipeline can send.
    """
    along_sequence = SequenceParallel(use_local_output=True)
    plan: dict[str, ParallelStyle] = {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": along_sequence,
    }
    for layer in part.blocks:
        gathered = (Shard(1), None, None), (Replicate(), None, None)
        of_block: dict[str, ParallelStyle] = {
            "attention_norm": along_sequence,
            "attention": PrepareModuleInput(input_layouts=gathered[0], desired_input_layouts=gathered[1]),
            "attention.query": ColwiseParallel(),
            "attention.key": ColwiseParallel(),
            "attention.value": ColwiseParallel(),
            "attention.output": RowwiseParallel(output_layouts=Shard(1)),
            "feed_forward_norm": along_sequence,
            "feed_forward": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
            "feed_forward.gate": ColwiseParallel(),
            "feed_forward.up": ColwiseParallel(),
            "feed_forward.down": RowwiseParallel(output_layouts=Shard(1)),
        }
        if part.config.qk_norm:  # of [b, T, h, e], whose heads are split
            of_block["attention.query_norm"] = SequenceParallel(sequence_dim=2, use_local_output=True)
            of_block["attention.key_norm"] = SequenceParallel(sequence_dim=2, use_local_output=True)
        plan |= {f"blocks.{layer}.{name}": style for name, style in of_block.items()}
    present = {name for name, module in part.named_modules() if module is not None}
    parallelize_module(part, mesh, {name: style for name, style in plan.items() if name in present})
    if part.head is not None and part.head.weight is not None:
        part.head.weight = nn.Parameter(distribute_tensor(part.head.weight, mesh, [Shard(0)]))


def _fully_shard(part: Transformer, config: ParallelConfig, mesh: DeviceMesh) -> None:
    """Each block gathers its parameters for itself; a tied matrix is used at both ends and stays with the root.

    Gradients are summed, not averaged: the loss is already divided by the count over all ranks. In a pipeline
    parameters stay gathered between microbatches, or each would gather them again.
    """
    parameters, arithmetic = PRECISIONS[config.precision]
    policy = (
        MixedPrecisionPolicy(param_dtype=arithmetic, reduce_dtype=parameters)
        if config.mixed
        else MixedPrecisionPolicy()
    )
    ends: list[nn.Module | None] = [] if part.config.tied else [part.head]
    if not part.config.tied and config.tp == 1:  # under tensor parallel its output is a view, which FSDP warns of
        ends.append(part.embedding)
    for piece in [*part.layers(), *(end for end in ends if end is not None)]:
        fully_shard(piece, mesh=mesh, mp_policy=policy, reshard_after_forward=config.pp == 1)
    fully_shard(part, mesh=mesh, mp_policy=policy, reshard_after_forward=False)
    for module in sharded_modules([part]):
        module.set_gradient_divide_factor(1.0)
        module.set_force_sum_reduction_for_comms(True)  # or gloo refuses the factor (PREMUL_SUM)


def sharded_modules(parts: Sequence[nn.Module]) -> list[FSDPModule]:
    return [module for part in parts for module in part.modules() if isinstance(module, FSDPModule)]
