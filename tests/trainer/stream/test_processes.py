"""Four real processes over gloo: the union of ranks is one process's stream, a killed rank goes on exactly."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from tests.trainer.stream import drive, made
from trainer.stream import Loader, StreamConfig, merge

WORLD = 4


def _serve(rank: int, store: str, pipe: Connection) -> None:
    """A rank's process: runs what it is sent, until it is sent nothing."""
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=WORLD)
    while (job := pipe.recv()) is not None:
        try:
            pipe.send((True, job[0](rank, *job[1:])))
        except BaseException:
            pipe.send((False, traceback.format_exc()))
    os._exit(0)  # gloo's own end aborts now and then


class Ranks:
    """One pool of processes for the whole test run."""

    def __init__(self, store: Path) -> None:
        context = mp.get_context("spawn")
        self.pipes = []
        self.processes = []
        for rank in range(WORLD):
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(rank, str(store), there), daemon=True)
            process.start()
            self.pipes.append(here)
            self.processes.append(process)

    def __call__(self, job: Callable[..., Any], *arguments: Any) -> list[Any]:
        for pipe in self.pipes:
            pipe.send((job, *arguments))
        answers = []
        for pipe in self.pipes:
            assert pipe.poll(120), "a rank does not answer"
            answers.append(pipe.recv())
        assert all(fine for fine, _ in answers), answers
        return [answer for _, answer in answers]

    def end(self) -> None:
        for pipe, process in zip(self.pipes, self.processes, strict=True):
            pipe.send(None)
            process.join(20)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    pool = Ranks(tmp_path_factory.mktemp("store") / "file")
    yield pool
    pool.end()


def _train(
    rank: int, config: StreamConfig, state: dict[str, Any] | None, stop: int, dies: int | None, at: int
) -> tuple[list[Any], list[dict[str, Any]], int]:
    """Steps until the all-reduced count of valid targets is 0. Rank `dies` loses its loader after step `at`, and gets
    a new one from the last state that all ranks gathered."""
    loader = Loader(config, rank, WORLD)
    if state is not None:
        loader.load_state_dict(state)
    steps = iter(loader)
    found, gathered, valid_steps = [], [], 0
    for number in range(stop):
        step = next(steps)
        parts = drive.batches(step)
        valid = torch.tensor(sum(int((batch.targets >= 0).sum()) for batch in parts))
        dist.all_reduce(valid)
        if not valid:
            break
        valid_steps += 1
        found.append(drive.by_lane(loader, step))
        states: list[Any] = [None] * WORLD
        dist.all_gather_object(states, loader.state_dict())
        gathered = states
        if rank == dies and number == at:
            del steps, loader
            loader = Loader(config, rank, WORLD)
            loader.load_state_dict(merge(gathered))
            steps = iter(loader)
    return found, gathered, valid_steps


@pytest.mark.parametrize("mode", ["packed", "bucketed"])
def test_the_union_of_ranks_is_one_process(ranks: Ranks, tmp_path: Path, mode: str) -> None:
    lengths = [(7 * i) % 90 for i in range(400)]
    run = made.run(tmp_path / "r", made.numbered(lengths, 25, 4), tokens=True)
    settings = drive.config(run, mode=mode, epochs=2, lanes=8, batch_size=16, tokenizer="stored", threads=2)
    whole, last = drive.steps_at(settings, 1, 10**9)

    answers = ranks(_train, settings, None, 10**9, 2, 3)
    assert {steps for _, _, steps in answers} == {len(whole)}
    union = [dict(sorted({k: v for part in parts for k, v in part.items()}.items())) for parts in
             zip(*(found for found, _, _ in answers), strict=True)]  # fmt: skip
    assert union == whole
    assert merge(answers[0][1]) == last

    first = ranks(_train, settings, None, 5, None, 0)
    state = merge(first[0][1])
    rest, _ = drive.steps_at(settings, 2, 10**9, state)
    assert rest == whole[5:]
    second = ranks(_train, settings, drive.steps_at(settings, 8, 7)[1], 10**9, None, 0)
    union = [dict(sorted({k: v for part in parts for k, v in part.items()}.items())) for parts in
             zip(*(found for found, _, _ in second), strict=True)]  # fmt: skip
    assert union == whole[7:]
