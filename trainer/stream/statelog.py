"""States written down every some steps, so that any step can be made again.

One file per rank and state, `state-<step>-<rank>-of-<world>.json`, each with the configuration it belongs to.
"""

from __future__ import annotations

import json
import re
from collections import deque
from typing import Any

import fsspec

from trainer.stream import state as states
from trainer.stream.config import StreamConfig
from trainer.stream.errors import StreamError, StreamUsageError, one_line

_NAME = re.compile(r"state-(\d+)-(\d+)-of-(\d+)\.json$")
#: States of this process that are kept in memory.
_KEPT = 1000


class StateLog:
    def __init__(self, config: StreamConfig, rank: int, world: int) -> None:
        self._config = config
        self._name = f"{rank:04d}-of-{world:04d}"
        self._kept: deque[states.State] = deque(maxlen=_KEPT)

    def every(self, state: states.State) -> None:
        if state["step"] % self._config.log_every == 0:
            self.put(state)

    def put(self, state: states.State) -> None:
        if self._kept and self._kept[-1] == state:
            return
        self._kept.append(state)
        if self._config.log_dir is not None:
            entry = json.dumps({"config": self._config.as_json(), "state": state})
            path = f"{self._config.log_dir}/state-{state['step']:09d}-{self._name}.json"
            try:
                with fsspec.open(path, "w", auto_mkdir=True) as file:
                    file.write(entry)
            except Exception as error:  # of any file system
                raise StreamError(f"{path}: cannot be written ({one_line(error)}); give another log_dir") from None

    def before(self, step: int) -> states.State:
        """The newest state from which `step` can be made. Raises StreamUsageError where none is kept."""
        for state in reversed(self._kept):
            if state["step"] <= step:
                return state
        raise StreamUsageError(f"step {step}: no logged state before it; this loader's states begin later")


def read_log(folder: str, step: int) -> tuple[StreamConfig, states.State]:
    """The newest state of all ranks from which `step` can be made, and its configuration.

    A state of which a rank's file is missing or torn is passed over. Raises StreamUsageError where none is left.
    """
    fs, _, listed = _list(folder)
    found: dict[tuple[int, int], list[str]] = {}
    for path in listed:
        if match := _NAME.search(path):
            found.setdefault((int(match[1]), int(match[3])), []).append(path)
    for (at, world), paths in sorted(found.items(), reverse=True):
        if at > step or len(paths) < world:
            continue
        try:
            entries: list[dict[str, Any]] = [json.loads(fs.cat_file(path)) for path in sorted(paths)]
        except ValueError:
            continue
        try:
            held, config = [entry["state"] for entry in entries], StreamConfig.from_json(entries[0]["config"])
        except (KeyError, TypeError, ValueError) as error:
            raise StreamUsageError(
                f"{paths[0]}: not a logged state ({one_line(error)}); remove it, and the one before it serves"
            ) from None
        return config, states.merge(held)
    raise StreamUsageError(f"{folder}: no complete logged state at or before step {step}")


def has_log(folder: str) -> bool:
    return any(_NAME.search(path) for path in _list(folder)[2])


def _list(folder: str) -> tuple[Any, str, list[str]]:
    """(file system, its path of the folder, what is in it)."""
    try:
        fs, root = fsspec.core.url_to_fs(folder)
        return fs, root, fs.ls(root, detail=False) if fs.isdir(root) else []
    except Exception as error:  # of any file system
        raise StreamError(f"{folder}: cannot be listed ({one_line(error)}); check the address") from None
