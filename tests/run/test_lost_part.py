"""Case 42: a file of records that is gone between two stages ends the run; it is never dedup of what is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.run.runs import curate


def test_a_lost_file_of_records_fails_dedup(copy: Path, crawl: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lost = max((copy / "records").glob("*.parquet"), key=lambda path: path.stat().st_size)
    lost.unlink()
    assert curate([crawl], copy, "--set", "dedup.threshold=0.85", recipe="fineweb") == 1
    told = [line for line in capsys.readouterr().err.splitlines() if lost.stem in line]
    assert len(told) == 1
