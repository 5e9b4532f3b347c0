"""Runs a loader and says what it gave, in forms that can be compared."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from trainer.stream import Batch, Loader, Source, StreamConfig, merge

#: One step: per lane its rows, each row its spans.
Step = list[list[list[tuple[int, int, int, int]]]]


def config(*runs: Path | Source, **settings: Any) -> StreamConfig:
    sources = tuple(r if isinstance(r, Source) else Source(str(r)) for r in runs)
    return StreamConfig(**{"sources": sources, "seq_len": 64, "batch_size": 8, "threads": 0, **settings})


def batches(step: Batch | list[Batch]) -> list[Batch]:
    return [step] if isinstance(step, Batch) else step


def by_lane(loader: Loader, step: Batch | list[Batch]) -> dict[int, list[list[Any]]]:
    """The rows of this rank's step, under the lanes that they are from."""
    found: dict[int, list[list[Any]]] = defaultdict(list)
    if isinstance(step, list):
        for lane, batch in zip(loader.lanes, step, strict=True):
            found[lane] = [[tuple(span) for span in row] for row in batch.span]
    else:
        for index, row in enumerate(step.span):
            found[loader.lanes[index % len(loader.lanes)]].append([tuple(span) for span in row])
    return dict(found)


def steps_at(
    settings: StreamConfig, world: int, count: int, state: dict[str, Any] | None = None
) -> tuple[list[dict[int, Any]], dict[str, Any]]:
    """`count` steps (fewer where the data ends) over `world` ranks: lane -> rows of each; the merged state after."""
    loaders = [Loader(settings, rank, world) for rank in range(world)]
    for loader in loaders:
        if state is not None:
            loader.load_state_dict(state)
    iterators = [iter(loader) for loader in loaders]
    found = []
    for _ in range(count):
        made = [next(iterator, None) for iterator in iterators]
        if made[0] is None or not sum(b.utilisation.tokens for step in made for b in batches(step)):
            break
        union: dict[int, Any] = {}
        for loader, step in zip(loaders, made, strict=True):
            union |= by_lane(loader, step)
        found.append(dict(sorted(union.items())))
    for iterator in iterators:
        iterator.close()
    return found, merge([loader.state_dict() for loader in loaders])


def covered(steps: Iterable[dict[int, Any]]) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """(source, position) -> its spans in the order of their starts."""
    found: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for step in steps:
        for rows in step.values():
            for row in rows:
                for source, position, start, end in row:
                    found[source, position].append((start, end))
    return {key: sorted(spans) for key, spans in found.items()}


def assert_covered(steps: Iterable[dict[int, Any]], lengths: dict[tuple[int, int], int], epochs: int = 1) -> None:
    """Each document's tokens but its first are targets exactly `epochs` times (`lengths`: ids without the end)."""
    found = covered(steps)
    assert set(found) == {key for key, length in lengths.items() if length}
    for key, spans in found.items():
        hits = [0] * (lengths[key] + 1)
        for start, end in spans:
            for token in range(start + 1, end):
                hits[token] += 1
        assert hits == [0] + [epochs] * lengths[key], key


def assert_tensors(batch: Batch, ids_of: Any, eos_id: int) -> None:
    """The tensors hold what the spans say; `ids_of(source, position)` gives a document's ids with its end."""
    for r, row in enumerate(batch.span):
        at = 0
        for number, (source, position, start, end) in enumerate(row):
            ids = torch.tensor(ids_of(source, position)[start:end])
            stop = at + len(ids) - 1
            assert batch.tokens[r, at:stop].tolist() == ids[:-1].tolist()
            assert batch.targets[r, at:stop].tolist() == ids[1:].tolist()
            assert set(batch.document_ids[r, at:stop].tolist()) == {number}
            assert batch.positions[r, at:stop].tolist() == list(range(stop - at))
            at = stop
        assert (batch.document_ids[r, at:] == -1).all()
        assert (batch.targets[r, at:] == -100).all()
        assert (batch.tokens[r, at:] == eos_id).all()
