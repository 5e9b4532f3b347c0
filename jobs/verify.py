"""Every way of splitting a training against one process: loss, gradient norm and weights, at every step."""

from __future__ import annotations

import argparse
import dataclasses
import json

from pipeline.errors import GristmillError, UsageError
from pipeline.recipe import nearest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", metavar="DATA", help="a curated run")
    parser.add_argument("--steps", type=int, default=20, metavar="N", help="default 20; fewer do not judge the fall")
    parser.add_argument("--quick", action="store_true", help="one mesh of each kind, 5 steps, float64 only")
    parser.add_argument("--row", action="append", default=[], metavar="NAME", help="only this row; may be repeated")
    parser.add_argument("--plant", metavar="FAULT", help="break training on purpose: the table must turn red")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON lines instead")


def run(args: argparse.Namespace) -> int:
    try:
        from trainer import verify
        from trainer.errors import TrainError, TrainUsageError
        from trainer.stream import StreamError, StreamUsageError
    except ModuleNotFoundError as error:
        raise GristmillError(f"verify needs {error.name}: pip install 'gristmill[train]'") from error
    if args.plant and args.plant not in verify.PLANTS:
        raise UsageError(f"unknown fault {args.plant!r}{nearest(args.plant, verify.PLANTS)}")
    names = [row.name for row in verify.rows()]
    for name in args.row:
        if name not in names:
            raise UsageError(f"unknown row {name!r}{nearest(name, names)}")
    red = 0
    if not args.json:
        print(f"{'row':<36}{'type':<6}{'loss off':>10}{'norm off':>10}{'weights':>10}{'loss':>16}")
    try:
        outcomes = verify.verify(
            args.data,
            steps=min(args.steps, 5) if args.quick else args.steps,
            precisions=("fp64",) if args.quick else ("fp64", "fp32"),
            quick=args.quick,
            plant=args.plant,
            only=args.row,
        )
        for row in outcomes:
            red += not row.sound
            if args.json:
                print(json.dumps(dataclasses.asdict(row)), flush=True)
                continue
            figures = f"{row.loss:>10.1e}{row.norm:>10.1e}{row.weights:>10.1e}"
            fall = f"{row.first:.2f} -> {row.final:.2f}"
            print(f"{row.name:<36}{row.precision:<6}{figures}{fall:>16}  {'ok' if row.sound else 'RED'}", flush=True)
    except (TrainUsageError, StreamUsageError) as error:
        raise UsageError(str(error)) from error
    except (TrainError, StreamError) as error:
        raise GristmillError(str(error)) from error
    if red:
        raise GristmillError(f"{red} rows differ from one process; the columns say in what")
    return 0
