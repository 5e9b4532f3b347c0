"""Near-duplicate removal on a million made-up documents: time, memory, and whether the planted truth comes out.

    python -m tests.bench.dedup_scale                                 # 1,000,000 documents, 30,000 of them one page
    python -m tests.bench.dedup_scale --documents 100000 --hot 3000 --growth-from 0
    python -m tests.bench.dedup_scale --toy

local[2], 4 GB of heap. The corpus (dedup_corpus.py) is written first, records and signatures, as a run stores them;
that is timed apart. What is timed: the documents as a run reads them, `find_duplicates`, its rows written to Parquet,
in a process of its own; start-up is the Spark session's. It runs with and without the hot page, and on a tenth of the
documents for the growth.

Bars: the survivors are those of the greedy pass over all pairs that share a band; one to a few of the hot page; with
the hot page 1.5 times the time without it at most; ten times the documents take 12 times as long at most; no Python
worker above 1.5 GB.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from pipeline.datasets import DUPLICATES
from pipeline.recipe import Dedup, load
from pipeline.storage import Part, PartWriter, Storage
from tests.bench.dedup_corpus import HOT, Shape, write
from tests.bench.memory import BAR_BYTES, _name, _proportional, _workers

PROJECT = Path(__file__).resolve().parents[2]
HOT_BAR, GROWTH_BAR, FEW = 1.5, 1.2, 5


@dataclass(frozen=True)
class Outcome:
    """One run: seconds of the session's start and of dedup, dedup's counts, peak bytes."""

    start: float
    seconds: float
    counts: dict[str, Any]
    java: int = 0
    worker: int = 0
    cpu: float = 0.0  # seconds of all processes, session start included


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=970_000, help="besides the hot page's (970,000)")
    parser.add_argument("--hot", type=int, default=30_000, help="copies of one page")
    parser.add_argument(
        "--growth-from", type=int, default=100_000, help="documents of the small run; 0: none (100,000)"
    )
    parser.add_argument("--bands", default="14x8", help="BANDSxROWS")
    parser.add_argument("--heap", default="4g")
    parser.add_argument("--work", type=Path, help="folder for the corpora, kept and used again if it has them")
    parser.add_argument("--only", choices=["hot", "cold", "small"], help="one of the runs")
    parser.add_argument("--toy", action="store_true", help="2,200 documents, 300 copies, bands that miss nothing")
    parser.add_argument("--measure", nargs=2, metavar=("FOLDER", "HOT"), help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.toy:
        args.documents, args.hot, args.growth_from, args.bands, args.heap = 2200, 300, 0, "40x2", "1g"
    bands, rows = map(int, args.bands.split("x"))
    settings = Dedup(bands=bands, rows=rows, permutations=bands * rows)
    if args.measure:
        print(json.dumps(asdict(measure(Path(args.measure[0]), args.measure[1] == "hot", settings))))
        return 0
    with tempfile.TemporaryDirectory(prefix="gristmill-bench-") as scratch:
        return bench(args, settings, args.work or Path(scratch))


def bench(args: argparse.Namespace, settings: Dedup, work: Path) -> int:
    good = True
    large = corpus(work / f"{args.documents}-{args.hot}-{args.bands}", args.documents, args.hot, settings)
    found: dict[str, Outcome] = {}
    if args.only in (None, "hot"):
        found["hot"] = told("with the hot page", args, large, "hot")
        good &= check(large, settings)
    if args.only in (None, "cold"):
        found["cold"] = told("without it", args, large, "cold")
    if args.growth_from and args.only in (None, "small"):
        share = args.growth_from / (args.documents + args.hot)
        hot = round(args.hot * share)
        small = corpus(work / f"{args.growth_from}-{hot}-{args.bands}", args.growth_from - hot, hot, settings)
        found["small"] = told("a smaller corpus", args, small, "hot")
        good &= check(small, settings)
    if {"hot", "cold"} <= found.keys():
        good &= bar("with the hot page / without", found["hot"].seconds / found["cold"].seconds, HOT_BAR, args.toy)
    if {"hot", "small"} <= found.keys():
        times = (args.documents + args.hot) / args.growth_from
        good &= bar(
            f"growth over {times:.1f}x linear", found["hot"].seconds / found["small"].seconds / times, GROWTH_BAR
        )
    good &= bar("largest Python worker, GB", max(one.worker for one in found.values()) / 1e9, BAR_BYTES / 1e9)
    print("within the bars" if good else "NOT within the bars")
    return 0 if good else 1


def corpus(folder: Path, documents: int, hot: int, settings: Dedup) -> Path:
    if not (folder / "records").is_dir() or Storage(str(folder)).read_manifest("records") is None:
        begin = time.monotonic()
        parts = write(folder, Shape.of(documents, hot), settings)
        size = sum(part.file_bytes for part in parts) / 1e6
        seconds = time.monotonic() - begin
        print(
            f"{documents + hot:,} documents in {len(parts)} files of {size:,.0f} MB written in {seconds:.0f} s",
            flush=True,
        )
    return folder


def told(what: str, args: argparse.Namespace, folder: Path, hot: str) -> Outcome:
    command = [sys.executable, "-m", "tests.bench.dedup_scale", "--measure", str(folder), hot, "--bands", args.bands]
    environment = {**os.environ, "GRISTMILL_DRIVER_MEMORY": args.heap}
    process = subprocess.Popen(command, env=environment, cwd=PROJECT, stdout=subprocess.PIPE, text=True)
    peaks = Peaks(process.pid)
    out, _ = process.communicate()
    java, worker, cpu = peaks.stop()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}\nended with {process.returncode}")
    found = Outcome(**{**json.loads(out.splitlines()[-1]), "java": java, "worker": worker, "cpu": cpu})
    print(
        f"{what:18} {found.seconds:7.1f} s (start {found.start:.1f} s, CPU {cpu:.0f} s)  JVM {java / 1e6:,.0f} MB, "
        f"Python worker {worker / 1e6:,.0f} MB at most  {_line(found.counts)}",
        flush=True,
    )
    return found


def _line(counts: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value:,}" for name, value in counts.items() if isinstance(value, int))


def bar(what: str, value: float, most: float, toy: bool = False) -> bool:
    print(f"{what}: {value:.2f} (bar {most:g}{', not held to it at toy size' if toy else ''})")
    return toy or value <= most


class Peaks:
    """Samples the resident memory of the JVM and of each Python worker of a process tree, and the CPU time of all."""

    def __init__(self, root: int) -> None:
        self._root = psutil.Process(root)
        self._java = self._worker = 0
        self._cpu: dict[int, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def stop(self) -> tuple[int, int, float]:
        self._stop.set()
        self._thread.join()
        return self._java, self._worker, sum(self._cpu.values())

    def _look(self) -> None:
        while not self._stop.wait(0.2):
            try:
                family = [self._root, *self._root.children(recursive=True)]
                for process in family:
                    times = process.cpu_times()
                    self._cpu[process.pid] = times.user + times.system
                java = [process.memory_info().rss for process in family if _name(process) == "java"]
                self._java = max([self._java, *java])
                self._worker = max([self._worker, *map(_proportional, _workers(self._root))])
            except psutil.Error:  # it has just ended
                continue


def measure(folder: Path, hot: bool, settings: Dedup) -> Outcome:
    """Dedup of the stored records, as a run does it; the rows go to `folder`/duplicates."""
    from pipeline.dedup import find_duplicates
    from pipeline.run.documents import documents, text_reader
    from pipeline.spark import map_in_arrow, session

    begin = time.monotonic()
    spark = session("local[2]", app="gristmill-bench")
    started = time.monotonic()
    storage = Storage(str(folder))
    manifest = storage.read_manifest("records")
    assert manifest is not None
    parts = [part for part in manifest.parts if hot or not part.path.startswith(f"records/{HOT}")]
    recipe = load("minimal")
    passed = documents(spark, storage, recipe, parts, {}, signatures=True)
    found = find_duplicates(passed, settings, text_reader(storage))
    name = "duplicates" if hot else "duplicates-cold"
    told = pa.schema([("part", pa.string())])

    def put(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with PartWriter(storage, name, "duplicates", DUPLICATES) as writer:
            for batch in batches:
                writer.write(batch.select(DUPLICATES.names))
            part = writer.close()
        yield pa.RecordBatch.from_pylist([{"part": json.dumps(part.to_json())}], schema=told)

    spread = found.duplicates.repartition(1, "record_id").sortWithinPartitions("record_id")
    rows = map_in_arrow(spread, put, told).collect()
    storage.commit(name, "bench", [Part.from_json(json.loads(row["part"])) for row in rows])
    found.release()
    ended = time.monotonic()
    spark.stop()
    return Outcome(started - begin, ended - started, found.counts)


def check(folder: Path, settings: Dedup) -> bool:
    """The survivors against the truth, by kind of cluster."""
    duplicates = ds.dataset(str(folder / "duplicates"), exclude_invalid_files=True).to_table().to_pylist()
    removed = {row["record_id"]: row for row in duplicates}
    truth = pq.read_table(folder / "truth").to_pylist()
    planted = {row["record_id"] for row in truth}
    cluster_of = {row["record_id"]: row["cluster"] for row in truth}
    kinds: dict[str, Counter[str]] = {}
    for row in truth:
        counted = kinds.setdefault(row["cluster"].split("-")[0], Counter())
        kept = row["record_id"] not in removed
        counted.update(
            documents=1,
            kept=kept,
            true=row["kept"],
            other=kept != row["kept"],
            all_pairs=row["kept_by_all_pairs"],
            beyond=kept != row["kept_by_all_pairs"],
        )
    clusters = Counter(name.split("-")[0] for name in {row["cluster"] for row in truth})
    good = True
    for kind, counted in kinds.items():
        print(
            f"  {kind:6} {clusters[kind]:,} clusters, {counted['documents']:,} documents: {counted['kept']:,} kept, "
            f"the greedy over pairs that share a band {counted['true']:,}, otherwise decided {counted['other']:,}"
            + (f"; over all pairs {counted['all_pairs']:,} ({counted['beyond']:,})" if kind == "tree" else "")
        )
        good &= counted["other"] == 0 and (kind != HOT or counted["kept"] <= FEW)
    strangers = sum(i not in planted for i in removed)
    dangling = sum(row["kept_id"] in removed for row in duplicates)
    astray = sum(cluster_of.get(row["kept_id"]) != cluster_of.get(i) for i, row in removed.items())
    low = sum(row["similarity"] < settings.threshold for row in duplicates)
    print(
        f"  removed {len(removed):,}: of no cluster {strangers}, naming one of another {astray}, "
        f"one not kept {dangling}, below the threshold {low}"
    )
    return good and not (strangers or dangling or astray or low)


if __name__ == "__main__":
    sys.exit(main())
