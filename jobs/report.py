"""Print a finished run's funnel, lengths and findings, and write its HTML report to DIR/report/report.html."""

from __future__ import annotations

import argparse
import json

PAGE = "report/report.html"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dir", metavar="DIR", help="a run's folder (may be s3://)")
    parser.add_argument("--json", action="store_true", help="print every figure as JSON instead")


def run(args: argparse.Namespace) -> int:
    from pipeline.report import page, reading, summary

    opened = reading.open_finished(args.dir)
    seen = summary.summarize(opened)
    print(json.dumps(summary.as_json(seen), ensure_ascii=False, indent=2) if args.json else summary.as_text(seen))
    opened.storage.put_bytes(PAGE, page.render(seen))
    if not args.json:
        print(f"\nreport: {opened.storage.uri}/{PAGE}")
    return 0
