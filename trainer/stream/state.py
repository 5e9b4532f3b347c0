"""What a resumed run needs: plain JSON, a few numbers per lane and source, of no rank or world.

A rank's state holds its own lanes; `merge` puts the ranks' states together; any degree that divides the lanes takes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainer.stream.errors import StreamUsageError
from trainer.stream.packing import Cursor

State = dict[str, Any]
VERSION = 1


def make(
    fingerprint: Mapping[str, Any], step: int, batch_size: int, lanes: Mapping[int, list[Cursor]], faults: list[Any]
) -> State:
    return {
        "version": VERSION,
        "fingerprint": dict(fingerprint),
        "step": step,
        "batch_size": batch_size,
        "lanes": {str(lane): [list(cursor) for cursor in cursors] for lane, cursors in lanes.items()},
        "quarantine": [list(fault) for fault in faults],
    }


def merge(states: Sequence[State]) -> State:
    """The ranks' states of one step as one. Raises StreamUsageError for states of different steps or runs, lanes that
    are missing, or lanes that two ranks claim to have read."""
    if not states:
        raise StreamUsageError("no state to merge")
    first = states[0]
    lanes: dict[str, Any] = {}
    faults: dict[tuple[int, ...], None] = {}
    for state in states:
        check_fingerprint(state, first["fingerprint"], "states of different runs: ")
        if state["step"] != first["step"]:
            raise StreamUsageError(f"states of different steps, {first['step']} and {state['step']}; merge one step's")
        for lane, cursors in state["lanes"].items():
            if lanes.setdefault(lane, cursors) != cursors:
                raise StreamUsageError(f"two states differ on lane {lane}: two ranks read the same lanes")
        faults |= dict.fromkeys(tuple(fault) for fault in state["quarantine"])
    count = first["fingerprint"]["lanes"]
    missing = [lane for lane in range(count) if str(lane) not in lanes]
    if missing:
        raise StreamUsageError(
            f"{len(missing)} of {count} lanes are in no state (first: lane {missing[0]}): give the states of all ranks"
        )
    ordered = {lane: lanes[lane] for lane in sorted(lanes, key=int)}
    return {**first, "lanes": ordered, "quarantine": sorted(list(fault) for fault in faults)}


def check_fingerprint(state: State, mine: Mapping[str, Any], say: str = "") -> None:
    """Raises StreamUsageError that names the saved and the present value of the first difference."""
    if state.get("version") != VERSION:
        raise StreamUsageError(f"data state of version {state.get('version')}, this loader reads {VERSION}")
    saved = state["fingerprint"]
    for name in sorted({*saved, *mine}):
        if saved.get(name) != mine.get(name):
            raise StreamUsageError(
                f"{say}the saved data state is of another {name}: saved {saved.get(name)}, now {mine.get(name)}; "
                "resume with the saved one, or start the data anew (--reset-data)"
            )


def cursors(state: State, lanes: Sequence[int]) -> dict[int, list[Cursor]]:
    """The cursors of these lanes. Raises StreamUsageError where the state lacks some."""
    held = state["lanes"]
    if missing := [lane for lane in lanes if str(lane) not in held]:
        raise StreamUsageError(
            f"the saved data state holds {len(held)} of {state['fingerprint']['lanes']} lanes and this rank needs "
            f"{len(lanes)} (lane {missing[0]} is not there): one rank's state of another layout; merge all ranks' first"
        )
    return {lane: [Cursor(*numbers) for numbers in held[str(lane)]] for lane in lanes}
