"""Checkpoints: written beside training, whole or not at all, readable on any mesh.

A checkpoint is a folder `step-000000120` of DCP files; `complete.json`, written last, lists them with their sizes and
holds all that is no tensor (step, tokens seen, data state of all lanes, faults, loss scale). Without it, or with a
file of it missing or short, a folder is no checkpoint. Nothing relies on rename, and an old checkpoint goes only
after a newer one is complete.

Tensors are saved by the parameters' names in the whole model: `model.NAME` and `optimizer.NAME.KEY`, so neither the
mesh nor the optimiser's own numbering is in the file. There is no RNG state: whatever is random in step n is drawn
from (seed, n) on every mesh (`seed_step`).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.tensor import DTensor

from trainer.errors import TrainError
from trainer.ranks import Ranks, gloo_group
from trainer.step import Trainee
from trainer.stream.errors import one_line

MARK = "complete.json"
VERSION = 1
_NAME = re.compile(r"step-(\d{9})$")
State = dict[str, Any]

warnings.filterwarnings("ignore", message="torch.distributed is disabled")  # one process is no mistake


# ------------------------------------------------------------------------------------------------------ what there is


@dataclass(frozen=True)
class Checkpoint:
    folder: Path
    step: int

    def state(self) -> State:
        state: State = json.loads((self.folder / MARK).read_text("utf-8"))["state"]
        return state


def find(root: Path) -> tuple[list[Checkpoint], list[str]]:
    """The complete checkpoints of a folder, newest first, and what is wrong with each other one."""
    good, odd = [], []
    for folder in sorted(root.glob("step-*"), reverse=True) if root.is_dir() else []:
        match = _NAME.search(folder.name)
        if match is None or not folder.is_dir():
            continue
        wrong = _incomplete(folder)
        if wrong is None:
            good.append(Checkpoint(folder, int(match[1])))
        else:
            odd.append(f"{folder.name} ({wrong})")
    return good, odd


def _incomplete(folder: Path) -> str | None:
    try:
        listed = json.loads((folder / MARK).read_text("utf-8"))
        version, files = listed["version"], listed["files"]
    except FileNotFoundError:
        return "not finished"
    except (OSError, ValueError, KeyError, TypeError):
        return f"{MARK} is torn"
    if version != VERSION:
        raise TrainError(f"{folder}: a checkpoint of version {version}, this trainer reads {VERSION}")
    for name, size in files.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if path.stat().st_size != size:
            return f"{name} has {path.stat().st_size:,} bytes of {size:,}"
    return None


# ------------------------------------------------------------------------------------------------------- the tensors


def settle(trainee: Trainee) -> None:
    """Gives the optimiser all the state that it will ever have, at zero: an empty one would be saved as nothing."""
    for optimizer in trainee.optimizers:
        rates = [group["lr"] for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            group["lr"] = 0.0
            for parameter in group["params"]:
                parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        optimizer.zero_grad(set_to_none=True)
        for state in optimizer.state.values():
            for value in state.values():
                if isinstance(value, Tensor):
                    value.zero_()


def tensors(trainee: Trainee, optimizer: bool = True) -> dict[str, Tensor]:
    """This rank's share of what is saved, by name; they share memory with the training."""
    found: dict[str, Tensor] = {}
    states = [one.state for one in trainee.optimizers]
    for name, parameter in trainee.named_parameters():
        found[f"model.{name}"] = parameter.detach()
        if not optimizer:
            continue
        for state in states:
            for key, value in state.get(parameter, {}).items():
                if not isinstance(value, Tensor):
                    raise TrainError(f"optimizer state {key} of {name} is a {type(value).__name__}, not a tensor")
                found[f"optimizer.{name}.{key}"] = value.detach()
    return found


def staged(shared: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copies in the host's memory: training may go on while they are written.

    `Tensor.cpu()` would do for CUDA only: on a CPU it is the tensor itself, and the file would get later values.
    """

    def copied(tensor: Tensor) -> Tensor:
        local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
        copy = local.to("cpu", copy=True)
        # not from_local, which would take a CPU copy back to the mesh's device
        return DTensor(copy, tensor._spec, requires_grad=False) if isinstance(tensor, DTensor) else copy  # type: ignore[no-untyped-call]

    return {name: copied(tensor) for name, tensor in shared.items()}


# ---------------------------------------------------------------------------------------------------------------- save


class Saver:
    """Writes one checkpoint at a time, in a thread, and keeps the last `keep`."""

    def __init__(self, root: Path, keep: int, ranks: Ranks, timeout: float = 1800.0) -> None:
        self.root, self.keep, self.ranks = root, keep, ranks
        #: the thread's own: its collectives run beside those of training
        self._group = gloo_group(timeout) if ranks.world > 1 else None
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._step = 0

    def save(self, trainee: Trainee, state: State, step: int) -> str | None:
        """Starts to save; returns when training may change the weights. Waits for the save before, and returns what
        went wrong with it, if anything did."""
        problem = self.wait()
        folder = self.root / f"step-{step:09d}"
        there = False
        if self.ranks.first:
            there = folder.is_dir() and _incomplete(folder) is None
            if not there:
                shutil.rmtree(folder, ignore_errors=True)  # what an interrupted save has left
                folder.mkdir(parents=True)
        if self.ranks.from_first(there):  # a step is a function of what came before: it would be the same
            return problem
        copies = staged(tensors(trainee))
        self._step = step
        self._thread = threading.Thread(target=self._work, args=(folder, copies, state), name="gristmill-save")
        self._thread.start()
        return problem

    def wait(self) -> str | None:
        """Until the save in work is done. Returns, on every rank, what went wrong on any."""
        if self._thread is None:
            return None
        self._thread.join()
        self._thread = None
        errors = self.ranks.gather(None if self._error is None else _cause(self._error))
        self._error = None
        wrong = [f"rank {rank}: {error}" for rank, error in enumerate(errors) if error is not None]
        return f"checkpoint of step {self._step} not saved ({wrong[0]})" if wrong else None

    def _work(self, folder: Path, copies: dict[str, Tensor], state: State) -> None:
        try:
            write(folder, copies, state, self.ranks.first, self._group)
            if self.ranks.first:
                self._prune()
        except BaseException as error:  # CheckpointException is no Exception
            self._error = error

    def _prune(self) -> None:
        """Older ones beyond `keep`, and unfinished ones older than the newest, which is complete."""
        good, _ = find(self.root)
        kept = {checkpoint.folder for checkpoint in good[: self.keep]}
        for folder in self.root.glob("step-*"):
            if folder not in kept and folder.name < good[0].folder.name:
                (folder / MARK).unlink(missing_ok=True)  # first: a half-deleted one is not complete
                shutil.rmtree(folder, ignore_errors=True)


def write(
    folder: Path, copies: dict[str, Tensor], state: State, first: bool, group: dist.ProcessGroup | None = None
) -> None:
    """All ranks' tensors, then the mark. When `save` returns on the first rank, every rank has written its files."""
    writer = FileSystemWriter(folder)
    state_dict_saver.save(copies, storage_writer=writer, process_group=group, no_dist=group is None)
    if not first:
        return
    files = {path.name: path.stat().st_size for path in sorted(folder.iterdir()) if path.name != MARK}
    with open(folder / MARK, "w", encoding="utf-8") as file:
        json.dump({"version": VERSION, "files": files, "state": state}, file)
        file.flush()
        os.fsync(file.fileno())


# ---------------------------------------------------------------------------------------------------------------- load


def load(checkpoint: Checkpoint, trainee: Trainee, ranks: Ranks, optimizer: bool = True) -> State:
    """Puts a checkpoint of any mesh into this one. Raises TrainError for keys, shapes or types that are not the same.

    DCP itself passes over what the file has and the model lacks, and casts types in silence: so both are looked at.
    """
    targets = tensors(trainee, optimizer)
    mine = {name: (tuple(tensor.shape), str(tensor.dtype)) for name, tensor in targets.items()}
    wanted: dict[str, tuple[tuple[int, ...], str]] = {}
    for of_rank in ranks.gather(mine):
        wanted |= of_rank
    reader = FileSystemReader(checkpoint.folder)
    try:
        metadata = reader.read_metadata()
        compare(checkpoint.folder, metadata, wanted, optimizer)
        alone = ranks.world == 1
        state_dict_loader.load(dict(targets), storage_reader=reader, process_group=ranks.group, no_dist=alone)
    except TrainError:
        raise
    except (Exception, CheckpointException) as error:
        raise TrainError(f"{checkpoint.folder}: cannot be read ({_cause(error)}); remove it to use an older") from error
    state = checkpoint.state()
    trainee.tokens_seen, trainee.step = state["tokens_seen"], state["step"]
    if trainee.loss_scale is not None and state["loss_scale"] is not None:
        trainee.loss_scale.value, trainee.loss_scale.sound = state["loss_scale"]
    return state


def compare(
    folder: Path, metadata: Metadata, wanted: dict[str, tuple[tuple[int, ...], str]], optimizer: bool = True
) -> None:
    saved = {
        name: (tuple(entry.size), str(entry.properties.dtype))
        for name, entry in metadata.state_dict_metadata.items()
        if isinstance(entry, TensorStorageMetadata) and (optimizer or name.startswith("model."))
    }
    if missing := sorted(wanted.keys() - saved.keys()):
        raise TrainError(f"{folder}: lacks {_some(missing)}; it is of another model or optimizer")
    if extra := sorted(saved.keys() - wanted.keys()):
        raise TrainError(f"{folder}: holds {_some(extra)}, which this run has not; it is of another model or optimizer")
    for name, shape in sorted(wanted.items()):
        if saved[name] != shape:
            raise TrainError(f"{folder}: {name} is {_kind(saved[name])} there and {_kind(shape)} here")


def state_of(trainee: Trainee, **more: Any) -> State:
    """What is no tensor."""
    scale = trainee.loss_scale
    own = {
        "step": trainee.step,
        "tokens_seen": trainee.tokens_seen,
        "loss_scale": None if scale is None else [scale.value, scale.sound],
        "torch": torch.__version__,
    }
    return own | more


def seed_step(seed: int, step: int) -> None:
    """All that torch draws at random in a step is a function of the seed and the step, on every rank and mesh."""
    torch.manual_seed(seed * 1_000_003 + step)


def _some(names: list[str]) -> str:
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def _kind(shape: tuple[tuple[int, ...], str]) -> str:
    return f"{shape[1].removeprefix('torch.')} {list(shape[0])}"


def _cause(error: BaseException) -> str:
    """The first rank's own error out of a CheckpointException, which wraps a traceback of each."""
    if isinstance(error, CheckpointException) and error.failures:
        error = next(iter(error.failures.values()))[0]
    return one_line(error)
