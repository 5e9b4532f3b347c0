"""Train a model on curated runs, or go on with one. Started alone it starts the processes that the mesh takes; under
torchrun, or Slurm by it, the same command is one of them.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jobs.inspection import need_torch, plain_errors
from pipeline.errors import GristmillError, first_line

if TYPE_CHECKING:
    from trainer.config import TrainConfig

#: flag -> (key of the configuration, type, metavar, help)
FLAGS: dict[str, tuple[str, type, str, str]] = {
    "model": ("model.size", str, "SIZE", "1m, 15m (default), 124m, 1b, 8b"),
    "steps": ("run.steps", int, "N", "of the whole run (default 200)"),
    "out": ("run.out", str, "RUN", "the run's folder (default `trained`)"),
    "batch-size": ("data.batch_size", int, "B", "rows per step over all processes (default 16)"),
    "seq-len": ("data.seq_len", int, "T", "positions per row (default 512)"),
    "accumulation": ("data.accumulation", int, "N", "passes per step (default 1)"),
    "tokenizer": ("data.tokenizer", str, "FILE", "a tokenizer.json, `stored`, or `bytes` (default)"),
    "learning-rate": ("optimizer.learning_rate", float, "X", "at the top of the schedule (default 0.003)"),
    "dp": ("parallel.dp_replicate", int, "N", "copies of the model (default 1)"),
    "fsdp": ("parallel.dp_shard", int, "N", "shards of each copy (default 1)"),
    "tp": ("parallel.tp", int, "N", "tensor parallel (default 1)"),
    "pp": ("parallel.pp", int, "N", "pipeline stages (default 1)"),
    "schedule": ("parallel.schedule", str, "NAME", "of the pipeline (default 1F1B)"),
    "precision": ("parallel.precision", str, "NAME", "fp32 (default), bf16, fp16, fp64"),
    "seed": ("run.seed", int, "S", "of data order and first weights (default 0)"),
    "device": ("run.device", str, "NAME", "cpu or cuda (default: cuda where there is one)"),
}
#: seconds between the end of the first process and the end of those that ignore SIGTERM
_SIGKILL_AFTER = 15


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", nargs="+", metavar="DIR", help="curated runs, each may end in @WEIGHT")
    parser.add_argument("--validation", nargs="+", metavar="DIR", help="curated runs to measure on, not to train on")
    add_flags(parser)
    parser.add_argument("--reset-data", action="store_true", help="go on with the weights, begin the data anew")
    parser.add_argument(
        "--restarts", type=int, default=0, metavar="N", help="start again, from the last checkpoint, so often"
    )


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", help="a TOML file; flags come before it, --set before both")
    for flag, (_, kind, metavar, text) in FLAGS.items():
        parser.add_argument(f"--{flag}", type=kind, metavar=metavar, help=text)
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="key=value", help="any key")


def flags(args: argparse.Namespace) -> dict[str, Any]:
    """Dotted key -> value of the flags that were given."""
    given = {key: getattr(args, flag.replace("-", "_")) for flag, (key, *_) in FLAGS.items()}
    for key, name in (("data.dir", "data"), ("validation.dir", "validation")):
        if getattr(args, name, None):
            given[key] = tuple(getattr(args, name))
    return given


def run(args: argparse.Namespace) -> int:
    need_torch()
    with plain_errors():
        from trainer.config import load

        config = load(args.config, flags(args), args.overrides)
        from trainer.ranks import asked
        from trainer.train import check_mesh

        check_mesh(config, asked() if asked() > 1 else config.parallel.world)
    if asked() == 1 and config.parallel.world > 1:
        return launch(config.parallel.world, args.restarts)
    return as_one_of_many(lambda: _train(config, args.reset_data))


def _train(config: TrainConfig, reset_data: bool) -> None:
    from trainer.train import train

    train(config, reset_data=reset_data)


# --------------------------------------------------------------------------------------------------------- processes


def launch(processes: int, restarts: int = 0) -> int:
    """This same command in `processes` processes of this machine, by torchrun's own machinery.

    The first process that ends badly ends the others, within a second where they listen and `_SIGKILL_AFTER` where
    they do not.
    """
    import logging

    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("TORCH_ELASTIC_WORKER_IDENTICAL", "0")
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id="gristmill",
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=restarts,
        monitor_interval=0.2,
        signals_to_handle="SIGTERM,SIGINT,SIGHUP",
    )
    try:
        elastic_launch(config, sys.executable)("-m", "jobs.cli", *sys.argv[1:])
    except ChildFailedError as error:
        # a process that was killed takes the others with it, within the moment between two looks: it is the cause
        rank, failure = min(error.failures.items(), key=lambda at: (at[1].exitcode >= 0, at[1].timestamp))
        if failure.exitcode < 0:
            how = f"was ended by {signal.Signals(-failure.exitcode).name}"
        else:
            how = f"ended with status {failure.exitcode}"
        failed = GristmillError(f"rank {rank} {how}; the same command goes on from the last checkpoint")
        failed.exit_status = 2 if failure.exitcode == 2 else 1
        raise failed from None
    return 0


def as_one_of_many(work: Callable[[], None]) -> int:
    """Runs a rank's work. With others beside it, it ends at once and without ceremony, well or badly: tearing down
    groups whose other ends hang would hang too, and torchrun waits for the first process to end."""
    from trainer.ranks import asked

    alone = asked() == 1
    try:
        with plain_errors():
            work()
    except BaseException as error:
        from trainer.out_of_memory import advice as advice_on

        advice = advice_on(error)
        if alone:
            if advice and not isinstance(error, GristmillError | KeyboardInterrupt):
                raise GristmillError(advice) from error
            raise
        if os.environ.get("GRISTMILL_DEBUG"):
            traceback.print_exc()
        known = str(error) if isinstance(error, GristmillError) else f"{type(error).__name__}: {first_line(error)}"
        print(f"gristmill: rank {os.environ['RANK']}: {advice or known}", file=sys.stderr, flush=True)
        os._exit(error.exit_status if isinstance(error, GristmillError) else 1)
    if not alone:
        sys.stdout.flush()
        os._exit(0)
    return 0
