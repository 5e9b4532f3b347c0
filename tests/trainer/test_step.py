"""One step is the same step on every mesh: the norm, the count, tied weights, first weights; and what is refused."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from tests.trainer import pool
from tests.trainer.pool import MODEL, made, train
from trainer.errors import TrainUsageError
from trainer.loss import bits_per_byte, cross_entropy_sum, perplexity
from trainer.model import SIZES
from trainer.optim import OptimizerConfig, learning_rate
from trainer.parallel import SCHEDULES, ParallelConfig, refuse, stage_layers
from trainer.step import build_trainee, split, train_step
from trainer.workers import Workers

ONE = ParallelConfig(precision="fp64")
FSDP = ParallelConfig(dp_shard=2, precision="fp64")
TP = ParallelConfig(tp=2, precision="fp64")
PP = ParallelConfig(pp=2, microbatches=4, precision="fp64")
SPLIT = {"pp": 2, "schedule": "DualPipeV", "microbatches": 4}
ZBV = dataclasses.replace(PP, schedule="ZBVZeroBubble")


def same(found: dict, expected: dict, bar: float = 1e-9) -> None:
    assert found["losses"] == pytest.approx(expected["losses"], rel=bar)
    assert found["norms"] == pytest.approx(expected["norms"], rel=bar)
    assert found["held"] == pytest.approx(expected["held"], rel=bar)
    for ours, theirs in zip(found["weights"], expected["weights"], strict=True):
        for name, weight in ours.items():
            assert (weight - theirs[name]).abs().max() <= bar * theirs[name].abs().max(), name


def test_loss_is_the_library_s_and_its_gradients_too() -> None:
    torch.manual_seed(0)
    hidden = torch.randn(2, 5, 8, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(11, 8, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(0, 11, (2, 5))
    targets[0, :3] = -100
    ours = cross_entropy_sum(hidden, weight, targets)
    theirs = F.cross_entropy((hidden @ weight.T).flatten(0, 1), targets.flatten(), reduction="sum")
    assert ours.item() == pytest.approx(theirs.item(), rel=1e-13)
    for a, b in zip(
        torch.autograd.grad(ours, (hidden, weight)), torch.autograd.grad(theirs, (hidden, weight)), strict=True
    ):
        assert torch.allclose(a, b, rtol=1e-12, atol=1e-13)
    assert cross_entropy_sum(hidden, weight, torch.full((2, 5), -100)).item() == 0.0


def test_perplexity_and_bits_per_byte() -> None:
    assert perplexity(2 * math.log(8), 2) == pytest.approx(8)
    assert bits_per_byte(math.log(2) * 12, 4) == pytest.approx(3)


@pytest.mark.parametrize("order", [2.0, math.inf])
def test_case_63_the_norm_is_of_all_ranks(workers: Workers, order: float) -> None:
    (norm, clipped) = workers.run(pool.huge_on_one_rank, 1, ParallelConfig(), order)[0]
    assert norm >= 1e4
    for found in workers.run(pool.huge_on_one_rank, 2, ParallelConfig(dp_shard=2), order):
        assert found == pytest.approx((norm, clipped), rel=1e-5)


def test_case_66_how_a_batch_is_cut_changes_nothing(workers: Workers) -> None:
    rows, steps = 16, 1
    (whole,) = workers.run(train, 1, ONE, MODEL, None, steps, 1, rows)
    for world, parallel, accumulation in ((1, ONE, 4), (1, ONE, 16), (2, FSDP, 1), (2, FSDP, 8)):
        for found in workers.run(train, world, parallel, MODEL, None, steps, accumulation, rows):
            same(found, whole)


def test_case_69_tied_weights_stay_one(workers: Workers) -> None:
    tied = dataclasses.replace(MODEL, tied=True)
    (one,) = workers.run(train, 1, ONE, tied, None, 3)
    assert "head.weight" not in one["weights"][0]
    for parallel in (FSDP, TP, PP, ZBV):
        ranks = workers.run(train, 2, parallel, tied, None, 3)
        for found in ranks:  # a pipeline's ends each bring `embedding.weight`: both equal the one
            same(found, one)
        held = ["embedding.weight" in found["weights"][0] for found in ranks]
        assert held == [True, parallel is not ZBV]  # on a V both ends lie on rank 0


def test_first_weights_are_bit_equal_on_every_mesh(workers: Workers) -> None:
    (one,) = workers.run(pool.first_weights, 1, ParallelConfig(), MODEL)
    assert len({float(w[0, 0]) for w in one.values() if w.ndim == 2}) == sum(w.ndim == 2 for w in one.values())
    meshes = [
        ParallelConfig(dp_shard=2),
        ParallelConfig(tp=2),
        ParallelConfig(pp=2, microbatches=4),
        ParallelConfig(dp_shard=2, tp=2),
        ParallelConfig(dp_replicate=2, dp_shard=2),
    ]
    for parallel in meshes:
        found: dict[str, torch.Tensor] = {}
        for part in workers.run(pool.first_weights, parallel.world, parallel, MODEL):
            found |= part
        assert found.keys() == one.keys()
        assert all(torch.equal(found[name], one[name]) for name in one)


def test_muon_is_one_step_on_every_mesh(workers: Workers) -> None:
    muon = OptimizerConfig(name="muon")
    (one,) = workers.run(train, 1, ONE, MODEL, muon)
    for parallel in (FSDP, TP):
        for found in workers.run(train, 2, parallel, MODEL, muon):
            same(found, one)


def test_half_precision_steps_stay_near(workers: Workers) -> None:
    (one,) = workers.run(train, 1, ParallelConfig(), MODEL)
    for precision in ("bf16", "fp16"):
        for found in workers.run(train, 2, ParallelConfig(dp_shard=2, precision=precision), MODEL):
            assert all(found["finite"])
            assert found["losses"] == pytest.approx(one["losses"], rel=2e-3)
            assert found["losses"] != one["losses"]


def test_one_batch_is_learnt_by_heart() -> None:
    torch.set_num_threads(1)
    trainee = build_trainee(MODEL, ParallelConfig(), OptimizerConfig(learning_rate=1e-2), rows=4, seq_len=16)
    batch = made(1, 4, 16)
    for _ in range(200):
        result = train_step(trainee, [batch])
        if result.loss < 0.05:
            break
    assert result.loss < 0.05


def test_a_step_that_is_not_finite_or_has_no_target_is_not_taken() -> None:
    trainee = build_trainee(MODEL, ParallelConfig(), OptimizerConfig(), rows=4, seq_len=16)
    before = [p.clone() for p in trainee.parts[0].parameters()]
    batch = made(1, 4, 16)
    empty = dataclasses.replace(batch, targets=torch.full_like(batch.targets, -100))
    assert not train_step(trainee, [empty]).stepped
    hook = trainee.parts[0].layers()[0].register_forward_hook(lambda _m, _i, out: out * math.nan)
    assert not train_step(trainee, [batch]).finite
    hook.remove()
    assert all(torch.equal(a, b) for a, b in zip(before, trainee.parts[0].parameters(), strict=True))
    assert trainee.tokens_seen == 0
    assert train_step(trainee, [batch]).stepped


def test_the_rate_follows_tokens() -> None:
    cosine = OptimizerConfig(learning_rate=1.0, warmup_tokens=100, total_tokens=1100)
    assert learning_rate(50, cosine) == pytest.approx(0.5)
    assert learning_rate(600, cosine) == pytest.approx(0.55)
    assert learning_rate(5000, cosine) == pytest.approx(0.1)
    wsd = dataclasses.replace(cosine, schedule="wsd")
    assert learning_rate(800, wsd) == pytest.approx(1.0)
    assert learning_rate(1000, wsd) == pytest.approx(0.55)


@pytest.mark.parametrize(
    ("changed", "world", "mode", "says"),
    [
        ({"tp": 3}, 3, "packed", "take tp=2"),
        ({"dp_shard": 2}, 4, "packed", "dp_shard=4"),
        ({"dp_shard": 3}, 3, "packed", "take 9"),
        (SPLIT | {"activation_checkpointing": "selective"}, 2, "packed", "=full"),
        (SPLIT | {"compile": True}, 2, "packed", "compile=false"),
        ({"pp": 2}, 2, "bucketed", "mode=packed"),
        ({"pp": 8}, 8, "packed", "take pp=4"),
        ({"pp": 2, "microbatches": 3}, 2, "packed", "take 2"),
        ({"schedule": "1f1b"}, 1, "packed", "one of GPipe, 1F1B"),
        ({"precision": "fp8"}, 1, "packed", "one of fp32"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_what_can(changed: dict, world: int, mode: str, says: str) -> None:
    with pytest.raises(TrainUsageError) as refused:
        refuse(ParallelConfig(**changed), MODEL, world=world, batch_size=8, seq_len=32, mode=mode)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_what_can_be_is_not_refused() -> None:
    for schedule in SCHEDULES:
        refuse(ParallelConfig(pp=2, schedule=schedule, microbatches=4), MODEL, world=2, batch_size=8, seq_len=32)
    for size in SIZES.values():
        refuse(ParallelConfig(), size, world=1, batch_size=1, seq_len=16)
    assert [len(r) for r in stage_layers(10, 4)] == [2, 3, 3, 2]


def test_a_batch_does_not_split_unevenly() -> None:
    with pytest.raises(TrainUsageError, match="divisor"):
        split(made(0, 4), 3)
