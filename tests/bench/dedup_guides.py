"""Near-duplicate removal on real pages: the public scorer, then all pairs of one language by brute force.

Called by dedup.py --guides. Curates the guide pages (recipe minimal, one process of its own), runs
../shared/tools/score_dedup.py on the outcome, and compares every two documents of one language that reached dedup.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.dataset as ds

from pipeline.compiled import njit
from pipeline.dedup.verify import jaccard
from pipeline.recipe import Dedup
from pipeline.shingles import Hashes, shingle

PROJECT = Path(__file__).resolve().parents[2]
SCORER = PROJECT.parent / "shared" / "tools" / "score_dedup.py"
MOST_PAIRS = 10_000_000


def guides(pages: Path, work: Path, language: str) -> int:
    """Exit status: the scorer's, or 1 where a removal is not confirmed by brute force."""
    run = work / "guides"
    shutil.rmtree(run, ignore_errors=True)
    curate = [sys.executable, "-m", "jobs.cli", "curate", str(pages), "--out", str(run), "--recipe", "minimal"]
    subprocess.run([*curate, "--master", "local[2]"], cwd=PROJECT, check=True, stdout=subprocess.DEVNULL)
    scored = subprocess.run([sys.executable, str(SCORER), str(run), str(pages / "gold_pairs.tsv")], check=False)
    return max(scored.returncode, brute_force(run, language, Dedup()))


def brute_force(run: Path, language: str, settings: Dedup) -> int:
    def read(name: str, columns: list[str]) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = (
            ds.dataset(str(run / name), exclude_invalid_files=True).to_table(columns).to_pylist()
        )
        return rows

    verdicts = {row["record_id"]: row for row in read("verdicts", ["record_id", "kept", "stage"])}
    kept_id = {row["record_id"]: row["kept_id"] for row in read("duplicates", ["record_id", "kept_id"])}
    ids: list[str] = []
    hashes: list[Hashes] = []
    for row in read("records", ["record_id", "text", "edited", "lang"]):
        verdict = verdicts[row["record_id"]]
        if row["lang"] == language and (verdict["kept"] or verdict["stage"] == "dedup"):
            ids.append(row["record_id"])
            hashes.append(shingle(row["edited"] or row["text"] or "", settings).hashes)
    order = sorted(range(len(ids)), key=lambda i: len(hashes[i]))
    ids, hashes = [ids[i] for i in order], [hashes[i] for i in order]
    ends = np.cumsum([len(one) for one in hashes], dtype=np.int64)
    a, b = np.empty(MOST_PAIRS, np.int64), np.empty(MOST_PAIRS, np.int64)
    found = similar(np.concatenate(hashes), ends, settings.threshold, a, b)
    assert found <= MOST_PAIRS
    pairs = [(ids[i], ids[j]) for i, j in zip(a[:found].tolist(), b[:found].tolist(), strict=True)]
    here = set(ids)
    alike = {i for pair in pairs for i in pair}
    removed = here & kept_id.keys()
    confirmed = {i for pair in pairs for i, other in (pair, pair[::-1]) if kept_id.get(i) == other}
    beyond = {i for i in removed if kept_id[i] not in here}  # for a document of another language
    met = sum(x in kept_id or y in kept_id for x, y in pairs)
    print(f"brute force, {language}: {len(ids):,} documents, {len(ids) * (len(ids) - 1) // 2:,} pairs")
    print(f"  pairs at {settings.threshold:g} and above: {len(pairs):,} among {len(alike):,} documents")
    print(f"  recall: one side removed of {met:,} = {met / max(1, len(pairs)):.4f}")
    right = len(confirmed) + len(beyond)
    print(
        f"  precision: removed {len(removed):,}, similar to the survivor that they name {len(confirmed):,}"
        f" (and {len(beyond):,} for one of another language) = {right / max(1, len(removed)):.4f}"
    )
    return int(right != len(removed))


@njit
def similar(
    numbers: Hashes,
    ends: npt.NDArray[np.int64],
    threshold: float,
    first: npt.NDArray[np.int64],
    second: npt.NDArray[np.int64],
) -> int:
    """Pairs at or above the threshold of sets sorted by size, into `first` and `second`; how many there are."""
    found = 0
    for i in range(len(ends)):
        a = numbers[ends[i - 1] if i else 0 : ends[i]]
        for j in range(i + 1, len(ends)):
            b = numbers[ends[j - 1] : ends[j]]
            if len(a) < threshold * len(b):
                break
            if jaccard(a, b) >= threshold:
                if found < len(first):
                    first[found] = i
                    second[found] = j
                found += 1
    return found
