"""What-if: the funnel under other thresholds, from stored signals, without reading the crawl or its texts again."""

from __future__ import annotations

import argparse
import json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dir", metavar="DIR", help="a run's folder (may be s3://)")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="overrides",
        help="for example quality.rules.gopher_short_doc.min=30 or quality.rules.c4_sentences=off",
    )
    parser.add_argument("--json", action="store_true", help="print both funnels as JSON")


def run(args: argparse.Namespace) -> int:
    from pipeline.language import check_allowed
    from pipeline.quality.judge import judge
    from pipeline.report import reading, whatif

    result = whatif.what_if(reading.open_finished(args.dir), args.overrides, judge)
    if any(key.startswith("language.allowed") for key, _, _ in result.changes):
        check_allowed(result.recipe.language)
    print(json.dumps(whatif.as_json(result), ensure_ascii=False, indent=2) if args.json else whatif.as_text(result))
    return 0
