"""Runs that are killed: the command as a real process, SIGKILL at several moments, then the same command again."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.run import runs


def command(crawl: Path, out: Path, *extra: str) -> list[str]:
    return [sys.executable, "-m", "jobs.cli", "curate", str(crawl), "--out", str(out), "--recipe", "minimal", *extra]


@pytest.fixture(scope="module")
def whole(crawl: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run, in a process of its own, on one core and with another hash seed."""
    out = tmp_path_factory.mktemp("whole") / "run"
    done = subprocess.run(
        command(crawl, out, "--master", "local[1]"),
        env={**os.environ, "PYTHONHASHSEED": "77"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return out


def _appears(folder: Path, pattern: str, process: subprocess.Popen[bytes], seconds: float = 90) -> None:
    end = time.monotonic() + seconds
    while not list(folder.glob(pattern)):
        assert time.monotonic() < end, f"{pattern} did not appear"
        assert process.poll() is None, f"the run ended before {pattern} appeared"
        time.sleep(0.01)


def test_a_run_that_is_stopped_again_and_again_ends_as_an_uninterrupted_one(
    crawl: Path, whole: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    family: list[psutil.Process] = []
    for moment, sent, status in (
        ("records/_receipts/*.json", signal.SIGKILL, -signal.SIGKILL),
        ("duplicates/*", signal.SIGINT, 130),
        ("verdicts/*.parquet", signal.SIGKILL, -signal.SIGKILL),
    ):
        process = subprocess.Popen(command(crawl, out), stderr=subprocess.PIPE)
        _appears(out, moment, process)
        family += psutil.Process(process.pid).children(recursive=True)
        process.send_signal(sent)
        said = process.communicate()[1].decode()
        assert process.returncode == status, said
        if sent == signal.SIGINT:
            assert said.splitlines()[-1].startswith("gristmill: interrupted; the same command goes on")
            assert "Traceback" not in said
    again = subprocess.run(command(crawl, out), capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert runs.shard_hashes(out) == runs.shard_hashes(whole)
    assert runs.verdict_rows(out) == runs.verdict_rows(whole)
    names = {path.name for path in (out / "records").iterdir()}
    assert len(names) == len(runs.rows(out, "inputs")) + 1  # one part each and the manifest: no left-overs
    _, alive = psutil.wait_procs(family, timeout=20)
    assert not alive, "processes of the killed run live on"


def test_a_python_worker_killed_in_a_task_costs_nothing(crawl: Path, whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = subprocess.Popen(command(crawl, out), stderr=subprocess.DEVNULL)
    _appears(out, "records/*.parquet", process)
    killed = False
    for child in psutil.Process(process.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):  # others come and go meanwhile
            daemon = child.parent()
            if "-m pipeline.run.worker_daemon" in " ".join(child.cmdline()) and daemon and "python" in daemon.name():
                child.kill()
                killed = True
                break
    assert killed
    assert process.wait() == 0
    assert runs.shard_hashes(out) == runs.shard_hashes(whole)
    assert runs.verdict_rows(out) == runs.verdict_rows(whole)
