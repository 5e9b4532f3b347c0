"""One record's way through a run: where it came from, every signal and rule, its verdict, its duplicates, its shard."""

from __future__ import annotations

import argparse
import json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dir", metavar="DIR", help="a run's folder (may be s3://)")
    parser.add_argument(
        "record", metavar="URL|RECORD_ID", help="an address as it stands in the crawl, or 32 hex digits"
    )
    parser.add_argument("--json", action="store_true", help="print everything stored as JSON, one object per capture")


def run(args: argparse.Namespace) -> int:
    from pipeline.quality.edits import edit
    from pipeline.report import reading, trace

    found = trace.trace(reading.open_finished(args.dir), args.record, edit)
    if args.json:
        print(json.dumps([one.as_json() for one in found], ensure_ascii=False, indent=2))
        return 0
    if len(found) > 1:
        print(f"{len(found)} captures\n")
    print("\n\n\n".join(trace.as_text(one) for one in found))
    return 0
