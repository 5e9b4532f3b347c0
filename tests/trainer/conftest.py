"""Four spawned processes for the whole session: torch takes each 3 s to import."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from trainer.workers import Workers


@pytest.fixture(scope="session")
def workers() -> Iterator[Workers]:
    with Workers(4) as running:
        yield running
