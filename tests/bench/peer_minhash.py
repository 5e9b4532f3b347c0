"""Run by dedup.py in the peers' own environments: near-duplicates of a folder of Parquet files (id, text).

    peer_minhash.py datatrove FOLDER OUT WORKERS BANDS ROWS       # datatrove 0.10.1, its four MinHash stages
    peer_minhash.py text-dedup FOLDER OUT WORKERS BANDS ROWS      # text-dedup 0.4.1, its MinHash

Both write the kept documents under OUT; then `OUT/removed.txt` (ids) and `OUT/stages.json` (seconds by stage). What is
done for these two files alone is not timed.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.dataset as ds


def datatrove(folder: Path, out: Path, workers: int, bands: int, rows: int) -> dict[str, float]:
    """As examples/minhash_deduplication.py: 64-bit hashes of word 5-grams, English words."""
    from datatrove.executor.local import LocalPipelineExecutor
    from datatrove.pipeline.dedup import MinhashDedupSignature
    from datatrove.pipeline.dedup.minhash import (
        MinhashConfig,
        MinhashDedupBuckets,
        MinhashDedupCluster,
        MinhashDedupFilter,
    )
    from datatrove.pipeline.readers import ParquetReader
    from datatrove.pipeline.writers import ParquetWriter

    config = MinhashConfig(n_grams=5, num_buckets=bands, hashes_per_bucket=rows)
    files = len(list(folder.glob("*.parquet")))
    signatures, buckets, remove = (str(out / name) for name in ("signatures", "buckets", "remove"))

    def read() -> ParquetReader:
        return ParquetReader(str(folder), glob_pattern="*.parquet")

    steps = {
        "signatures": ([read(), MinhashDedupSignature(signatures, config)], files),
        "buckets": ([MinhashDedupBuckets(signatures, buckets, config=config)], bands),
        "cluster": ([MinhashDedupCluster(buckets, remove, config=config)], 1),
        "filter": ([read(), MinhashDedupFilter(remove), ParquetWriter(str(out / "kept"))], files),
    }
    taken = {}
    for name, (pipeline, tasks) in steps.items():
        begin = time.monotonic()
        LocalPipelineExecutor(pipeline, tasks=tasks, workers=workers, logging_dir=str(out / "logs" / name)).run()
        taken[name] = time.monotonic() - begin
    return taken


def text_dedup(folder: Path, out: Path, workers: int, bands: int, rows: int) -> dict[str, float]:
    """Its own stages in one, with its check of false positives by exact Jaccard at 0.8; kept as an Arrow dataset."""
    os.environ["HF_HOME"] = str(out / "cache")  # nothing of an earlier run
    from datasets import load_from_disk
    from text_dedup.config.base import load_config_from_toml
    from text_dedup.minhash import main as run

    config = out / "config.toml"
    files = sorted(map(str, folder.glob("*.parquet")))
    config.write_text(
        f"""
[input]
input_type = "local_files"
read_arguments = {{ path = "parquet", data_files = {json.dumps(files)}, split = "train" }}
[algorithm]
algorithm_name = "minhash"
text_column = "text"
num_perm = {bands * rows}
bands = {bands}
rows = {rows}
ngram_size = 5
threshold = 0.8
check_false_positive = true
num_proc = {workers}
[output]
output_dir = "{out / "arrow"}"
[debug]
"""
    )
    begin = time.monotonic()
    run(load_config_from_toml(config))
    taken = {"all": time.monotonic() - begin}
    (out / "kept").mkdir(exist_ok=True)
    load_from_disk(str(out / "arrow")).select_columns(["id"]).to_parquet(out / "kept" / "ids.parquet")
    return taken


PEERS: dict[str, Callable[[Path, Path, int, int, int], dict[str, float]]] = {
    "datatrove": datatrove,
    "text-dedup": text_dedup,
}


def main(peer: str, folder: str, out: str, workers: str, bands: str, rows: str) -> None:
    into = Path(out)
    into.mkdir(parents=True, exist_ok=True)
    taken = PEERS[peer](Path(folder), into, int(workers), int(bands), int(rows))
    (into / "stages.json").write_text(json.dumps(taken))
    every, kept = (
        ds.dataset(str(where), format="parquet").to_table(columns=["id"])["id"].to_pylist()
        for where in (folder, into / "kept")
    )
    (into / "removed.txt").write_text("\n".join(sorted(set(every) - set(kept))))


if __name__ == "__main__":
    main(*sys.argv[1:])
