"""One live run per folder: who is let in, who is refused, and what a killed run leaves."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.context import ForkServerContext
from typing import Any

import pytest

from pipeline.errors import GristmillError
from pipeline.storage import Storage
from pipeline.storage import lock as locking


def _hold(uri: str, ready: Any) -> None:
    with Storage(uri).lock():
        ready.set()
        time.sleep(60)


@pytest.fixture
def holder(run: Storage, processes: ForkServerContext) -> Iterator[Any]:
    ready = processes.Event()
    process = processes.Process(target=_hold, args=(run.uri, ready))
    process.start()
    assert ready.wait(60)
    yield process
    process.kill()
    process.join()


def test_a_second_run_is_refused_until_the_first_is_killed(run: Storage, holder: Any) -> None:
    with pytest.raises(GristmillError, match=f"is being written by another run .*pid {holder.pid}"), run.lock():
        pass
    holder.kill()
    holder.join()
    with run.lock():
        assert json.loads(run.read_bytes("_lock").strip())["pid"] == os.getpid()
    with run.lock():  # and again after a clean end
        pass


def test_of_many_runs_at_once_one_gets_in(run: Storage) -> None:
    run.put_bytes("_lock", json.dumps({"host": "elsewhere", "pid": 1, "heartbeat": 0}).encode())

    def attempt(_: int) -> Any:
        lock = locking.Lock(run)
        try:
            lock.acquire()
        except GristmillError:
            return None
        return lock

    with ThreadPoolExecutor(8) as pool:
        held = [lock for lock in pool.map(attempt, range(8)) if lock is not None]
    assert len(held) == 1
    held[0].release()


def test_another_hosts_run_is_over_after_a_silent_minute(run: Storage) -> None:
    record = {"host": "elsewhere", "pid": 1, "token": "t", "heartbeat": time.time() - 50}
    run.put_bytes("_lock", json.dumps(record).encode())
    with pytest.raises(GristmillError, match="host elsewhere, pid 1"), run.lock():
        pass
    run.put_bytes("_lock", json.dumps(record | {"heartbeat": time.time() - 61}).encode())
    with run.lock():
        pass


def test_a_process_number_used_again_is_not_the_holder(s3_bucket: str) -> None:
    run = Storage(f"{s3_bucket}/run")
    record = {"host": locking._host(), "pid": os.getpid(), "started": "1", "heartbeat": time.time()}
    run.put_bytes("_lock", json.dumps(record).encode())
    with run.lock():
        pass


def test_a_run_that_lost_its_folder_commits_nothing(s3_bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locking, "HEARTBEAT_SECONDS", 0.05)
    run = Storage(f"{s3_bucket}/run")
    with run.lock() as lock:
        time.sleep(0.3)
        lock.check()  # its own heartbeats do not confuse it
        run.put_bytes("_lock", b'{"token": "another", "host": "elsewhere", "heartbeat": 9e9}')
        time.sleep(0.5)
        with pytest.raises(GristmillError, match="another run took over"):
            run.commit("records", "k", [])
    assert json.loads(run.read_bytes("_lock"))["token"] == "another"
