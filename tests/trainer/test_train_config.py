"""Configuration of a training run: what is said about wrong ones, and who wins."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.cli import main
from trainer.config import from_tree, load, model_config, optimizer_config, stream_config
from trainer.errors import TrainUsageError
from trainer.preflight import compare


def test_file_then_flags_then_overrides(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('[model]\nsize = "124m"\n[run]\nsteps = 7\nseed = 3\n[optimizer]\nbetas = [0.9, 0.99]\n')
    config = load(str(file), {"run.steps": 8, "run.seed": None}, ["run.steps=9", "optimizer.clip=none"])
    assert (config.model.size, config.run.steps, config.run.seed) == ("124m", 9, 3)
    assert (config.optimizer.betas, config.optimizer.clip) == ((0.9, 0.99), None)
    assert from_tree(config.as_json()) == config


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("run.stepz=3", "unknown key run.stepz (nearest: steps)"),
        ("optimiser.name=muon", "unknown key optimiser (nearest: optimizer)"),
        ("parallel.tensor=2", "unknown key parallel.tensor"),
        ("optimizer.name=adam", "optimizer.name 'adam': one of adamw, muon"),
        ("model.size=7b", "model.size '7b': one of 1m, 15m, 124m, 1b, 8b"),
        ("run.steps=0", "run.steps 0: at least 1"),
        ("run.steps=many", "run.steps 'many': Input should be a valid integer"),
        ("data.dir=here", "data.dir 'here': give a list"),
        ("run=3", "run: has keys of its own"),
        ("run.steps.x=3", "run.steps"),
        ("steps", "--set steps: write key=value"),
        ("optimizer.learning_rate=nan", "optimizer.learning_rate nan: at least 0"),
    ],
)
def test_a_wrong_key_or_value_is_one_line(override: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--data", "x", "--set", override]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_impossible_meshes_are_refused_before_any_process_starts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--data", "x", "--tp", "3"]) == 2
    assert "tp 3 does not divide" in capsys.readouterr().err
    assert main(["train"]) == 2
    assert "no data" in capsys.readouterr().err


def test_what_the_parts_are_told() -> None:
    config = from_tree({"data": {"dir": ["a@2.5", "b"], "batch_size": 4, "seq_len": 10}, "run": {"steps": 100}})
    assert [(s.uri, s.weight) for s in stream_config(config).sources] == [("a", 2.5), ("b", None)]
    assert (optimizer_config(config).total_tokens, optimizer_config(config).warmup_tokens) == (4000, 80)
    assert model_config(config, 257).vocab_size == 320
    with pytest.raises(TrainUsageError, match=r"set model\.vocab_size"):
        model_config(config, None)
    with pytest.raises(TrainUsageError, match="too small for the tokenizer's 257"):
        model_config(from_tree({"model": {"vocab_size": 256}}), 257)


def test_the_rank_that_differs_is_named() -> None:
    same = {"torch": "2.13.0", "manifest": "aa"}
    compare([same, same, same])
    with pytest.raises(TrainUsageError, match=r"rank 2 differs in torch: 2\.12\.0, the others 2\.13\.0"):
        compare([same, same, same | {"torch": "2.12.0"}])
    with pytest.raises(TrainUsageError, match="rank 1 differs in manifest: bb, the others aa"):
        compare([same, same | {"manifest": "bb"}])
