"""A stage's output over the sample crawl, as a hash: it must not change while the stage's VERSION stays.

After a wanted change: bump the stage in pipeline/run/keys.py and write the printed hash into golden.json. A library
that changes a stage's output needs no bump, since its version is part of the key: only the hash is written anew.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import xxhash

from pipeline.datasets import DUPLICATES, RECORDS
from pipeline.run.keys import VERSIONS
from pipeline.signals import SIGNALS
from tests.run import runs

GOLDEN = Path(__file__).with_name("golden.json")
MEASURED = ["lang", "lang_score", "edited", *(s.name for s in SIGNALS if s.basis != "page"), "exact_hash", "signature"]


def outputs(run: Path) -> dict[str, str]:
    extracted = [name for name in RECORDS.names if name not in MEASURED]
    rows = {
        "extract": sorted(map(repr, runs.rows(run, "records", extracted))),
        "measure": sorted(map(repr, runs.rows(run, "records", ["record_id", *MEASURED]))),
        "judge": list(map(repr, runs.verdict_rows(run))),
        "dedup": sorted(map(repr, runs.rows(run, "duplicates", DUPLICATES.names))),
        "publish": list(map(repr, runs.shard_hashes(run))),
    }
    return {stage: xxhash.xxh3_64_hexdigest("\n".join(lines).encode()) for stage, lines in rows.items()}


# shingles/ is off in every preset: tests/run/test_against.py holds it to the hashes of the kept texts
@pytest.mark.parametrize("stage", sorted(VERSIONS.keys() - {"shingles"}))
def test_output_changes_only_with_the_version(stage: str, finished: Path) -> None:
    golden = json.loads(GOLDEN.read_text())
    now = {"version": VERSIONS[stage], "hash": outputs(finished)[stage]}
    assert golden[stage] == now, f"{stage}: {golden[stage]} became {now}; see this file's first lines"
