"""First weights, the same on every mesh, bit for bit: a function of (seed, parameter's name, place in it).

A parameter is drawn in blocks of whole rows, each from a generator of its own, so a rank draws only the rows of its
slice. Values are uniform, not normal: integers times a power of the standard deviation come out the same on every
machine, where a logarithm may not, and none is far out.
"""

from __future__ import annotations

from hashlib import blake2b

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

#: elements drawn by one generator; its set-up is 2 % of their time
BLOCK = 1 << 16
_STEPS = 1 << 23


def initialise(model: nn.Module, seed: int) -> None:
    """Fills every parameter, sharded or not; those on the meta device must have been given memory (`to_empty`)."""
    config = model.config
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            local = parameter.to_local() if isinstance(parameter, DTensor) else parameter
            if parameter.ndim == 1:
                local.fill_(1.0)
                continue
            deviation = parameter.shape[1] ** -0.5
            if name.endswith(("attention.output.weight", "feed_forward.down.weight")):
                deviation *= (2 * config.layers) ** -0.5  # type: ignore[union-attr,operator]  # GPT-2: each adds to the stream
            rows, columns = local_slice(parameter)
            _fill(local, f"{seed}/{name}", parameter.shape[1], rows, columns, deviation)


def local_slice(parameter: Tensor) -> tuple[slice, slice]:
    """Which rows and columns of the whole matrix this rank holds."""
    if not isinstance(parameter, DTensor):
        return slice(0, parameter.shape[0]), slice(0, parameter.shape[1])
    shape, offset = compute_local_shape_and_global_offset(parameter.shape, parameter.device_mesh, parameter.placements)
    rows, columns = (slice(start, start + size) for start, size in zip(offset, shape, strict=True))
    return rows, columns


def _fill(local: Tensor, key: str, width: int, rows: slice, columns: slice, deviation: float) -> None:
    each = max(1, BLOCK // width)
    for block in range(rows.start // each, -(-rows.stop // each)):
        start, stop = max(rows.start, block * each), min(rows.stop, (block + 1) * each)
        if start >= stop or columns.start >= columns.stop:
            continue
        seed = int.from_bytes(blake2b(f"{key}/{block}".encode(), digest_size=8).digest(), "big")
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.empty(each, width, dtype=torch.int32).random_(-_STEPS, _STEPS + 1, generator=generator)
        part = drawn[start - block * each : stop - block * each, columns].double() * (deviation * 3**0.5 / _STEPS)
        local[start - rows.start : stop - rows.start].copy_(part)
