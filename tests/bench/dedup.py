"""Near-duplicate removal beside datatrove's four MinHash stages and text-dedup's, on the same texts in one run.

    python -m tests.bench.dedup --peer-python PEER/bin/python --text-dedup-python TD/bin/python
    python -m tests.bench.dedup --toy
    python -m tests.bench.dedup --guides      # exact recall and precision on the guide pages of ../shared/data

All read one folder of Parquet files (id, text), write the kept documents as Parquet and work on two cores; the time is
of the whole process, start-up included. Ours: shingles and signatures from the texts as curation takes them, then
`find_duplicates` on local[2], then the kept texts. Equal banding (14 x 8), word 5-grams; what peers remove is a band
match, what we remove is confirmed by exact Jaccard at 0.8. The texts are words of small letters, so that all three mean
the same shingles.

Pairs are planted at known Jaccard similarity; recall of a level is the share of pairs of which one side was removed.
Bars: three times the faster peer's documents/s at equal recall; signatures at 25 MB/s/core of text.

Peers' environments: the one of ../shared/tools/peer_datatrove.py; Python 3.12 with text-dedup 0.4.1 (`--no-deps`) and
what its MinHash imports.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import xxhash

from pipeline.dedup.signature import signature
from pipeline.recipe import Dedup
from pipeline.shingles import shingle
from tests.bench.dedup_corpus import random_words

PROJECT = Path(__file__).resolve().parents[2]
GUIDES = PROJECT.parent / "shared" / "data" / "neardup"
PEERS = Path(__file__).with_name("peer_minhash.py")
CORES = 2
FILES = 8
LEVELS = (0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0)
FASTER_BAR, SIGNATURE_BAR = 3.0, 25.0
SAME_RECALL = 0.01  #: from 0.85 up; at 0.80 itself half of a peer's pairs are below the threshold


@dataclass(frozen=True)
class Corpus:
    folder: Path
    documents: int
    text_bytes: int
    pairs: dict[float, list[tuple[str, str]]]


@dataclass(frozen=True)
class Outcome:
    seconds: float
    stages: dict[str, float]
    removed: frozenset[str]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", type=Path, help="python of datatrove's environment")
    parser.add_argument("--text-dedup-python", type=Path, help="python of text-dedup's environment")
    parser.add_argument("--documents", type=int, default=40_000, help="planted pairs included (40,000)")
    parser.add_argument("--pairs", type=int, default=500, help="per level (500)")
    parser.add_argument("--words", type=int, default=500, help="of a document, on average (500)")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--work", type=Path, help="scratch folder, kept (default: a temporary one)")
    parser.add_argument("--guides", action="store_true", help="instead: recall and precision on the guide pages")
    parser.add_argument("--language", default="en", help="of the guide pages that are compared by brute force (en)")
    parser.add_argument("--toy", action="store_true", help="ours only, 400 documents")
    parser.add_argument("--ours", nargs=2, metavar=("FOLDER", "OUT"), help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    settings = Dedup()
    if args.ours:
        ours(Path(args.ours[0]), Path(args.ours[1]), settings)
        return 0
    with tempfile.TemporaryDirectory(prefix="gristmill-bench-") as scratch:
        work = args.work or Path(scratch)
        work.mkdir(parents=True, exist_ok=True)
        if args.guides:
            from tests.bench.dedup_guides import guides

            return guides(GUIDES, work, args.language)
        if args.toy:
            args.documents, args.pairs, args.words = 400, 20, 200
        return compare(args, work, settings)


def compare(args: argparse.Namespace, work: Path, settings: Dedup) -> int:
    corpus = write_corpus(work / "texts", args.documents, args.pairs, args.words, settings)
    print(f"{corpus.documents:,} documents, {corpus.text_bytes / 1e6:,.0f} MB of text, {CORES} cores", flush=True)
    rate = signature_rate(corpus, settings)
    contenders = {"ours": [sys.executable, "-m", "tests.bench.dedup", "--ours", "FOLDER", "OUT"]}
    banding = [str(CORES), str(settings.bands), str(settings.rows)]
    for name, python in (("datatrove", args.peer_python), ("text-dedup", args.text_dedup_python)):
        if python and not args.toy:
            contenders[name] = [str(python.absolute()), str(PEERS), name, "FOLDER", "OUT", *banding]
    found: dict[str, list[Outcome]] = {name: [] for name in contenders}
    for number in range(args.rounds):
        for name, command in contenders.items() if number % 2 == 0 else reversed(list(contenders.items())):
            found[name].append(run(command, corpus.folder, work / f"out-{name}-{number}"))
            told = ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in found[name][-1].stages.items())
            print(f"{name:11} {found[name][-1].seconds:7.1f} s  ({told})", flush=True)
    return show(corpus, found, rate, settings, toy=args.toy)


def write_corpus(folder: Path, documents: int, pairs: int, words: int, settings: Dedup) -> Corpus:
    """Pairs of each level first, then strangers, dealt out to FILES files in an order drawn at random."""
    generator = np.random.default_rng(4)
    texts: list[str] = []
    planted: dict[float, list[tuple[int, int]]] = {level: [] for level in LEVELS}
    for level in LEVELS:
        for _ in range(pairs):
            n = max(60, int(generator.normal(words, words / 4)))
            base = random_words(generator, n + 4)  # n shingles
            same = round(n * 2 * level / (1 + level) + 0.499)
            texts += [" ".join(base), " ".join([*base[: same + 4], *random_words(generator, n - same)])]
            planted[level].append((len(texts) - 2, len(texts) - 1))
    while len(texts) < documents:
        texts.append(" ".join(random_words(generator, max(60, int(generator.lognormal(np.log(words), 0.6))))))
    ids = [xxhash.xxh3_128_hexdigest(f"document {i}".encode()) for i in range(len(texts))]
    order = generator.permutation(len(texts))
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(FILES):
        rows = order[i::FILES].tolist()
        table = pa.table({"id": [ids[row] for row in rows], "text": [texts[row] for row in rows]})
        pq.write_table(table, folder / f"texts-{i}.parquet", row_group_size=2000)
    named = {level: [(ids[a], ids[b]) for a, b in some] for level, some in planted.items()}
    return Corpus(folder, len(texts), sum(map(len, texts)), named)


def signature_rate(corpus: Corpus, settings: Dedup) -> float:
    """MB of text per second and core: shingles, exact hash and signature, as extraction asks for them."""
    texts = ds.dataset(str(corpus.folder)).head(2000, columns=["text"])["text"].to_pylist()
    best = float("inf")
    for _ in range(4):  # the first compiles
        begin = time.process_time()
        for text in texts:
            signature(shingle(text, settings).hashes, settings)
        best = min(best, time.process_time() - begin)
    return sum(len(text.encode()) for text in texts) / best / 1e6


def run(command: list[str], folder: Path, out: Path) -> Outcome:
    log = out.with_suffix(".log")
    line = [{"FOLDER": str(folder), "OUT": str(out)}.get(word, word) for word in command]
    begin = time.monotonic()
    with log.open("wb") as sink:
        status = subprocess.run(line, cwd=PROJECT, stdout=sink, stderr=subprocess.STDOUT, env=os.environ).returncode
    seconds = time.monotonic() - begin
    if status:
        raise SystemExit(f"{' '.join(line)}\nended with {status}:\n{log.read_text('utf-8', 'replace')[-2000:]}")
    stages = json.loads((out / "stages.json").read_text())
    return Outcome(seconds, stages, frozenset((out / "removed.txt").read_text().split()))


def show(corpus: Corpus, found: dict[str, list[Outcome]], rate: float, settings: Dedup, *, toy: bool) -> int:
    print(f"\n{'Jaccard':9}{'curve':>8}" + "".join(f"{name:>13}" for name in found))
    recall: dict[str, dict[float, float]] = {name: {} for name in found}
    for level, pairs in corpus.pairs.items():
        for name, outcomes in found.items():
            gone = outcomes[0].removed
            recall[name][level] = sum(a in gone or b in gone for a, b in pairs) / len(pairs)
        curve = 1 - (1 - level**settings.rows) ** settings.bands
        print(f"{level:<9.2f}{curve:8.3f}" + "".join(f"{recall[name][level]:13.3f}" for name in found))
    planted = {i for pairs in corpus.pairs.values() for pair in pairs for i in pair}
    strangers = {name: len(outcomes[0].removed - planted) for name, outcomes in found.items()}
    print(f"{'strangers removed':17}" + "".join(f"{strangers[name]:13}" for name in found))
    fastest = {name: min(outcome.seconds for outcome in outcomes) for name, outcomes in found.items()}
    rates = {name: corpus.documents / seconds / CORES for name, seconds in fastest.items()}
    print(f"{'documents/s/core':17}" + "".join(f"{rates[name]:13.0f}" for name in found))
    good = rate >= SIGNATURE_BAR or toy
    print(f"signatures: {rate:.1f} MB/s/core of text (bar {SIGNATURE_BAR:g})")
    peers = [name for name in found if name != "ours"]
    if peers:
        times = rates["ours"] / max(rates[name] for name in peers)
        print(f"{times:.2f} times the faster peer (bar {FASTER_BAR:g})")
        lowest = min(recall["ours"][j] - recall[name][j] for name in peers for j in LEVELS if j >= 0.85)
        print(f"recall from 0.85 up: at worst {lowest:+.3f} of a peer's")
        good &= times >= FASTER_BAR and lowest >= -SAME_RECALL
    good &= not strangers["ours"]
    print("within the bars" if good else "NOT within the bars")
    return 0 if good else 1


# ------------------------------------------------------------------------------------------------------------- ours


def ours(folder: Path, out: Path, settings: Dedup) -> None:
    """Texts in, kept texts out: signatures from the texts, find_duplicates, one file of kept texts per input file."""
    from pipeline.dedup import find_duplicates
    from pipeline.run.documents import DOCUMENT
    from pipeline.spark import map_in_arrow, session

    taken: dict[str, float] = {}
    mark = time.monotonic()

    def lap(name: str) -> None:
        nonlocal mark
        now = time.monotonic()
        taken[name], mark = now - mark, now

    spark = session(f"local[{CORES}]", app="gristmill-bench")
    lap("session")
    (out / "kept").mkdir(parents=True, exist_ok=True)
    files = [str(path) for path in sorted(folder.glob("*.parquet"))]
    tasks = spark.createDataFrame([(path,) for path in files], "part string").repartition(len(files))

    def measure(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for path in (path for batch in batches for path in batch.column("part").to_pylist()):
            row = 0
            for batch in pq.ParquetFile(path).iter_batches(1000):
                yield pa.RecordBatch.from_pylist(_documents(batch, path, row, settings), schema=DOCUMENT)
                row += batch.num_rows

    def texts(part: str, rows: list[int]) -> Iterator[str]:
        file = pq.ParquetFile(part)
        base, at = 0, 0
        for group in range(file.num_row_groups):
            n = file.metadata.row_group(group).num_rows
            here = [row - base for row in rows[at:] if row < base + n]
            if here:
                yield from file.read_row_group(group, ["text"])["text"].take(here).to_pylist()
            base, at = base + n, at + len(here)

    found = find_duplicates(map_in_arrow(tasks, measure, DOCUMENT), settings, texts)
    lap("signatures and duplicates")
    removed = [row[0] for row in found.duplicates.select("record_id").collect()]
    gone = spark.sparkContext.broadcast(frozenset(removed))

    def keep(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for path in (path for batch in batches for path in batch.column("part").to_pylist()):
            with pq.ParquetWriter(out / "kept" / Path(path).name, pq.read_schema(path)) as writer:
                for batch in pq.ParquetFile(path).iter_batches(1000):
                    writer.write(batch.filter(pa.array([i not in gone.value for i in batch.column("id").to_pylist()])))
        yield from ()

    map_in_arrow(tasks, keep, pa.schema([("part", pa.string())])).count()
    lap("kept texts")
    spark.stop()
    (out / "stages.json").write_text(json.dumps(taken))
    (out / "removed.txt").write_text("\n".join(sorted(removed)))


def _documents(batch: pa.RecordBatch, part: str, first: int, settings: Dedup) -> list[dict[str, Any]]:
    rows = []
    for i, (name, text) in enumerate(
        zip(batch.column("id").to_pylist(), batch.column("text").to_pylist(), strict=True)
    ):
        one = shingle(text, settings)
        row = {"record_id": name, "lang": "en", "exact_hash": one.exact_hash, "n_words": one.n_units, "part": part}
        rows.append({**row, "signature": signature(one.hashes, settings), "n_chars": len(text), "row": first + i})
    return rows


if __name__ == "__main__":
    sys.exit(main())
