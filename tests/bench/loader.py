"""The loader against what it may cost at least, and against its peers: same documents, same tokenizer, one run.

    python -m tests.bench.loader --run RUN --tokenizer FILE --hf PYTHON --litdata PYTHON

Documents are those of RUN (a curated run), taken round until there are `--documents`; without RUN, made-up ones. Each
line is a process of its own: tokens/s by the wall clock, peak memory. `floor` is the least that text mode costs: read,
encode, ids to NumPy, on threads of the same kind. The peers run in venvs of their own (`--hf`, `--litdata`: their
Pythons): HF datasets streaming in its list form and with NumPy in a batched map; litdata's TokensLoader on tokens that
it converted before (that time stands apart), which yields bare blocks of ids: no document ids, positions, masks, nor
whole documents.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.memory import peak_kib

SEQ_LEN = 2048
GROUP_BYTES = 8 << 20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--documents", type=int, default=20_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--hf", metavar="PYTHON")
    parser.add_argument("--litdata", metavar="PYTHON")
    parser.add_argument("--only", help="comma-separated names of lines")
    parser.add_argument("--toy", action="store_true")
    parser.add_argument("--line", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help="keeps what is prepared there for the next call")
    args = parser.parse_args()
    if args.line:
        begin = LINES[args.line](args.folder, args.threads)
        peak = peak_kib() >> 10
        print(json.dumps(begin | {"peak_mib": peak}))
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.folder or Path(scratch)
        if not (folder / "size.json").exists():
            prepare(folder, args)
        table(folder, args)
    return 0


# -- the documents


def prepare(folder: Path, args: argparse.Namespace) -> None:
    """Writes RUN's documents as text and as stored tokens, 1,000 small shards, and documents of 1,100 to 2,000 ids."""
    from tokenizers import Tokenizer

    from tests.trainer.stream import made

    count = 300 if args.toy else args.documents
    texts = read_texts(args.run) if args.run else made_up(min(count, 500))
    texts = [texts[i % len(texts)] for i in range(count)]
    tokenizer = Tokenizer.from_file(str(args.tokenizer)) if args.tokenizer else trained(texts[:500])
    tokenizer.save(str(folder / "tokenizer.json"))
    ids = [e.ids for e in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
    made.run(folder / "text", cut(texts, lambda text: len(text.encode())))
    made.run(folder / "stored", cut(ids, lambda row: 4 * len(row)), tokens=True)
    rng = random.Random(1)
    middle = [[7] * rng.randint(1100, 2000) for _ in range(count)]
    made.run(folder / "middle", cut(middle, lambda row: 4 * len(row)), tokens=True)
    shards = 20 if args.toy else 1000
    made.run(folder / "shards", [[[texts[(7 * s + i) % count] for i in range(16)]] for s in range(shards)])
    (folder / "size.json").write_text(json.dumps({"tokens": sum(map(len, ids)) + len(ids), "documents": count}))


def read_texts(run: Path) -> list[str]:
    files = sorted((run / "shards").glob("*.parquet"))
    return [text for file in files for text in pq.read_table(file, columns=["text"])["text"].to_pylist()]


def made_up(count: int) -> list[str]:
    rng = random.Random(0)
    words = ["".join(rng.choices("etaoinshrdlu", k=rng.randint(1, 9))) for _ in range(3000)]
    return [" ".join(rng.choices(words, k=int(rng.lognormvariate(5.8, 1.1)) + 1)) for _ in range(count)]


def trained(texts: list[str]) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=8000, special_tokens=["<|endoftext|>"], show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def cut(rows: list[Any], size: Callable[[Any], int]) -> list[list[list[Any]]]:
    """Row groups of GROUP_BYTES, eight to a file."""
    groups: list[list[Any]] = [[]]
    held = 0
    for row in rows:
        if groups[-1] and held + size(row) > GROUP_BYTES:
            groups.append([])
            held = 0
        groups[-1].append(row)
        held += size(row)
    return [groups[i : i + 8] for i in range(0, len(groups), 8)]


# -- the lines: each in a process of its own


def config(run: Path, **settings: Any) -> Any:
    from trainer.stream import Source, StreamConfig

    return StreamConfig((Source(str(run)),), **{"seq_len": SEQ_LEN, "batch_size": 8, "epochs": 1, **settings})


def drain(settings: Any) -> dict[str, Any]:
    from trainer.stream import Loader

    begin, cpu = time.perf_counter(), time.process_time()
    loader = Loader(settings)
    first = 0.0
    for _ in loader:
        first = first or time.perf_counter() - begin
    use = loader.utilisation
    seconds = time.perf_counter() - begin
    return {
        "tokens_s": (use.tokens + use.documents) / seconds,
        "tokens_s_core": (use.tokens + use.documents) / (time.process_time() - cpu),
        "first_s": first,
        "filled": use.filled,
        "tail": use.tail / use.positions,
    }


def ours_text(folder: Path, threads: int) -> dict[str, Any]:
    return drain(config(folder / "text", tokenizer=str(folder / "tokenizer.json"), threads=threads))


def ours_stored(folder: Path, threads: int) -> dict[str, Any]:
    return drain(config(folder / "stored", tokenizer="stored", threads=0))


def ours_stored_concat(folder: Path, threads: int) -> dict[str, Any]:
    return drain(config(folder / "stored", tokenizer="stored", threads=0, mode="concat"))


def ours_middle(folder: Path, threads: int) -> dict[str, Any]:
    return drain(config(folder / "middle", tokenizer="stored", threads=0))


def ours_first_batch(folder: Path, threads: int) -> dict[str, Any]:
    from trainer.stream import Loader

    begin = time.perf_counter()
    steps = iter(Loader(config(folder / "shards", tokenizer=str(folder / "tokenizer.json"), threads=threads, lanes=8)))
    next(steps)
    return {"first_s": time.perf_counter() - begin}


def ours_three_epochs(folder: Path, threads: int) -> dict[str, Any]:
    import psutil

    from trainer.stream import Loader

    settings = config(folder / "text", threads=threads, epochs=3)
    loader = Loader(settings)
    sizes: dict[int, int] = {}
    for batch in loader:
        epoch = min(cursors[0][0] for cursors in batch.state["lanes"].values())
        sizes[epoch] = max(sizes.get(epoch, 0), psutil.Process().memory_info().rss)
    return {"mib_by_epoch": [round(size / 2**20) for _, size in sorted(sizes.items())][:3]}


def floor(folder: Path, threads: int) -> dict[str, Any]:
    from collections import deque
    from concurrent.futures import Future, ThreadPoolExecutor

    import numpy as np
    from tokenizers import Tokenizer

    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def one(texts: list[str]) -> int:
        found = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return sum(len(np.array(e.ids, dtype=np.int32)) + 1 for e in found)

    begin = time.perf_counter()
    total = 0
    waiting: deque[Future[int]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        for texts in column(folder / "text"):
            for start in range(0, len(texts), 32):
                waiting.append(pool.submit(one, texts[start : start + 32]))
                if len(waiting) > 4 * threads:
                    total += waiting.popleft().result()
        total += sum(future.result() for future in waiting)
    return {"tokens_s": total / (time.perf_counter() - begin)}


def column(run: Path) -> Iterator[list[str]]:
    for file in sorted((run / "shards").glob("*.parquet")):
        parquet = pq.ParquetFile(file)
        for group in range(parquet.num_row_groups):
            yield parquet.read_row_group(group, columns=["text"])["text"].to_pylist()


#: Run by the peers' Pythons, which lack this project. `FOLDER`, `THREADS` are filled in.
HF = """
import glob, json, os, time
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_CACHE"] = FOLDER + "/hf"
import numpy as np
from datasets import load_dataset
from tokenizers import Tokenizer
tokenizer = Tokenizer.from_file(FOLDER + "/tokenizer.json")
files = sorted(glob.glob(FOLDER + "/text/shards/*.parquet"))
begin = time.perf_counter()
data = load_dataset("parquet", data_files=files, split="train", streaming=True, columns=["text"])
def lists(batch):
    found = tokenizer.encode_batch_fast(batch["text"], add_special_tokens=False)
    return {"ids": [e.ids for e in found]}
def arrays(batch):
    found = tokenizer.encode_batch_fast(batch["text"], add_special_tokens=False)
    return {"ids": [np.array(e.ids, dtype=np.int32) for e in found]}
data = data.map(FORM, batched=True, batch_size=1000, remove_columns=["text"])
if FORM is arrays:
    data = data.with_format("numpy")
total, row = 0, []
for document in data:
    total += len(document["ids"]) + 1
seconds = time.perf_counter() - begin
peak = int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) >> 10
print(json.dumps({"tokens_s": total / seconds, "peak_mib": peak}))
"""
LITDATA = """
import glob, json, os, time
import pyarrow.parquet as pq
import torch
from litdata import StreamingDataset, TokensLoader, optimize
def ids(file):
    for row in pq.read_table(file, columns=["tokens"])["tokens"]:
        yield torch.tensor(row.as_py() + [0], dtype=torch.int32)
if __name__ == "__main__":
    begin = time.perf_counter()
    files = sorted(glob.glob(FOLDER + "/stored/shards/*.parquet"))
    optimize(fn=ids, inputs=files, output_dir=FOLDER + "/lit", chunk_bytes="64MB", num_workers=1,
             item_loader=TokensLoader(2049))
    converted = time.perf_counter() - begin
    begin = time.perf_counter()
    cpu = time.process_time()
    total = sum(len(block) for block in StreamingDataset(FOLDER + "/lit", item_loader=TokensLoader(2049)))
    seconds = time.perf_counter() - begin
    peak = int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) >> 10
    print(json.dumps({"tokens_s": total / seconds, "tokens_s_core": total / (time.process_time() - cpu),
                      "converted_s": converted, "peak_mib": peak}))
"""
LINES: dict[str, Callable[[Path, int], dict[str, Any]]] = {
    "floor": floor,
    "text": ours_text,
    "stored": ours_stored,
    "stored_concat": ours_stored_concat,
    "middle": ours_middle,
    "first_batch": ours_first_batch,
    "three_epochs": ours_three_epochs,
}


def table(folder: Path, args: argparse.Namespace) -> None:
    print(json.dumps({"threads": args.threads, **json.loads((folder / "size.json").read_text())}))
    names = args.only.split(",") if args.only else [*LINES, "hf_lists", "hf_arrays", "litdata"]
    for name in names * (1 if args.toy else args.rounds):  # turn and turn about: the machine's load is everyone's
        command, environment = own(name, folder, args) if name in LINES else peer(name, folder, args)
        if command is None:
            continue
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode and name not in LINES:
            print(f"{name:14} failed: {done.stderr.strip().splitlines()[-1]}", flush=True)
            continue
        if done.returncode:
            raise SystemExit(f"{name}: {done.stderr[-2000:]}")
        found = json.loads(done.stdout.splitlines()[-1])
        print(f"{name:14}", "  ".join(f"{key} {figure(value)}" for key, value in found.items()), flush=True)


def figure(value: Any) -> str:
    return str(value) if isinstance(value, list) else f"{value:,.0f}" if value >= 100 else f"{value:.4g}"


def own(name: str, folder: Path, args: argparse.Namespace) -> tuple[list[str], dict[str, str]]:
    command = [sys.executable, "-m", "tests.bench.loader", "--line", name, "--folder", str(folder)]
    return [*command, "--threads", str(args.threads)], dict(os.environ)


def peer(name: str, folder: Path, args: argparse.Namespace) -> tuple[list[str] | None, dict[str, str]]:
    python = args.litdata if name == "litdata" else args.hf
    if not python:
        return None, {}
    code = LITDATA if name == "litdata" else HF.replace("FORM", name.removeprefix("hf_"))
    script = folder / f"peer_{name}.py"
    script.write_text(code.replace("FOLDER", repr(str(folder))).replace("THREADS", str(args.threads)))
    threads = {"RAYON_NUM_THREADS": str(args.threads), "TOKENIZERS_PARALLELISM": "true"}
    return [python, str(script)], dict(os.environ) | threads


if __name__ == "__main__":
    sys.exit(main())
