"""The main job: crawl segments in, Parquet shards and an honest funnel out. Resumable: the same command goes on.

`gristmill curate …` and `spark-submit jobs/curate.py …` take the same arguments.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "inputs",
        nargs="+",
        metavar="INPUT",
        help="WARC or WET files, folders, globs, s3:// or https:// addresses, or a *.paths[.gz] list",
    )
    parser.add_argument("--out", required=True, metavar="DIR", help="the run's folder (may be s3://)")
    parser.add_argument("--recipe", default="fineweb", metavar="NAME|FILE", help="a preset or a TOML file (fineweb)")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="overrides",
        help="overrides a key of the recipe, as in language.min_score=0.5; may be given often",
    )
    parser.add_argument("--master", metavar="URL", help="Spark master (default: embedded, all cores)")
    parser.add_argument("--files", type=int, metavar="N", help="only a deterministic sample of N input files")
    parser.add_argument(
        "--against",
        action="append",
        default=[],
        metavar="DIR",
        help="an earlier run's folder (may be s3://): its survivors count as kept already; may be given often",
    )
    parser.add_argument("--json", action="store_true", help="print run.json instead of the funnel")


def run(args: argparse.Namespace) -> int:
    from pipeline import recipe
    from pipeline.errors import one_line
    from pipeline.run.curate import curate

    wanted = recipe.load(args.recipe, args.overrides)
    outcome = curate(args.inputs, args.out, wanted, master=args.master, files=args.files, against=args.against)
    print(json.dumps(outcome.run, indent=2, sort_keys=True) if args.json else summary(outcome.run, args.out))
    for line in outcome.failed:
        print(f"gristmill: {one_line(line)}", file=sys.stderr)
    return 1 if outcome.failed else 0


def summary(run: dict[str, Any], out: str) -> str:
    """The run's counts for people: what each stage rejected, what is left."""
    counts = run["counts"]
    total = counts["records"]
    lines = [f"{'records read':24}{total:>12,}"]
    for stage, reasons in counts["rejected"].items():
        rejected = sum(reasons.values())
        most = ", ".join(f"{reason} {n:,}" for reason, n in sorted(reasons.items(), key=lambda r: (-r[1], r[0]))[:4])
        lines.append(f"  - {stage:20}{rejected:>12,}{rejected / max(1, total):>8.1%}   {most}")
    for one in run.get("against", []):
        removed = one["removed"]
        shares = ", ".join(f"{kind.replace('_', ' ')} {n:,}" for kind, n in removed.items())
        lines.append(
            f"    {'for earlier run':18}{sum(removed.values()):>12,}          {shares or 'none'}   {one['uri']}"
        )
        if one["standard_error"] is not None:
            lines.append(
                "    ! that run kept no shingles: near-duplicates of it are told by signature, with a standard error "
                f"of {one['standard_error']:g} at the threshold"
            )
    errors = sum(reasons.get("error", 0) for reasons in counts["rejected"].values())
    if errors:
        lines.append(f"  ! {errors:,} records ended in a fault of ours, not of theirs: see their `detail` in records/")
    lines.append(f"{'kept':24}{counts['kept']:>12,}{counts['kept'] / max(1, total):>8.1%}   {out}/shards/manifest.json")
    lines.append(f"\nsee it: gristmill report {out}")
    return "\n".join(lines)


if __name__ == "__main__":
    from jobs.cli import single

    sys.exit(single("jobs.curate"))
