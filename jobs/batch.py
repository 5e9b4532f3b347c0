"""The documents in one step of training: text, address and place of every piece."""

from __future__ import annotations

import argparse
import json
from typing import Any

from jobs.inspection import add_stream_arguments, need_torch, plain_errors, stream_config
from pipeline.errors import UsageError
from pipeline.report.numbers import excerpt, printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "dir",
        nargs="+",
        metavar="DIR",
        help="where training logged its data states, or curated runs and the options below",
    )
    parser.add_argument("--step", type=int, required=True, metavar="N", help="counted from 0")
    parser.add_argument("--chars", type=int, default=100, metavar="N", help="of each text (default 100)")
    parser.add_argument("--json", action="store_true", help="one object per piece, with its whole text")
    add_stream_arguments(parser)


def run(args: argparse.Namespace) -> int:
    need_torch()
    if args.step < 0:
        raise UsageError(f"--step {args.step}: steps count from 0")
    from trainer.stream import Loader
    from trainer.stream.lineage import pieces, replay_logged
    from trainer.stream.statelog import has_log

    with plain_errors():
        logged = [folder for folder in (args.dir[0], f"{args.dir[0]}/states") if has_log(folder)]
        if len(args.dir) == 1 and logged:
            loader = replay_logged(logged[0], args.step)
        else:
            loader = Loader(stream_config(args, args.dir))
        for row, piece in pieces(loader, args.step):
            print(
                json.dumps(piece | {"row_of_step": row}, ensure_ascii=False) if args.json else _line(row, piece, args)
            )
    return 0


def _line(row: int, piece: dict[str, Any], args: argparse.Namespace) -> str:
    where = f"{piece['shard']}:{piece['row']}  tokens {piece['start']:,} to {piece['end']:,}"
    where += f"  position {piece['source']}:{piece['position']}"
    text = printable(excerpt(piece["text"], args.chars))
    return f"row {row}  {piece['record_id']}  {piece['url']}\n  {where}\n  {text}"
