"""The reader beside bare fastwarc and warcio on the same files: every body read, HTTP headers parsed, in turns.

    python -m tests.bench.read FILE.warc.gz... [--pairs 9] [--supervision 7]

Bar: at least 0.75 of bare fastwarc's speed on undamaged gzip, by the median of the pairs. warcio is measured where it
is installed. `--supervision N` adds N pairs of tests.bench.supervise on all files as one (bar: 3 %).
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fastwarc.warc import ArchiveIterator, WarcRecordType

from pipeline.crawl.http import parse
from pipeline.crawl.warc import PAGE_TYPES, Record, read
from tests.bench import supervise
from tests.crawl.archives import http, members, page, record

BAR = 0.75
#: fastwarc's names of PAGE_TYPES
TYPES = WarcRecordType.response | WarcRecordType.resource | WarcRecordType.revisit | WarcRecordType.conversion

#: records, bytes of bodies, records with HTTP headers
Counts = tuple[int, int, int]


def ours(path: str) -> Counts:
    records = size = with_http = 0
    with open(path, "rb", buffering=0) as stream:
        for event in read(stream):
            if isinstance(event, Record) and event.problem is None:
                response = parse(event.block) if event.http else None
                records += 1
                size += len(event.block if response is None else response.body)
                with_http += response is not None
    return records, size, with_http


def fastwarc(path: str) -> Counts:
    records = size = with_http = 0
    for entry in ArchiveIterator(path, record_types=TYPES, parse_http=True, auto_decode="none"):
        records += 1
        size += len(entry.reader.read())
        with_http += entry.http_headers is not None
    return records, size, with_http


def warcio(path: str) -> Counts:
    iterator: Any = importlib.import_module("warcio.archiveiterator").ArchiveIterator
    records = size = with_http = 0
    with open(path, "rb") as stream:
        for entry in iterator(stream):
            if entry.rec_type in PAGE_TYPES:
                records += 1
                size += len(entry.raw_stream.read())
                with_http += entry.http_headers is not None
    return records, size, with_http


def measure(run: Callable[[str], Counts], paths: Sequence[str]) -> tuple[float, Counts]:
    """CPU seconds, and what was read."""
    begin = time.process_time()
    found = [run(path) for path in paths]
    seconds = time.process_time() - begin
    records, size, with_http = (sum(column) for column in zip(*found, strict=True))
    return seconds, (records, size, with_http)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--supervision", type=int, default=0, metavar="PAIRS")
    parser.add_argument("--toy", action="store_true", help="one turn over 200 small pages, without the bar")
    args = parser.parse_args(argv)
    if args.toy:
        with tempfile.TemporaryDirectory() as name:
            path = Path(name) / "toy.warc.gz"
            path.write_bytes(members([record(http(page(n)), f"http://toy.test/{n}") for n in range(200)]))
            return 0 if compare([str(path)], 1)[1] else 1
    ratio, same = compare(args.files, args.pairs)
    if args.supervision:
        with tempfile.NamedTemporaryFile(suffix=".warc.gz") as whole:  # a child per file is a cost of small files
            for path in args.files:
                whole.write(Path(path).read_bytes())
            whole.flush()
            supervise.main(whole.name, args.supervision)
    return 0 if ratio >= BAR and same else 1


def compare(files: Sequence[str], pairs: int) -> tuple[float, bool]:
    """(our speed in fastwarc's, whether both read the same); prints all."""
    readers = {"gristmill": ours, "fastwarc": fastwarc}
    if importlib.util.find_spec("warcio"):
        readers["warcio"] = warcio
    else:
        print("warcio is not installed, so it is left out: pip install warcio")
    times: dict[str, list[float]] = {name: [] for name in readers}
    counts: dict[str, Counts] = {}
    for path in files:  # into the page cache
        ours(path)
    for turn in range(pairs):
        for name in list(readers) if turn % 2 else list(readers)[::-1]:
            seconds, counts[name] = measure(readers[name], files)
            times[name].append(seconds)
    megabytes = sum(map(os.path.getsize, files)) / 1e6
    print(f"{len(files)} files, {megabytes:.1f} MB packed, median of {pairs} turns, CPU time")
    for name, seconds in times.items():
        middle = statistics.median(seconds)
        records, size, _ = counts[name]
        print(f"{name:10}{records:8} records {records / middle:9.0f}/s {size / 1e6 / middle:8.0f} MB/s of bodies")
    ratios = [theirs / mine for mine, theirs in zip(times["gristmill"], times["fastwarc"], strict=True)]
    ratio = statistics.median(ratios)
    same = counts["gristmill"] == counts["fastwarc"]
    print(f"gristmill / fastwarc: {ratio:.2f} (of {min(ratios):.2f} to {max(ratios):.2f}), bar {BAR}")
    print("the same records, bytes and HTTP headers" if same else f"NOT the same: {counts}")
    return ratio, same


if __name__ == "__main__":
    sys.exit(main())
