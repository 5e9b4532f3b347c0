"""Which documents a step held, made again from the nearest logged state: no index is kept, the order is the index."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from trainer.stream.batch import Batch, Span
from trainer.stream.errors import StreamUsageError
from trainer.stream.loader import Loader
from trainer.stream.statelog import read_log


@dataclass(frozen=True)
class Origin:
    """Tokens [start, end) of a document, and where it lies: `row` counts within the shard, `position` in the run."""

    run: str
    shard: str
    row: int
    record_id: str
    source: int
    position: int
    start: int
    end: int


def replay(loader: Loader, step: int) -> list[list[Origin]]:
    """Per row of this loader's rank in `step`, its pieces in order. Costs the encoding of the steps since the state."""
    return origins(loader, spans(loader.with_state(loader.log.before(step)), step))


def replay_logged(folder: str, step: int) -> tuple[Loader, list[list[Origin]]]:
    """The same for all ranks of a run that logged its states to `folder`."""
    config, state = read_log(folder, step)
    loader = Loader(dataclasses.replace(config, log_dir=None, threads=0, batch_size=state["batch_size"]))
    loader.load_state_dict(state)
    return loader, origins(loader, spans(loader, step))


def spans(loader: Loader, step: int) -> list[list[Span]]:
    for made in loader:
        batches = [made] if isinstance(made, Batch) else made
        if batches[0].step == step:
            return [span for batch in batches for span in batch.span]
    raise StreamUsageError(f"step {step}: the run ends at step {loader.state_dict()['step']}")


def origins(loader: Loader, rows: list[list[Span]]) -> list[list[Origin]]:
    ids = columns(loader, {(span.source, span.position) for row in rows for span in row}, ("record_id",))
    return [[_origin(loader, span, ids[span.source, span.position]["record_id"]) for span in row] for row in rows]


def _origin(loader: Loader, span: Span, record_id: str) -> Origin:
    manifest = loader.manifests[span.source]
    file, row = manifest.place(span.position)
    return Origin(manifest.run_id, file.path, row, record_id, *span)


def columns(
    loader: Loader, wanted: Iterable[tuple[int, int]], names: tuple[str, ...]
) -> dict[tuple[int, int], dict[str, Any]]:
    """Columns of the rows at (source, position); each row group is read once."""
    found: dict[tuple[int, int], dict[str, Any]] = {}

    def group(place: tuple[int, int]) -> tuple[int, int]:
        return place[0], loader.manifests[place[0]].group_of(place[1])

    for (source, number), places in groupby(sorted(wanted), key=group):
        groups = loader.manifests[source].groups
        inside = [(place, place[1] - int(groups.first[number])) for place in places]
        low, high = inside[0][1], inside[-1][1] + 1
        arrays = loader.readers[source].read(number, low, high - low, names)
        for place, row in inside:
            found[place] = {name: array[row - low].as_py() for name, array in zip(names, arrays, strict=True)}
    return found
