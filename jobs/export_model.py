"""A training run's checkpoint as safetensors, config.json and tokenizer.json that Hugging Face loads."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from jobs.inspection import need_torch, plain_errors


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_dir", metavar="RUN", help="the folder of `train --out`")
    parser.add_argument("--out", required=True, metavar="DIR", help="a new folder")
    parser.add_argument("--step", type=int, metavar="N", help="of a checkpoint (default: the newest complete)")
    parser.add_argument("--dtype", default="float32", help="float32 (default), bfloat16, float16, float64")
    parser.add_argument("--json", action="store_true", help="print the config.json")


def run(args: argparse.Namespace) -> int:
    need_torch()
    with plain_errors():
        from trainer.export_model import export

        out = Path(args.out)
        described = export(Path(args.run_dir), out, dtype=args.dtype, step=args.step)
    size = (out / "model.safetensors").stat().st_size
    text = f"{out}: {described['architectures'][0]}, {args.dtype}, {size:,} bytes of weights"
    print(json.dumps(described) if args.json else text)
    return 0
