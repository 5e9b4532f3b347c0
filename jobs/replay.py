"""One step of a training run again, from the nearest saved weights, under anomaly detection."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

from jobs.inspection import need_torch, plain_errors
from jobs.train import as_one_of_many, launch

_MESH = {"dp": "dp_replicate", "fsdp": "dp_shard", "tp": "tp", "pp": "pp"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_dir", metavar="RUN", help="the folder of `train --out`")
    parser.add_argument("--step", type=int, required=True, metavar="N", help="counted from 0, as in faults.jsonl")
    for flag in _MESH:
        parser.add_argument(f"--{flag}", type=int, default=1, metavar="N", help="as in `train` (default 1)")
    parser.add_argument("--device", metavar="NAME", help="cpu or cuda (default: cuda where there is one)")
    parser.add_argument("--json", action="store_true")


def run(args: argparse.Namespace) -> int:
    need_torch()
    with plain_errors():
        from trainer.parallel import ParallelConfig
        from trainer.ranks import asked
        from trainer.train import read_config

        config = read_config(Path(args.run_dir))
        mesh = {name: getattr(args, flag) for flag, name in _MESH.items()}
        parallel = ParallelConfig(**mesh, precision=config.parallel.precision)
        if args.pp > 1:
            parallel = dataclasses.replace(parallel, schedule=config.parallel.schedule)
        settings = dataclasses.replace(config.run, device=args.device)
        config = dataclasses.replace(config, parallel=parallel, run=settings)
    if asked() == 1 and parallel.world > 1:
        return launch(parallel.world)

    def work() -> None:
        from trainer.replay import replay

        found = dataclasses.asdict(replay(Path(args.run_dir), args.step, config))
        print(json.dumps(found, ensure_ascii=False) if args.json else _text(found), flush=True)

    return as_one_of_many(work)


def _text(found: dict[str, Any]) -> str:
    lines = [f"step {found['step']}, from the weights of step {found['began']}"]
    if found["anomaly"]:
        lines += ["a backward pass gave no number:", *(f"  {line}" for line in found["anomaly"])]
        lines += ["gradients not finite: " + (", ".join(found["parameters"]) or "none yet")]
    else:
        lines += [f"loss {found['loss']:.6g}, gradient norm {found['gradient_norm']:.6g}"]
    lines += ["documents:", *(f"  {d['record_id']}  {d['url']}" for d in found["documents"])]
    return "\n".join(lines)
