"""Case 42: dedup that cannot do its work, or does nothing, says so instead of ending well."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobs.cli import main
from tests.run import runs

pytestmark = pytest.mark.usefixtures("spark")


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("dedup.threshold=1.5", "dedup.threshold: Input should be less than or equal to 1"),
        ('dedup.priority=["quality"]', "dedup.priority.0: Input should be 'quality_score', 'n_words' or 'n_chars'"),
        ("dedup.priority=[]", "dedup.priority: Tuple should have at least 1 item"),
        ("dedup.bands=40", "bands x rows = 320 needs more than the 112 permutations"),
        ("dedup.exact=false", "near = true finds exact copies as well"),
    ],
)
def test_a_wish_that_cannot_work_is_refused(
    key: str, message: str, crawl: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert runs.curate([crawl], tmp_path / "run", "--set", key) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert not (tmp_path / "run").exists()


def test_a_part_lost_between_the_stages_ends_the_run(
    copy: Path, crawl: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    part = max((copy / "records").glob("*.parquet"), key=lambda path: path.stat().st_size)
    part.unlink()
    assert runs.curate([crawl], copy, "--set", "dedup.threshold=0.9", recipe="fineweb") == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("gristmill: cannot read")
    assert part.name in line
    assert json.loads((copy / "run.json").read_text())["status"] == "unfinished"


def test_copies_that_dedup_left_are_flagged(copy: Path, crawl: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The sample has planted copies: kept by wish they are a note, kept although dedup ran an alert."""
    assert main(["report", str(copy)]) == 0
    assert "are copies of another" not in capsys.readouterr().out
    off = ["--set", "dedup.exact=false", "--set", "dedup.near=false"]
    assert runs.curate([crawl], copy, *off, recipe="minimal") == 0
    capsys.readouterr()
    assert main(["report", str(copy)]) == 0
    assert "are copies of another, and dedup is off" in capsys.readouterr().out
    tree = json.loads((copy / "run.json").read_text())
    tree["recipe"]["dedup"] |= {"exact": True, "near": True}
    (copy / "run.json").write_text(json.dumps(tree))
    assert main(["report", str(copy)]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "are copies of another" in line]
    assert line.startswith("! ")
    assert line.endswith("though dedup ran: it did not do its work")
