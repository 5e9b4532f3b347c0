"""Runs on several processes: resumed on other meshes, poisoned, failing; case 65's and 67's distributed parts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.trainer import running
from trainer import checkpoint as checkpoints
from trainer.replay import replay
from trainer.workers import Workers


@pytest.fixture(scope="module")
def pair() -> Iterator[Workers]:
    with Workers(2) as workers:
        yield workers


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return running.write_data(tmp_path_factory.mktemp("data") / "run")


FSDP, TP, PP = {"dp_shard": 2}, {"tp": 2}, {"pp": 2, "microbatches": 4}


def test_resumed_on_other_meshes_it_is_the_same_run(pair: Workers, data: Path, tmp_path: Path) -> None:
    """1 -> fsdp 2 -> tp 2 -> pp 2 -> 1 process, four steps each, against one process straight."""

    def settings(name: str, parallel: dict[str, Any]) -> dict[str, Any]:
        return running.tree(
            data, tmp_path / name, steps=20, parallel=parallel | {"precision": "fp64"}, validation={"dir": [str(data)]}
        )

    running.run(settings("straight", {}))
    running.run_until(settings("moved", {}), 4)
    for steps, parallel in ((8, FSDP), (12, TP), (16, PP)):
        pair.run(running.run_until, 2, settings("moved", parallel), steps)
    running.run(settings("moved", {}))
    straight, moved = running.losses(tmp_path / "straight"), running.losses(tmp_path / "moved")
    assert list(moved) == list(range(20))
    for step, loss in straight.items():
        assert moved[step] == pytest.approx(loss, rel=1e-9), step
    first, *_, last = (running.lines(tmp_path / name, "validation")[-1] for name in ("straight", "moved"))
    assert last["loss"] == pytest.approx(first["loss"], rel=1e-9)
    assert last["perplexity"] == pytest.approx(2.718281828459045 ** first["loss"], rel=1e-9)
    ends = checkpoints.find(tmp_path / "moved" / "checkpoints")[0][0].state()
    straight_ends = checkpoints.find(tmp_path / "straight" / "checkpoints")[0][0].state()
    assert ends["data"] == straight_ends["data"]
    assert ends["tokens_seen"] == straight_ends["tokens_seen"]


@pytest.mark.parametrize("kind", ["nan", "inf", "1e30", "masked"])
def test_a_poisoned_rank_is_skipped_by_all(kind: str, pair: Workers, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    settings = running.tree(data, out, steps=10, parallel=FSDP, faults={"window": 8}, checkpoints={"every": 5})
    results = pair.run(running.poisoned, 2, settings, kind, [6], 1)
    assert [result.get("error") for result in results] == [None, None]
    assert all(result["sound"] for result in results)
    assert results[0]["outcome"] == results[1]["outcome"]
    steps = {line["step"]: line for line in running.lines(out)}
    assert list(steps) == list(range(10))
    if kind == "masked":  # half of the targets are gone, and the step is a step
        assert results[0]["outcome"].skipped == 0
        assert steps[6]["tokens"] < 0.6 * steps[5]["tokens"]
        return
    assert results[0]["outcome"].skipped == 1
    assert [step for step, line in steps.items() if "fault" in line] == [6]
    (fault,) = map(json.loads, (out / "faults.jsonl").read_text().splitlines())
    assert fault["step"] == 6
    urls = {document["url"] for document in fault["documents"]}
    assert len(urls) == len(fault["documents"]) > 8
    assert all(url.startswith("http://made.test/") for url in urls)
    assert steps[7]["loss"] < steps[0]["loss"]
    if kind == "nan":  # its weights were kept: the step is made at once, on one process, and is sound without poison
        again = replay(out, 6, running.config(data, out, steps=10))
        assert (again.step, again.began, again.anomaly) == (6, 6, [])
        assert again.loss < steps[0]["loss"]
        assert {document["url"] for document in again.documents} == urls


def test_repeated_trouble_rewinds_and_then_gives_up(pair: Workers, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    settings = running.tree(
        data, out, steps=20, parallel=FSDP, faults={"window": 8, "patience": 2, "rewinds": 1}, checkpoints={"every": 4}
    )
    results = pair.run(running.poisoned, 2, settings, "nan", [5, 6, 12, 14], 1)
    (rewound,) = running.lines(out, "rewind")
    assert (rewound["step"], rewound["to"]) == (7, 4)
    steps = {line["step"]: line for line in running.lines(out)}
    assert list(steps) == list(range(15))
    for result in results:
        assert result["error"].startswith("TrainError: step 14: 2 bad steps within 8")
        assert "after 1 rewinds: given up" in result["error"]
    # the count is in the checkpoints: started again, the run does not get another rewind
    state = checkpoints.find(out / "checkpoints")[0][0].state()
    assert [r["at"] for r in state["faults"]["rewinds"]] == [7]
    assert [bad for bad, _ in state["faults"]["skipped"]] in ([5, 6], [5, 6, 12])
    # weights of step 4, learning rate too: the first step after the rewind has step 4's
    assert steps[7]["learning_rate"] == steps[4]["learning_rate"] != steps[5]["learning_rate"]
