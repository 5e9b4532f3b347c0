"""What a resumed run needs: plain JSON, a few numbers per lane and source, of no rank or world.

A rank's state holds its own lanes; `merge` puts the ranks' states together; any degree that divides the lanes takes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainer.stream.errors import StreamUsageError
from trainer.stream.packing import REACH, Cursor

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
    """Raises StreamUsageError for a damaged state, or one that names the saved and the present value of the first
    difference."""
    if isinstance(state, dict) and state.get("version", VERSION) != VERSION:
        raise StreamUsageError(f"data state of version {state.get('version')}, this loader reads {VERSION}")
    if odd := _odd(state):
        raise StreamUsageError(
            f"the saved data state is damaged ({odd}); take another checkpoint, or start the data anew (--reset-data)"
        )
    saved = state["fingerprint"]
    for name in sorted({*saved, *mine}):
        if saved.get(name) != mine.get(name):
            raise StreamUsageError(
                f"{say}the saved data state is of another {name}: saved {saved.get(name)}, now {mine.get(name)}; "
                "resume with the saved one, or start the data anew (--reset-data)"
            )


def _odd(state: Any) -> str | None:
    """What no `make` has written; a cursor out of place would leave documents out, or give them twice, unsaid."""
    if not isinstance(state, dict):
        return f"a {type(state).__name__}, not an object"
    kinds = {"version": int, "fingerprint": dict, "step": int, "batch_size": int, "lanes": dict, "quarantine": list}
    for name, kind in kinds.items():
        if not isinstance(state.get(name), kind):
            return f"{name} is not there" if name not in state else f"{name}: {state[name]!r}"[:100]
    if state["step"] < 0:
        return f"step {state['step']}"
    count, sources = state["fingerprint"].get("lanes"), state["fingerprint"].get("manifest")
    if not isinstance(count, int) or not isinstance(sources, list):
        return "its fingerprint lacks lanes or manifest"
    for lane, of_lane in state["lanes"].items():
        if lane not in map(str, range(count)):
            return f"lane {lane!r} of {count}"
        if not isinstance(of_lane, list) or len(of_lane) != len(sources) or not all(map(_sound, of_lane)):
            return f"lane {lane}: {of_lane!r}"[:100]
    for fault in state["quarantine"]:
        if not _numbers(fault, 3) or min(fault) < 0:
            return f"quarantine: {fault!r}"[:100]
    return None


def _numbers(value: Any, count: int) -> bool:
    return isinstance(value, list | tuple) and len(value) == count and all(type(number) is int for number in value)


def _sound(numbers: Any) -> bool:
    if not _numbers(numbers, len(Cursor._fields)):
        return False
    cursor = Cursor(*numbers)
    counts = min(cursor.epoch, cursor.base, cursor.mask, cursor.offset, cursor.emitted) >= 0
    return counts and cursor.mask < 1 << REACH and -1 <= cursor.open < REACH


def cursors(state: State, lanes: Sequence[int]) -> dict[int, list[Cursor]]:
    """The cursors of these lanes. Raises StreamUsageError where the state lacks some."""
    held = state["lanes"]
    if missing := [lane for lane in lanes if str(lane) not in held]:
        raise StreamUsageError(
            f"the saved data state holds {len(held)} of {state['fingerprint']['lanes']} lanes and this rank needs "
            f"{len(lanes)} (lane {missing[0]} is not there): one rank's state of another layout; merge all ranks' first"
        )
    return {lane: [Cursor(*numbers) for numbers in held[str(lane)]] for lane in lanes}
