"""Real processes, started by the command: one hangs, or cannot read its data."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.trainer import running

PROJECT = Path(__file__).resolve().parents[2]
started: list[subprocess.Popen[str]] = []


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return running.write_data(tmp_path_factory.mktemp("data") / "run")


def command(data: Path, out: Path, *more: str, steps: int = 24) -> list[str]:
    tree = running.tree(data, out, steps=steps, parallel={"dp_shard": 2}, checkpoints={"every": 3, "keep": 2})
    given = [f"{s}.{k}={json.dumps(v)}" for s, values in tree.items() for k, v in values.items()]
    return [sys.executable, "-m", "jobs.cli", "train", *(w for item in given for w in ("--set", item)), *more]


def start(words: list[str]) -> subprocess.Popen[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    launcher = subprocess.Popen(
        words, cwd=PROJECT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    started.append(launcher)
    return launcher


@pytest.fixture(autouse=True)
def none_left() -> Iterator[None]:
    """A test that fails half-way leaves no process behind."""
    yield
    for launcher in started:
        if launcher.poll() is None:
            launcher.terminate()
            launcher.communicate(timeout=60)
    started.clear()


def rank_of(launcher: subprocess.Popen[str], rank: int) -> psutil.Process:
    for child in psutil.Process(launcher.pid).children(recursive=True):
        if child.environ().get("RANK") == str(rank):
            return child
    raise AssertionError(f"no process of rank {rank}")


def wait_for(launcher: subprocess.Popen[str], there: Callable[[], bool]) -> bool:
    """Whether it came before the run ended."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        if there():
            return True
        if launcher.poll() is not None:
            return False
        time.sleep(0.002)
    raise AssertionError("nothing happened for 120 s")


def stepped(out: Path, step: int) -> bool:
    return (out / "health.jsonl").exists() and any(line["step"] >= step for line in running.lines(out))


def test_a_rank_that_hangs_ends_the_job(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    launcher = start(command(data, out, "--set", "run.timeout=5", steps=100_000))
    assert wait_for(launcher, lambda: stepped(out, 3))
    hung = rank_of(launcher, 1)
    began = time.monotonic()
    hung.send_signal(signal.SIGSTOP)
    _, errors = launcher.communicate(timeout=5 + 60)
    assert time.monotonic() - began < 5 + 60
    assert launcher.returncode == 1
    assert "gristmill: rank 0: " in errors
    assert not psutil.pid_exists(hung.pid) or hung.status() == psutil.STATUS_ZOMBIE


def test_data_that_one_rank_cannot_read_ends_the_job(data: Path, tmp_path: Path) -> None:
    """A shard that shrinks while it is read is no damaged page but another file."""
    mine = tmp_path / "data"
    shutil.copytree(data, mine)
    for shard in (mine / "shards").glob("*.parquet"):
        os.truncate(shard, 1000)
    began = time.monotonic()
    launcher = start(command(mine, tmp_path / "run"))
    _, errors = launcher.communicate(timeout=90)
    assert launcher.returncode == 1
    assert time.monotonic() - began < 90
    assert ".parquet" in errors
    assert "Traceback" not in errors
