"""An engine that crashes, hangs or eats memory on chosen pages costs exactly these (shared cases 13, 15)."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import psutil

from tests.crawl.archives import http, members, record
from tests.run import runs
from tests.run.test_odd_pages import article

#: Imported by every Python of the command, Spark's workers too: a fault before the engine, by the page's address.
STUB = """
    import ctypes, importlib.util, os, signal, sys, time

    def spin():
        while True: pass
    def swallow():
        while True:
            try:
                while True: pass
            except BaseException: pass
    def eat():
        kept = []
        while True: kept.append(b"x" * 1_000_000)
    def eat_and_swallow():
        kept = []
        while True:
            try: kept.append(b"x" * 1_000_000)
            except BaseException: pass
    FAULTS = {
        "sleep": lambda: time.sleep(9999),
        "spin": spin,
        "spin-in-c": lambda: sum(range(10**13)),
        "swallow": swallow,
        "segfault": lambda: os.kill(os.getpid(), signal.SIGSEGV),
        "null": lambda: ctypes.string_at(0),
        "abort": os.abort,
        "exit": lambda: os._exit(9),
        "exit-0": lambda: os._exit(0),
        "eat": eat,
        "eat-and-swallow": eat_and_swallow,
        "raise": lambda: 1 // 0,
        "system-exit": lambda: sys.exit(3),
    }
    class Hook:
        def find_spec(self, name, path=None, target=None):
            if name != "pipeline.annotate":
                return None
            sys.meta_path.remove(self)
            spec = importlib.util.find_spec(name)
            run = spec.loader.exec_module
            def exec_module(module):
                run(module)
                true = module.extract
                def extract(html, url, settings):
                    fault = FAULTS.get((url or "").rpartition("/")[2])
                    if fault: fault()
                    return true(html, url, settings)
                module.extract = extract
            spec.loader.exec_module = exec_module
            return spec
    sys.meta_path.insert(0, Hook())
"""
REASONS = {
    "sleep": "timeout", "spin": "timeout", "spin-in-c": "timeout", "swallow": "timeout", "segfault": "crash",
    "null": "crash", "abort": "crash", "exit": "crash", "exit-0": "crash", "eat": "memory",
    "eat-and-swallow": "memory", "raise": "error", "system-exit": "error",
}  # fmt: skip


def write(path: Path, names: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pages = [record(http(article(n)), f"http://stub.test/{name}") for n, name in enumerate(names)]
    path.write_bytes(members(pages))


def learnt(rows: list[dict[str, Any]]) -> dict[str, tuple[str, ...]]:
    place = ("record_id", "input_id", "ordinal", "warc_file", "warc_offset", "warc_length", "url", "warc_record_id")
    return {row["url"]: tuple(repr(v) for name, v in row.items() if name not in place) for row in rows}


def stray(path: str) -> list[psutil.Process]:
    """Processes that were started with the stub."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("PYTHONPATH") == path:
                found.append(process)
    return found


def test_a_bad_engine_costs_exactly_its_pages_the_same_in_every_run(spark: object, tmp_path: Path) -> None:
    names: list[str] = []
    for number, fault in enumerate(REASONS):
        names += [fault, f"good-{number}"] if number % 3 else [f"good-{number}", fault]
    write(tmp_path / "crawl" / "one.warc.gz", names)
    write(tmp_path / "crawl" / "two.warc.gz", ["good-a", "exit", "segfault", "good-b"])
    (tmp_path / "stub").mkdir()
    (tmp_path / "stub" / "sitecustomize.py").write_text(textwrap.dedent(STUB))
    running = []
    for number, (master, seed) in enumerate((("local[1]", "1"), ("local[2]", "77"))):
        command = [sys.executable, "-m", "jobs.cli", "curate", str(tmp_path / "crawl"), "--out", f"{tmp_path}/{number}"]
        command += ["--recipe", "minimal", "--master", master]
        command += ["--set", "limits.cpu_seconds=0.5", "--set", "limits.memory_mib=200"]
        environment = {**os.environ, "PYTHONPATH": str(tmp_path / "stub"), "PYTHONHASHSEED": seed}
        running.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True))
    for run in running:
        assert run.stderr is not None
        assert run.wait(240) == 0, run.stderr.read()
        run.stderr.close()
    first, second = (runs.rows(tmp_path / str(number), "records") for number in (0, 1))
    assert sorted(map(repr, first)) == sorted(map(repr, second))
    assert runs.verdict_rows(tmp_path / "0") == runs.verdict_rows(tmp_path / "1")
    assert runs.shard_hashes(tmp_path / "0") == runs.shard_hashes(tmp_path / "1")
    got = [(row["warc_file"][:3], row["url"].rpartition("/")[2], row["reason"]) for row in first if row["reason"]]
    assert sorted(got) == sorted(
        [*(("one", fault, reason) for fault, reason in REASONS.items()), ("two", "exit", "crash"),
         ("two", "segfault", "crash")]
    )  # fmt: skip
    assert {row["stage"] for row in first if row["reason"]} == {"extract"}

    write(tmp_path / "good" / "one.warc.gz", [f"not-{name}" if name in REASONS else name for name in names])
    assert runs.curate([tmp_path / "good"], tmp_path / "good-run") == 0
    expected = learnt(runs.rows(tmp_path / "good-run", "records"))
    good = learnt([row for row in first if row["reason"] is None and row["warc_file"] == "one.warc.gz"])
    assert len(good) == len(REASONS)
    assert good == {address: expected[address] for address in good}, "neighbours are as without the bad pages"
    assert not psutil.wait_procs(stray(str(tmp_path / "stub")), timeout=10)[1], "no stray processes"
