"""Checkpoints: cases 67 (a half-written or later-valued one) and 68 (something silently not restored)."""

from __future__ import annotations

import json
import os
import resource
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer import running
from trainer import checkpoint as checkpoints
from trainer.checkpoint import MARK, Saver, find, settle, staged, tensors
from trainer.errors import TrainError, TrainUsageError
from trainer.ranks import Ranks
from trainer.train import build, train


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return running.write_data(tmp_path_factory.mktemp("data") / "run")


@pytest.fixture(scope="module")
def straight(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 steps without a stop, checkpoints of 20 and 40 kept."""
    out = tmp_path_factory.mktemp("straight") / "run"
    train(running.config(data, out, steps=40, checkpoints={"every": 20, "keep": 9}))
    return out


def saved(checkpoint: checkpoints.Checkpoint, data: Path) -> dict[str, torch.Tensor]:
    session = build(running.config(data, checkpoint.folder.parents[1], steps=40), Ranks(), log=False)
    checkpoints.load(checkpoint, session.trainee, Ranks())
    return staged(tensors(session.trainee))


def test_twenty_and_twenty_are_forty(straight: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    shutil.copytree(straight, out)
    shutil.rmtree(out / "checkpoints" / "step-000000040")
    (out / "health.jsonl").unlink()
    outcome = train(running.config(data, out, steps=40, checkpoints={"every": 20, "keep": 9}))
    whole, rest = running.lines(straight), running.lines(out)
    assert [line["step"] for line in rest] == list(range(20, 40))
    same = ("step", "loss", "loss_ema", "gradient_norm", "learning_rate", "tokens")
    assert [[line[name] for name in same] for line in rest] == [[line[name] for name in same] for line in whole[20:]]
    first, second = (find(folder / "checkpoints")[0][0] for folder in (straight, out))
    assert first.state() == second.state() | {"config": first.state()["config"]}
    assert first.state()["step"] == 40
    assert outcome.tokens == sum(line["tokens"] for line in whole)
    one, other = saved(first, data), saved(second, data)
    assert one.keys() == other.keys()
    assert sum(name.endswith((".exp_avg", ".exp_avg_sq", ".step")) for name in one) == 3 * len(one) / 4
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name
    assert whole[-1]["loss"] < whole[0]["loss"] - 1


def test_a_finished_run_says_the_same_again(straight: Path, data: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in (straight / "checkpoints").iterdir()}
    outcome = train(running.config(data, straight, steps=40, checkpoints={"every": 20, "keep": 9}))
    steps = running.lines(straight)
    assert (outcome.steps, outcome.first_loss, outcome.last_loss) == (40, steps[0]["loss"], steps[-1]["loss"])
    assert f"done: 40 steps, loss {steps[0]['loss']:.4f} -> {steps[-1]['loss']:.4f}" in capfd.readouterr().out
    assert {path.name: path.stat().st_mtime_ns for path in (straight / "checkpoints").iterdir()} == before


def test_the_randomness_of_a_step_is_its_own() -> None:
    checkpoints.seed_step(3, 17)
    first = torch.rand(4)
    checkpoints.seed_step(3, 18)
    assert not torch.equal(first, torch.rand(4))
    checkpoints.seed_step(3, 17)
    assert torch.equal(first, torch.rand(4))


def spoil(folder: Path, how: str) -> str:
    """Damages a checkpoint; what is to be said about it."""
    file = next(folder.glob("*.distcp"))
    if how == "unmarked":
        (folder / MARK).unlink()
        return "not finished"
    if how == "torn":
        os.truncate(folder / MARK, 200)
        return "complete.json is torn"
    if how == "short":
        os.truncate(file, 1000)
        return "has 1,000 bytes of"
    file.unlink()
    return f"{file.name} is missing"


@pytest.mark.parametrize("how", ["unmarked", "torn", "short", "missing"])
def test_the_newest_complete_one_is_taken(how: str, straight: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    shutil.copytree(straight, out)
    said = spoil(out / "checkpoints" / "step-000000040", how)
    good, odd = find(out / "checkpoints")
    assert [checkpoint.step for checkpoint in good] == [20]
    assert len(odd) == 1
    assert odd[0].startswith("step-000000040 (")
    assert said in odd[0]
    if how == "missing":  # the whole way once
        train(running.config(data, out, steps=22, checkpoints={"every": 20, "keep": 9}))
        (passed,) = running.lines(out, "passed_over")
        assert said in passed["checkpoints"][0]
        assert [line["step"] for line in running.lines(out)][-2:] == [20, 21]


def test_missing_extra_and_odd_keys_are_errors(straight: Path, data: Path, tmp_path: Path) -> None:
    (checkpoint, *_) = find(straight / "checkpoints")[0]

    def refused(**sections: Any) -> str:
        session = build(running.config(data, tmp_path / "x", steps=40, **sections), Ranks(), log=False)
        with pytest.raises(TrainError) as caught:
            checkpoints.load(checkpoint, session.trainee, Ranks())
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert "lacks model.blocks.2." in refused(model={"layers": 3})
    assert "holds model.blocks.1." in refused(model={"layers": 1})
    assert "attention.key.weight is float32 [32, 32] there and float32 [16, 32] here" in refused(
        model={"key_value_heads": 1}
    )
    assert "float32 [32, 32] there and float64 [32, 32] here" in refused(parallel={"precision": "fp64"})
    assert ".momentum" in refused(optimizer={"name": "muon"})
    with pytest.raises(TrainUsageError, match=r"is a run of model\.layers 2, not 3"):
        train(running.config(data, straight, steps=40, model={"layers": 3}))


def test_an_asynchronous_save_holds_the_values_of_its_step(data: Path, tmp_path: Path) -> None:
    session = build(running.config(data, tmp_path / "run"), Ranks(), log=False)
    trainee = session.trainee
    for _, parameter in trainee.named_parameters():
        parameter.data.fill_(1.0)
    saver = Saver(tmp_path / "c", 1, Ranks())
    state = checkpoints.state_of(trainee)
    assert saver.save(trainee, state, 1) is None
    for _, parameter in trainee.named_parameters():  # while it is written
        parameter.data.fill_(2.0)
    assert saver.wait() is None
    checkpoints.load(find(tmp_path / "c")[0][0], trainee, Ranks())
    assert all(bool((parameter == 1.0).all()) for _, parameter in trainee.named_parameters())
    large = torch.ones(8 << 20)  # 32 MB, of which torch once kept a reference only
    copy = staged({"large": large})["large"]
    large.fill_(2.0)
    assert bool((copy == 1.0).all())


def test_a_full_disk_leaves_the_older_ones(data: Path, tmp_path: Path) -> None:
    session = build(running.config(data, tmp_path / "run"), Ranks(), log=False)
    saver = Saver(tmp_path / "c", 1, Ranks())
    state = checkpoints.state_of(session.trainee)
    saver.save(session.trainee, state, 1)
    assert saver.wait() is None
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))  # half-way through the file of tensors
    try:
        saver.save(session.trainee, state, 2)
        problem = saver.wait()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert problem is not None
    assert "checkpoint of step 2 not saved (rank 0: " in problem
    good, odd = find(tmp_path / "c")
    assert [checkpoint.step for checkpoint in good] == [1]
    assert odd == ["step-000000002 (not finished)"]
    saver.save(session.trainee, state, 3)
    assert saver.wait() is None
    assert sorted(path.name for path in (tmp_path / "c").iterdir()) == ["step-000000003"]


def test_the_optimiser_starts_with_all_its_state_at_zero(data: Path, tmp_path: Path) -> None:
    session = build(running.config(data, tmp_path, optimizer={"name": "muon"}), Ranks(), log=False)
    before = {name: parameter.clone() for name, parameter in session.trainee.named_parameters()}
    settle(session.trainee)
    states = [value for name, value in tensors(session.trainee).items() if name.startswith("optimizer.")]
    assert states
    assert not any(bool(value.any()) for value in states)
    assert all(torch.equal(before[name], parameter) for name, parameter in session.trainee.named_parameters())


def test_the_mark_is_json_of_files_and_state(straight: Path) -> None:
    checkpoint = find(straight / "checkpoints")[0][0]
    mark = json.loads((checkpoint.folder / MARK).read_text())
    assert mark["files"] == {p.name: p.stat().st_size for p in checkpoint.folder.iterdir() if p.name != MARK}
    assert mark["state"]["data"]["step"] == 40
