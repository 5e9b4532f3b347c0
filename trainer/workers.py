"""A few processes that stay: spawned once, handed functions of any mesh up to their number. For `verify` and tests.

Importing torch costs each process 3 s, so they are kept between calls, and a new group of processes is made for each
(FileStore: no ports). Spawned, never forked: a fork inherits locks that threads of the loader or gloo hold.
"""

from __future__ import annotations

import gc
import os
import pickle
import tempfile
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from time import monotonic
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch._C._distributed_c10d import FileStore

from trainer.errors import TrainError


class Workers:
    """`most` processes with one thread each. Use as a context."""

    def __init__(self, most: int = 4) -> None:
        self.most = most
        self._context = multiprocessing.get_context("spawn")
        self._running: list[tuple[Any, Connection]] = []

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, function: Callable[..., Any], world: int, *arguments: Any, timeout: float = 120.0) -> list[Any]:
        """`function(*arguments)` on `world` processes that form one group; their results by rank.

        The function is a module's own, and its arguments and results pickle. Raises TrainError with the first rank's
        traceback where one fails, dies or takes longer than `timeout` seconds; the processes are then made anew.
        """
        self._start(world)
        with tempfile.TemporaryDirectory() as folder:
            for rank in range(world):
                self._running[rank][1].send((function, arguments, rank, world, str(Path(folder) / "store"), timeout))
            results: dict[int, Any] = {}
            until = monotonic() + timeout
            while len(results) < world:
                missing = {self._running[rank][1]: rank for rank in range(world) if rank not in results}
                ready = wait(list(missing), max(0.0, until - monotonic()))
                if not ready:
                    self._fail(f"ranks {sorted(missing.values())} of {world} not done after {timeout:.0f} s")
                for pipe in ready:
                    rank = missing[pipe]  # type: ignore[index]
                    try:
                        sound, value = pickle.loads(self._running[rank][1].recv_bytes())
                    except EOFError:
                        self._fail(f"rank {rank} of {world} died")
                    if not sound:
                        self._fail(f"rank {rank} of {world}: {value}")
                    results[rank] = value
        return [results[rank] for rank in range(world)]

    def _start(self, world: int) -> None:
        if world > self.most:
            raise TrainError(f"{world} processes asked of {self.most}")
        while len(self._running) < world:
            ours, theirs = self._context.Pipe()
            process = self._context.Process(target=_serve, args=(theirs,), daemon=True)
            process.start()
            theirs.close()
            self._running.append((process, ours))

    def _fail(self, message: str) -> None:
        for process, _ in self._running:
            process.kill()
        self.close()
        raise TrainError(message)

    def close(self) -> None:
        for process, pipe in self._running:
            pipe.close()
            process.join(10)
            if process.is_alive():
                process.kill()
        self._running.clear()


def _serve(pipe: Connection) -> None:
    torch.set_num_threads(1)
    while True:
        try:
            function, arguments, rank, world, store, timeout = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            os._exit(0)  # gloo's threads may abort an ordinary exit
        try:
            if world > 1:
                dist.init_process_group(
                    "gloo",
                    store=FileStore(store, world),
                    rank=rank,
                    world_size=world,
                    timeout=timedelta(0, timeout),
                )
            result = (True, function(*arguments))
        except BaseException:
            result = (False, traceback.format_exc())
        # As bytes: torch would send a tensor as a handle on shared memory, which the receiver has to ask for in time.
        pipe.send_bytes(pickle.dumps(result))
        gc.collect()  # what FSDP and DTensor hold of the group goes first, or gloo's teardown aborts
        if result[0] and dist.is_initialized():
            dist.destroy_process_group()
