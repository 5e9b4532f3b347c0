"""What the tests of committed datasets share: a folder on each kind of file system, and processes to kill."""

from __future__ import annotations

import multiprocessing
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from pipeline.storage import Storage


@pytest.fixture(params=["local", "s3"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """A run's folder, not there yet."""
    if request.param == "local":
        return Storage(str(tmp_path / "run"))
    return Storage(f"{request.getfixturevalue('s3_bucket')}/some/run")


@pytest.fixture(scope="session")
def processes() -> ForkServerContext:
    """Processes that start with the storage loaded and nothing else of this one."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pipeline.storage", "pipeline.datasets"])
    return context
