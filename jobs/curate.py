"""The main job: crawl segments in, Parquet shards and an honest funnel out. Resumable: the same command goes on.

`gristmill curate …` and `spark-submit jobs/curate.py …` take the same arguments.
"""

from __future__ import annotations

import argparse
import json
import sys


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "inputs",
        nargs="+",
        metavar="INPUT",
        help="WARC or WET files, folders, globs, s3:// or https:// addresses, or a *.paths[.gz] list",
    )
    parser.add_argument("--out", required=True, metavar="DIR", help="the run's folder (may be s3://)")
    parser.add_argument("--recipe", default="fineweb", metavar="NAME|FILE", help="a preset or a TOML file (fineweb)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides")
    parser.add_argument("--master", metavar="URL", help="Spark master (default: embedded, all cores)")
    parser.add_argument("--files", type=int, metavar="N", help="only a deterministic sample of N input files")
    parser.add_argument("--json", action="store_true", help="print run.json instead of the funnel")


def run(args: argparse.Namespace) -> int:
    from pipeline import recipe
    from pipeline.run.curate import curate

    wanted = recipe.load(args.recipe, args.overrides)
    outcome = curate(args.inputs, args.out, wanted, master=args.master, files=args.files)
    if args.json:
        print(json.dumps(outcome.run, indent=2, sort_keys=True))
    else:
        from pipeline.report.funnel import print_summary

        print_summary(args.out)
    for line in outcome.failed:
        print(f"gristmill: {line}", file=sys.stderr)
    return 1 if outcome.failed else 0


if __name__ == "__main__":
    from jobs.cli import single

    sys.exit(single("jobs.curate"))
