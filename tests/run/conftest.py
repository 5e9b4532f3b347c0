from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from jobs.cli import main
from tests.run import runs


@pytest.fixture(scope="package")
def crawl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sample crawl that all tests of whole runs read; none changes it."""
    folder = tmp_path_factory.mktemp("crawl")
    assert main(["sample", str(folder), "--pages", "120"]) == 0
    return folder


@pytest.fixture(scope="package")
def finished(spark: SparkSession, crawl: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of the sample with the fineweb recipe. Tests that change a run work on a copy."""
    out = tmp_path_factory.mktemp("finished") / "run"
    assert runs.curate([crawl], out, recipe="fineweb") == 0
    return out


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))
