from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from pipeline.report.reading import Run, open_finished
from pipeline.report.summary import Summary, summarize
from tests.report.synthetic import Truth, write_run


@dataclass
class Written:
    folder: Path
    truth: Truth
    run: Run
    summary: Summary


def written(folder: Path, **options: object) -> Written:
    truth = write_run(folder, **options)  # type: ignore[arg-type]
    run = open_finished(str(folder))
    return Written(folder, truth, run, summarize(run))


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return written(tmp_path_factory.mktemp("plain") / "run")


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return written(tmp_path_factory.mktemp("hostile") / "run", hostile=True)
