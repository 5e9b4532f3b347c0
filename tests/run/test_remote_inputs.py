"""Runs over servers that fail: the network changes no row, and a file that stays away fails alone."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crawl.faulty import Faulty, serve
from tests.run import runs
from tests.run.test_odd_pages import article

pytestmark = pytest.mark.usefixtures("spark")
QUICK = ["--set", "input.wait_seconds=0.02", "--set", "input.stall_seconds=1", "--set", "input.tries=6"]


def archive(name: str, pages: int) -> bytes:
    records = (runs.response(f"http://{name}.test/{n}", article(n)) for n in range(pages))
    return b"".join(gzip.compress(record, 6, mtime=0) for record in records)


FILES = {f"/crawl/{name}.warc.gz": archive(name, 30) for name in ("shaky", "sound", "gone")}


@pytest.fixture
def web() -> Iterator[Faulty]:
    with serve(Faulty(dict(FILES))) as server:
        server.files["/crawl/warc.paths"] = "\n".join(name.lstrip("/") for name in FILES).encode()
        yield server


def rows(run: Path, but: str) -> list[tuple[object, ...]]:
    found = runs.rows(run, "records")
    return sorted(tuple(map(repr, row.values())) for row in found if not row["warc_file"].startswith(but))


def test_a_shaky_server_changes_no_row_and_a_lost_file_fails_alone(
    web: Faulty, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path, data in FILES.items():
        (tmp_path / path.rpartition("/")[2]).write_bytes(data)
    assert runs.curate([tmp_path], tmp_path / "local") == 0

    seen = dict.fromkeys(FILES, 0)

    def faults(path: str, number: int) -> str | None:
        if path not in seen:
            return None
        seen[path] += 1
        if path.endswith("gone.warc.gz"):
            return "status 503" if seen[path] > 1 else None  # planned, then lost
        troubles = [None, "status 503", "status 503", "drop 9000", None, "later 0", "close", "longer 5"]
        return troubles[seen[path] % len(troubles)] if "shaky" in path else None

    web.faults = faults
    address = f"{web.address}/crawl/warc.paths"
    capsys.readouterr()
    assert runs.curate([address], tmp_path / "remote", *QUICK) == 1
    said = capsys.readouterr().err
    assert f"{web.address}/crawl/gone.warc.gz" in said
    assert "503" in said
    assert "given up after 6 tries" in said
    status = {row["uri"].rpartition("/")[2]: row["status"] for row in runs.rows(tmp_path / "remote", "inputs")}
    assert status == {"shaky.warc.gz": "ok", "sound.warc.gz": "ok", "gone.warc.gz": "failed"}
    assert rows(tmp_path / "remote", "gone") == rows(tmp_path / "local", "gone")

    web.faults = lambda path, number: None
    assert runs.curate([address], tmp_path / "remote", *QUICK) == 0
    assert rows(tmp_path / "remote", "none") == rows(tmp_path / "local", "none")
    assert runs.shard_hashes(tmp_path / "remote") == runs.shard_hashes(tmp_path / "local")
