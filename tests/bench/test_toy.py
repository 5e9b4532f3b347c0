"""Every benchmark still runs, at toy size: what is not run rots."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
BENCHES = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if '"--toy"' in path.read_text("utf-8"))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [name for name in BENCHES if name != Path(__file__).stem])
def test_runs_at_toy_size(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", f"tests.bench.{name}", "--toy"], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert done.stdout.strip()


def test_there_are_benchmarks() -> None:
    assert {"conformance", "curate"} <= set(BENCHES)
