"""A standalone Spark cluster on loopback: one master, two workers, each in a folder of its own.

It is the real thing, only small: executors are processes of their own, and a driver reaches them by spark:// alone.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import pyspark

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from pipeline.errors import GristmillError
from pipeline.java import java_home

WORKERS = 2
START_SECONDS = 90.0
_DEPLOY = "org.apache.spark.deploy"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="infra/cluster", description=__doc__)
    parser.add_argument("action", choices=("up", "status", "down"))
    parser.add_argument("--state", type=Path, default=Path(tempfile.gettempdir()) / f"gristmill-cluster-{os.getuid()}")
    parser.add_argument("--cores", type=int, default=1, help="cores per worker (1)")
    parser.add_argument("--memory", default="3g", help="memory per worker for executors' heaps (3g)")
    args = parser.parse_args(argv)
    try:
        if args.action == "up":
            print(up(args.state, args.cores, args.memory))
        elif args.action == "down":
            down(args.state)
            print("no cluster is running")
        else:
            print(status(args.state))
    except GristmillError as error:
        print(f"gristmill: {error}", file=sys.stderr)
        return error.exit_status
    return 0


def up(state: Path, cores: int, memory: str) -> str:
    """Start what is not running; the master's address once every worker has registered."""
    running = _read(state)
    if running and all(_alive(pid) for pid in running["pids"].values()):
        return str(running["url"])
    down(state)
    state.mkdir(parents=True, mode=0o700)
    port, master_ui, *worker_uis = _free_ports(2 + WORKERS)
    url = f"spark://127.0.0.1:{port}"
    record: dict[str, Any] = {"url": url, "ui": f"http://127.0.0.1:{master_ui}", "pids": {}}
    try:
        _start(state, record, "master", "master.Master", "--port", str(port), "--webui-port", str(master_ui))
        for number, ui in enumerate(worker_uis, 1):
            name = f"worker-{number}"
            size = ("--cores", str(cores), "--memory", memory, "--work-dir", str(state / name / "work"))
            _start(state, record, name, "worker.Worker", "--webui-port", str(ui), *size, url)
        deadline = time.monotonic() + START_SECONDS
        while _registered(record["ui"]) < WORKERS:
            dead = [name for name, pid in record["pids"].items() if not _alive(pid)]
            if dead or time.monotonic() > deadline:
                raise GristmillError(f"the cluster did not start: {_last_words(state, dead or ['worker-1'])}")
            time.sleep(0.3)
    except BaseException:
        down(state)
        raise
    return url


def down(state: Path) -> None:
    """Stop the cluster of `state` if there is one, and remove its folder; its executors end with their workers."""
    running = _read(state)
    pids = [pid for pid in (running or {"pids": {}})["pids"].values() if _alive(pid)]
    for sent in (signal.SIGTERM, signal.SIGKILL):
        for pid in pids:
            if _alive(pid):
                os.killpg(pid, sent)
        deadline = time.monotonic() + 15
        while any(map(_alive, pids)) and time.monotonic() < deadline:
            time.sleep(0.1)
    shutil.rmtree(state, ignore_errors=True)


def status(state: Path) -> str:
    running = _read(state)
    if not running:
        return "no cluster is running"
    lines = [f"{running['url']}  {_registered(running['ui'])} workers registered, pages at {running['ui']}"]
    lines += [f"  {name}: process {pid}{'' if _alive(pid) else ', dead'}" for name, pid in running["pids"].items()]
    return "\n".join(lines)


def _start(state: Path, record: dict[str, Any], name: str, main_class: str, *arguments: str) -> None:
    folder = state / name
    (folder / "local").mkdir(parents=True)
    spark_home = Path(pyspark.__file__).parent
    environment = os.environ | {
        "JAVA_HOME": java_home(),
        "SPARK_HOME": str(spark_home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_DAEMON_MEMORY": "512m",
    }
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(
            [str(spark_home / "bin" / "spark-class"), f"{_DEPLOY}.{main_class}", "--host", "127.0.0.1", *arguments],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    record["pids"][name] = process.pid
    (state / "cluster.json").write_text(json.dumps(record))


def _read(state: Path) -> dict[str, Any] | None:
    try:
        return json.loads((state / "cluster.json").read_text())  # type: ignore[no-any-return]
    except (OSError, ValueError):
        return None


def _alive(pid: int) -> bool:
    """Whether `pid` is a live daemon of ours, not another process that has its number by now."""
    try:
        if Path("/proc/self").exists():
            seen = Path(f"/proc/{pid}/cmdline").read_text("utf-8", "replace")  # empty for a zombie
        else:
            seen = subprocess.run(["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True).stdout
    except OSError:
        return False
    return _DEPLOY in seen or "spark-class" in seen


def _registered(ui: str) -> int:
    try:
        with urllib.request.urlopen(f"{ui}/json/", timeout=2) as answer:
            return int(json.load(answer)["aliveworkers"])
    except (OSError, ValueError):
        return 0


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now; all are held until all are known, so that they differ."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for probe in sockets:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in sockets]
    finally:
        for probe in sockets:
            probe.close()


def _last_words(state: Path, names: list[str]) -> str:
    try:
        lines = (state / names[0] / "log").read_text("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    return f"{names[0]} said: {lines[-1] if lines else 'nothing'}"


if __name__ == "__main__":
    sys.exit(main())
