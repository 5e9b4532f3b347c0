"""A stage's output over the sample crawl, as a hash: it must not change while the stage's VERSION stays.

After a wanted change: bump the stage in pipeline/run/keys.py and write the printed hash into golden.json. A library
that changes a stage's output needs no bump, since its version is part of the key: only the hash is written anew.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
import xxhash

from pipeline.datasets import DUPLICATES, RECORDS, SHINGLES
from pipeline.decontaminate import build, overlaps
from pipeline.run.keys import VERSIONS
from pipeline.signals import SIGNALS
from tests.decontaminate import made
from tests.run import runs

GOLDEN = Path(__file__).with_name("golden.json")
MEASURED = ["lang", "lang_score", "edited", *(s.name for s in SIGNALS if s.basis != "page"), "exact_hash", "signature"]


def outputs(run: Path) -> dict[str, str]:
    extracted = [name for name in RECORDS.names if name not in MEASURED]
    rows = {
        "shingles": sorted(map(repr, runs.rows(run, "shingles", SHINGLES.names)))
        if (run / "shingles").exists()
        else [],
        "extract": sorted(map(repr, runs.rows(run, "records", extracted))),
        "measure": sorted(map(repr, runs.rows(run, "records", ["record_id", *MEASURED]))),
        "judge": list(map(repr, runs.verdict_rows(run))),
        "decontaminate": overlapping(run),
        "dedup": sorted(map(repr, runs.rows(run, "duplicates", DUPLICATES.names))),
        "publish": list(map(repr, runs.shard_hashes(run))),
    }
    return {stage: xxhash.xxh3_64_hexdigest("\n".join(lines).encode()) for stage, lines in rows.items()}


def overlapping(run: Path) -> list[str]:
    """No preset names a benchmark: here the sample's own words are one, every seventh text giving an entry."""
    rows = sorted(runs.rows(run, "records", ["record_id", "text", "edited"]), key=lambda row: row["record_id"])
    texts = {row["record_id"]: row["edited"] or row["text"] for row in rows if row["text"]}
    with tempfile.TemporaryDirectory() as folder:
        entries = [{"text": text[100:400]} for text in list(texts.values())[::7]]
        index = build(made.settings(made.write(Path(folder) / "own.jsonl", entries), fields=["text"]))
    return [repr((record_id, *overlaps(text, index))) for record_id, text in texts.items()]


@pytest.mark.parametrize("stage", sorted(VERSIONS.keys() - {"lines"}))  # off in fineweb: see test_lines.py
def test_output_changes_only_with_the_version(stage: str, copy: Path, crawl: Path) -> None:
    golden = json.loads(GOLDEN.read_text())
    if stage == "shingles":  # off in every preset
        assert runs.curate([crawl], copy, "--set", "dedup.keep_shingles=true", recipe="fineweb") == 0
    now = {"version": VERSIONS[stage], "hash": outputs(copy)[stage]}
    assert golden[stage] == now, f"{stage}: {golden[stage]} became {now}; see this file's first lines"
