"""`gristmill verify`: one mesh of each kind agrees with one process, and each planted fault turns its rows red."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainer import verify
from trainer.workers import Workers


def test_one_mesh_of_each_kind(workers: Workers, finished: Path) -> None:
    outcomes = list(verify.verify(str(finished), steps=5, precisions=("fp64",), quick=True, workers=workers))
    assert len(outcomes) == 8
    assert all(row.sound for row in outcomes), outcomes
    assert all(row.final < row.first - 1 for row in outcomes)


@pytest.mark.parametrize("plant", verify.PLANTS)
def test_a_planted_fault_turns_the_table_red(workers: Workers, finished: Path, plant: str) -> None:
    (row,) = verify.verify(str(finished), steps=2, precisions=("fp64",), only=["fsdp 2"], plant=plant, workers=workers)
    assert not row.sound
    if plant == "doubled-gradient":  # what AdamW behind a clip hides from the loss
        assert row.norm == pytest.approx(1.0)
