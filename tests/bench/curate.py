"""Speed of the main job beside datatrove's FineWeb steps, on the same pages in one run.

    python -m tests.bench.curate --peer-python PEER/bin/python --lid lid.176.ftz    # both: about half an hour
    python -m tests.bench.curate --toy                                              # ours only, on a made-up segment
    python -m tests.bench.curate --profile 300                                      # our time by stage

Both keep English only and favour precision; neither removes duplicates (ours is also timed with it, in one round).
The peer's environment is described in ../shared/tools/peer_datatrove.py; it needs `lxml_html_clean` too where pip is
older than 24.1, else it extracts nothing. It pins trafilatura below 1.12, we run the version installed here.

Steady rate = change in documents / (change in wall time x cores) between two input sizes, so that start-up cancels out.
Documents = response records in the input. The larger input is the smaller one several times over, each copy under
addresses of its own (byte-identical files would count once); records are dealt out to files of equal count for both
sides. A round times every contender at both sizes; figures are medians over rounds, ratios are of one round's rates.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
PAGES = PROJECT.parent / "shared" / "data" / "crawl"
PEER = PROJECT.parent / "shared" / "tools" / "peer_datatrove.py"
CORES = 2
FILES_PER_COPY = 8
NO_DEDUP = ("dedup.exact=false", "dedup.near=false")
#: As the peer: its extractor is called with include_comments=False.
AS_PEER = ("extract.favor=precision", "extract.comments=false", 'language.allowed=["en"]')
#: engine -> the multiple of the peer's steady rate that is asked for
BARS = {"trafilatura": 1.5, "resiliparse": 6.0, "gristmill": 10.0}


@dataclass(frozen=True)
class Size:
    folder: Path
    documents: int


@dataclass(frozen=True)
class Contender:
    name: str
    command: tuple[str, ...]  #: with the words INPUT and OUT
    bar: float | None = None
    once: bool = False  #: runs in the first round only


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=Path, default=PAGES, help="folder of .warc.gz files")
    parser.add_argument("--peer-python", type=Path, help="python of the peer's environment")
    parser.add_argument("--lid", type=Path, help="lid.176.ftz or lid.176.bin for the peer")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--copies", type=int, default=2, help="the larger input, in copies of the smaller (2)")
    parser.add_argument("--engines", nargs="+", default=list(BARS), choices=list(BARS))
    parser.add_argument("--limit", type=int, help="only the first N records of the pages")
    parser.add_argument("--work", type=Path, help="scratch folder, kept (default: a temporary one)")
    parser.add_argument("--toy", action="store_true", help="ours only, one round, on a made-up segment")
    parser.add_argument("--profile", type=int, metavar="N", help="time by stage on N pages, in this process")
    args = parser.parse_args()
    if args.profile:
        from tests.bench.stages import profile

        for engine in args.engines:
            profile(args.pages, args.profile, engine, AS_PEER)
        return 0
    with tempfile.TemporaryDirectory(prefix="gristmill-bench-") as scratch:
        work: Path = args.work or Path(scratch)
        work.mkdir(parents=True, exist_ok=True)
        pages, rounds = args.pages, args.rounds
        if args.toy:
            pages, rounds, args.engines, args.limit = work / "sample", 1, ["resiliparse"], 60
            subprocess.run([sys.executable, "-m", "jobs.cli", "sample", str(pages)], cwd=PROJECT, check=True)
        small = write_copies(pages, work / "small", 1, args.limit)
        large = write_copies(pages, work / "large", args.copies, args.limit)
        contenders = contenders_of(args.engines, args.peer_python, args.lid)[: 1 if args.toy else None]
        show(contenders, race(contenders, (small, large), work, rounds), (small, large))
    return 0


def contenders_of(engines: list[str], peer_python: Path | None, lid: Path | None) -> list[Contender]:
    found = []
    if peer_python:
        if not lid:
            raise SystemExit("--peer-python needs --lid")
        command = (str(peer_python.absolute()), str(PEER), "INPUT", "OUT", str(lid.resolve()), str(CORES))
        found.append(Contender("peer", command))
    base = (sys.executable, "-m", "jobs.cli", "curate", "INPUT", "--out", "OUT", "--master", f"local[{CORES}]")
    for engine in engines:
        ours = (*base, "--recipe", "fineweb", *settings(f"extract.engine={engine}", *AS_PEER))
        found.append(Contender(engine, (*ours, *settings(*NO_DEDUP)), BARS[engine]))
        found.append(Contender(f"{engine}, dedup on", ours, once=True))
    return found


def settings(*items: str) -> tuple[str, ...]:
    return tuple(word for item in items for word in ("--set", item))


def race(
    contenders: list[Contender], sizes: tuple[Size, Size], work: Path, rounds: int
) -> dict[str, list[tuple[float, float]]]:
    """Wall seconds at both sizes, by contender and round; the order turns round from one round to the next."""
    walls: dict[str, list[tuple[float, float]]] = {c.name: [] for c in contenders}
    for number in range(rounds):
        for contender in contenders if number % 2 == 0 else reversed(contenders):
            if contender.once and number:
                continue
            small, large = (timed(contender, size, work) for size in sizes)
            walls[contender.name].append((small, large))
            print(f"round {number + 1}  {contender.name:24} {small:7.1f} s  {large:7.1f} s", flush=True)
    return walls


def timed(contender: Contender, size: Size, work: Path) -> float:
    """Wall seconds of one run into an empty folder; SystemExit with its last lines where it failed or skipped pages."""
    out, log = work / "out", work / "log.txt"
    shutil.rmtree(out, ignore_errors=True)
    line = [{"INPUT": str(size.folder), "OUT": str(out)}.get(word, word) for word in contender.command]
    begin = time.perf_counter()
    with log.open("wb") as sink:
        status = subprocess.run(line, cwd=PROJECT, stdout=sink, stderr=subprocess.STDOUT).returncode
    wall = time.perf_counter() - begin
    if status != 0:
        raise SystemExit(f"{' '.join(line)}\nended with {status}:\n{log.read_text('utf-8', 'replace')[-2000:]}")
    if contender.name == "peer":
        check_peer(out)
    else:
        records = json.loads((out / "run.json").read_text())["counts"]["records"]
        if records != size.documents:
            raise SystemExit(f"{contender.name}: {records} records accounted for, {size.documents} in the input")
    return wall


def check_peer(out: Path) -> None:
    """A peer whose extractor cannot be imported drops every page and is fast."""
    steps = json.loads((out / "logs" / "stats.json").read_text())
    stats = next(step["stats"] for step in steps if "Trafilatura" in step["name"])
    if stats.get("extracted", 0) < 0.8 * stats["total"]:
        raise SystemExit(
            f"the peer got a text from {stats.get('extracted', 0)} of {stats['total']} pages: is it set up?"
        )


def show(contenders: list[Contender], walls: dict[str, list[tuple[float, float]]], sizes: tuple[Size, Size]) -> None:
    documents = sizes[1].documents - sizes[0].documents
    rates = {name: [documents / (large - small) / CORES for small, large in pairs] for name, pairs in walls.items()}
    rounds = len(walls[contenders[0].name])
    print(f"\n{sizes[0].documents} and {sizes[1].documents} documents, {CORES} cores, {rounds} rounds; medians")
    print(f"{'':24}{'docs/s/core':>12}{'of the rounds':>26}{'wall':>18}{'x peer':>8}{'bar':>6}")
    for contender in contenders:
        values = rates[contender.name]
        small, large = (statistics.median(pair[i] for pair in walls[contender.name]) for i in (0, 1))
        ratio = ""
        if "peer" in rates and contender.name != "peer":
            ratio = f"{statistics.median(a / b for a, b in zip(values, rates['peer'], strict=False)):.2f}"
        print(
            f"{contender.name:24}{statistics.median(values):12.1f}{' '.join(f'{v:.1f}' for v in values):>26}"
            f"{small:8.1f}{large:8.1f} s{ratio:>8}{contender.bar or '':>6}"
        )


def write_copies(pages: Path, folder: Path, copies: int, limit: int | None) -> Size:
    """The pages' response records dealt out to FILES_PER_COPY files per copy; copies differ in their addresses."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    documents = 0
    for copy in range(copies):
        sinks = [(folder / f"copy{copy}-{i:02}.warc.gz").open("wb") for i in range(FILES_PER_COPY)]
        for i, record in enumerate(responses(pages, copy, limit)):
            sinks[i % FILES_PER_COPY].write(gzip.compress(record, 6, mtime=0))
            documents += 1
        for sink in sinks:
            sink.close()
    if not documents:
        raise SystemExit(f"{pages}: no .warc.gz file with response records")
    return Size(folder, documents)


def responses(pages: Path, copy: int, limit: int | None) -> Iterator[bytes]:
    """Whole uncompressed WARC records."""
    from fastwarc.warc import ArchiveIterator, WarcRecordType

    seen = 0
    for path in sorted(pages.glob("*.warc.gz")):
        with path.open("rb") as stream:
            records = ArchiveIterator(stream, record_types=WarcRecordType.response, parse_http=False)
            while seen != limit:
                try:
                    record = next(records, None)
                    if record is None:
                        break
                    block = record.reader.read()
                except OSError as error:  # the made-up segment is damaged on purpose
                    print(f"{path.name}: the rest is left out ({error})")
                    break
                seen += 1
                headers = {str(name): str(value) for name, value in record.headers.items()}
                uri = headers.get("WARC-Target-URI", "")
                if copy:
                    headers["WARC-Target-URI"] = f"{uri}{'&' if '?' in uri else '?'}copy={copy}"
                headers["Content-Length"] = str(len(block))
                head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
                yield b"WARC/1.0\r\n" + head.encode("utf-8", "surrogateescape") + b"\r\n" + block + b"\r\n\r\n"


if __name__ == "__main__":
    sys.exit(main())
