"""A run's clusters of duplicates: the survivor of each and what was removed in its favour, largest first."""

from __future__ import annotations

import argparse
import json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dir", metavar="DIR", help="a run's folder (may be s3://)")
    parser.add_argument("--largest", type=int, default=10, metavar="N", help="show the N largest clusters (10)")
    parser.add_argument(
        "--members", type=int, default=10, metavar="N", help="and at most N removed records of each (10)"
    )
    parser.add_argument("--json", action="store_true", help="print the clusters as JSON")


def run(args: argparse.Namespace) -> int:
    from pipeline.errors import UsageError
    from pipeline.report import clusters, reading

    for name in ("largest", "members"):
        if getattr(args, name) < 0:
            raise UsageError(f"--{name} {getattr(args, name)}: a number, 0 or more")
    seen = clusters.summarize(reading.open_finished(args.dir), args.largest, args.members)
    print(json.dumps(clusters.as_json(seen), ensure_ascii=False, indent=2) if args.json else clusters.as_text(seen))
    return 0
