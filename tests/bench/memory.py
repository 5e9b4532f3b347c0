"""Memory of the whole job: the largest Python worker, its children included, while huge pages pass through.

    python -m tests.bench.memory                          # 40 pages of 50 MB, both engines
    python -m tests.bench.memory --pages 4 --megabytes 4  # toy

Bars: every worker with its children stays within 1.5 GB; with `resiliparse` all pages are extracted, with `trafilatura`
all are rejected `timeout` or `memory`; none is lost.
"""

from __future__ import annotations

import argparse
import gzip
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import psutil
import pyarrow.dataset as ds

from tests.run.runs import response

BAR_BYTES = 1.5e9


def write_pages(path: Path, pages: int, megabytes: float, seed: int = 1) -> None:
    """A WARC file of `pages` HTML pages, paragraphs of made-up words that compress about as prose does."""
    random = np.random.default_rng(seed)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = np.array(["".join(random.choice(letters, size=n)) for n in random.integers(2, 11, size=5000)])
    size = int(megabytes * 1e6)
    paragraph_count = size // 400
    picks = random.integers(0, len(words), size=(paragraph_count, 57))
    body = "".join(f"<p>{' '.join(words[row])}.</p>\n" for row in picks).encode()[:size]
    with path.open("wb") as file:
        for number in range(pages):
            page = b"<html><head><title>Page %d</title></head><body><article><p>Page %d.</p>" % (number, number)
            record = response(f"http://huge.test/{number}", page + body + b"</article></body></html>")
            file.write(gzip.compress(record, 1, mtime=0))


class Watch:
    """Samples the resident memory of every Python worker of a process tree, its children included."""

    def __init__(self, root: int) -> None:
        self.peak = 0
        self._root = psutil.Process(root)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def stop(self) -> int:
        self._stop.set()
        self._thread.join()
        return self.peak

    def _look(self) -> None:
        while not self._stop.wait(0.05):
            for worker in _workers(self._root):
                try:
                    family = [worker, *worker.children(recursive=True)]
                except psutil.Error:
                    continue
                self.peak = max(self.peak, sum(map(_proportional, family)))


def _workers(root: psutil.Process) -> list[psutil.Process]:
    """Children of Spark's Python daemons; a daemon is the Python process that a Java one started."""
    found: list[psutil.Process] = []
    try:
        family = root.children(recursive=True)
    except psutil.Error:
        return []
    names = {process.pid: _name(process) for process in family}
    for process in family:
        try:
            if names[process.pid].startswith("python") and names.get(process.ppid()) == "java":
                found += process.children()
        except psutil.Error:  # it has just ended
            continue
    return found


def _name(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.Error:
        return ""


def _proportional(process: psutil.Process) -> int:
    """Proportional set size, because a forked child shares most of its parent's pages."""
    try:
        return int(process.memory_full_info().pss)
    except psutil.Error:
        return 0


def measure(file: Path, engine: str, folder: Path, extra: list[str]) -> tuple[Counter[str], float, int, int]:
    """(verdict counts, seconds, peak bytes of a worker, exit status) of one curate run."""
    out = folder / f"run-{engine}"
    command = [sys.executable, "-m", "jobs.cli", "curate", str(file), "--out", str(out), "--recipe", "minimal"]
    command += ["--set", f"extract.engine={engine}", "--master", "local[2]", *extra]
    environment = {**os.environ, "GRISTMILL_DRIVER_MEMORY": "2g"}
    begin = time.monotonic()
    process = subprocess.Popen(command, env=environment)
    watch = Watch(process.pid)
    status = process.wait()
    seconds, peak = time.monotonic() - begin, watch.stop()
    records = ds.dataset(sorted(map(str, (out / "records").glob("*.parquet")))).to_table(columns=["stage", "reason"])
    return Counter(row["reason"] or "extracted" for row in records.to_pylist()), seconds, peak, status


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=40)
    parser.add_argument("--megabytes", type=float, default=50)
    parser.add_argument("--engines", nargs="+", default=["resiliparse", "trafilatura"])
    parser.add_argument("--set", action="append", default=[], dest="overrides")
    parser.add_argument("--toy", action="store_true", help="2 pages of 1 MB, resiliparse")
    args = parser.parse_args(argv)
    if args.toy:
        args.pages, args.megabytes, args.engines = 2, 1.0, ["resiliparse"]
    extra = [word for override in args.overrides for word in ("--set", override)]
    good = True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "huge.warc.gz"
        write_pages(file, args.pages, args.megabytes)
        print(f"{args.pages} pages of {args.megabytes:g} MB, {file.stat().st_size / 1e6:.0f} MB compressed")
        print(f"{'engine':14}{'seconds':>9}{'worker peak':>14}{'status':>8}  verdicts")
        for engine in args.engines:
            found, seconds, peak, status = measure(file, engine, folder, extra)
            print(f"{engine:14}{seconds:9.0f}{peak / 1e6:11.0f} MB{status:8}  {dict(found)}", flush=True)
            allowed = {"extracted"} if engine == "resiliparse" else {"timeout", "memory"}
            good &= (
                0 < peak <= BAR_BYTES and sum(found.values()) == args.pages and set(found) <= allowed and status == 0
            )
    print("within the bars" if good else "NOT within the bars")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
