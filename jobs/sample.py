"""Writes a small, realistic crawl segment to try things on: several languages, spam, duplicates, damage.

The same pages and seed give the same bytes; files that are already there with these bytes are left alone.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from pathlib import Path

from pipeline.errors import GristmillError, UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("out", metavar="OUT", type=Path, help="folder for the .warc.gz files")
    parser.add_argument("--pages", type=int, default=400, metavar="N", help="pages in the segment (400)")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="another seed gives other pages (1)")


def run(args: argparse.Namespace) -> int:
    from jobs.sampling.segment import FEWEST_PAGES, files

    out: Path = args.out
    if args.pages < FEWEST_PAGES:
        raise UsageError(f"--pages {args.pages}: a segment with some of everything needs at least {FEWEST_PAGES}")
    segment = list(files(args.pages, args.seed))
    _refuse_strangers(out, {name for name, _, _ in segment})
    mix: Counter[str] = Counter()
    written = 0
    for name, data, kinds in segment:
        written += _put(out / name, data)
        mix += kinds
    size = sum(len(data) for _, data, _ in segment)
    state = f"{written} files written" if written else "already there"
    print(f"{out}: {args.pages} pages in {len(segment)} files, {size / 1e6:.1f} MB; {state}")
    print("  " + ", ".join(f"{kind} {n}" for kind, n in mix.most_common()))
    return 0


def _refuse_strangers(out: Path, names: set[str]) -> None:
    """Another sample's files in the same folder would quietly become part of this one."""
    try:
        others = sorted(p.name for p in out.glob("*.warc*") if p.name not in names)
    except OSError as error:
        raise GristmillError(f"{out}: cannot be read ({error.strerror})") from None
    if others:
        raise UsageError(f"{out} holds {others[0]}, which is not of this sample: choose an empty folder")


def _put(path: Path, data: bytes) -> bool:
    """Write unless the file is there with these bytes; true if it was written."""
    try:
        if path.is_file() and path.read_bytes() == data:
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_name(f".{path.name}.{os.getpid()}")
        scratch.write_bytes(data)
        scratch.replace(path)
    except OSError as error:
        raise GristmillError(f"{path}: cannot be written ({error.strerror})") from None
    return True
