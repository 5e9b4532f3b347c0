"""Before the first step: do all ranks run the same thing? Most runs that hang or drift do not."""

from __future__ import annotations

import hashlib
import json
import platform
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

import trainer
from trainer.config import TrainConfig
from trainer.errors import TrainUsageError
from trainer.ranks import Ranks
from trainer.stream import Loader


def digest(config: TrainConfig, loader: Loader) -> dict[str, str]:
    """What must be equal, by name."""
    settings = json.dumps(config.as_json(), sort_keys=True)
    return {
        "torch": torch.__version__,
        "NCCL": ".".join(map(str, torch.cuda.nccl.version())) if torch.cuda.is_available() else "none",  # type: ignore[no-untyped-call]
        "Python": platform.python_version(),
        "code": code_version(),
        "manifest": " ".join(manifest.digest[:16] for manifest in loader.manifests),
        "tokenizer": loader.encoder.sha256[:16],
        "configuration": hashlib.sha256(settings.encode()).hexdigest()[:16],
    }


@cache
def code_version() -> str:
    """A hash of the trainer's source as it lies on this machine."""
    assert trainer.__file__
    root = Path(trainer.__file__).parent
    whole = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        whole.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return whole.hexdigest()[:16]


def check(mine: dict[str, Any], ranks: Ranks) -> None:
    """Raises TrainUsageError that names the rank that differs, and in what."""
    compare(ranks.gather(mine))


def compare(all_ranks: Sequence[dict[str, Any]]) -> None:
    for name in all_ranks[0]:
        values = [of_rank.get(name) for of_rank in all_ranks]
        usual, _ = Counter(values).most_common(1)[0]  # rank 0's where two are as many
        odd = [rank for rank, value in enumerate(values) if value != usual]
        if odd:
            who = f"rank {odd[0]}" if len(odd) == 1 else f"{len(odd)} ranks, rank {odd[0]} first,"
            differs = "differs" if len(odd) == 1 else "differ"
            raise TrainUsageError(
                f"{who} {differs} in {name}: {values[odd[0]]}, the others {usual}; make the machines equal"
            )
