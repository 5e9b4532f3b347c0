"""Speed and size of decontamination: texts against an index of made-up entries.

    python -m tests.bench.decontaminate [--entries 8800] [--words 100] [--texts 2000] [--length 1000]

Prints the CPU time to make the index, its size on disk, what the driver's process needed for it, and the CPU time per
text of such a length, warm, median of five rounds: for texts without any match, as nearly all of a crawl are, and for
texts that hold an entry.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import tempfile
import time
from pathlib import Path

from pipeline.decontaminate import Index, build, ngrams, open_index, overlaps, save
from pipeline.recipe import Benchmark, Decontaminate

ROUNDS = 5


def made_up(dice: random.Random, words: list[str], n: int) -> str:
    return " ".join(dice.choices(words, k=n)) + "."


def per_text(texts: list[str], index: Index) -> tuple[float, int]:
    """(median seconds per text, texts with a match)."""
    seconds = []
    found = 0
    for _ in range(ROUNDS):
        begin = time.process_time()
        found = sum(bool(overlaps(text, index)) for text in texts)
        seconds.append((time.process_time() - begin) / len(texts))
    return statistics.median(seconds), found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=8_800)
    parser.add_argument("--words", type=int, default=100, help="of an entry")
    parser.add_argument("--texts", type=int, default=2_000)
    parser.add_argument("--length", type=int, default=1_000, help="words of a text")
    parser.add_argument("--toy", action="store_true", help="a few of each, to see that it runs")
    args = parser.parse_args()
    if args.toy:
        args.entries, args.texts = 50, 20
    dice = random.Random(1)
    vocabulary = ["".join(dice.choices("abcdefghijklmnopqrstuvwxyz", k=dice.randint(2, 9))) for _ in range(20_000)]
    entries = [made_up(dice, vocabulary, args.words) for _ in range(args.entries)]
    clean = [made_up(dice, vocabulary, args.length) for _ in range(args.texts)]
    dirty = [f"{text} {dice.choice(entries)} {text}" for text in clean[: args.texts // 10]]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "made.jsonl"
        path.write_text("".join(json.dumps({"question": entry}) + "\n" for entry in entries))
        settings = Decontaminate(benchmarks={"made": Benchmark(path=(str(path),), fields=("question",))})
        ngrams.ngram_hashes(ngrams.split("compiles what is not compiled yet").hashes, 2)
        begin = time.process_time()
        made = build(settings)
        seconds = time.process_time() - begin
        save(made, Path(folder) / "index")
        size = (Path(folder) / "index").stat().st_size
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        index = open_index(Path(folder) / "index")
        overlaps(dirty[0], index)
        print(f"index: {args.entries:,} entries, {len(index.keys):,} n-grams, {seconds:.1f} s, {size / 1e6:,.0f} MB")
        print(f"peak of this process: {peak:,.0f} MiB")
        for what, texts in (("clean", clean), ("with an entry", dirty)):
            each, found = per_text(texts, index)
            characters = sum(map(len, texts)) / len(texts)
            print(
                f"{what}: {1000 * each:.3f} ms a text of {characters:,.0f} characters, {found} of {len(texts)} match, "
                f"{characters / each / 1e6:,.0f} million characters/s"
            )


if __name__ == "__main__":
    main()
