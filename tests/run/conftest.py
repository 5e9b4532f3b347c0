from __future__ import annotations

from pathlib import Path

import pytest

from jobs.cli import main


@pytest.fixture(scope="package")
def crawl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sample crawl that all tests of whole runs read; none changes it."""
    folder = tmp_path_factory.mktemp("crawl")
    assert main(["sample", str(folder), "--pages", "120"]) == 0
    return folder
