"""Which documents a step held, made again from the nearest logged state: no index is kept, the order is the index."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
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
    made = make_step(loader.with_state(loader.log.before(step)), step)
    rows = [span for batch in made for span in batch.span]
    found = columns(loader, {(span.source, span.position) for row in rows for span in row}, ("record_id",))
    return [[_origin(loader, span, found[span.source, span.position]["record_id"]) for span in row] for row in rows]


def replay_logged(folder: str, step: int) -> Loader:
    """A loader of all lanes of the run that logged its states to `folder`, at the nearest one before `step`."""
    config, state = read_log(folder, step)
    loader = Loader(dataclasses.replace(config, log_dir=None, threads=0, batch_size=state["batch_size"]))
    loader.load_state_dict(state)
    return loader


def make_step(loader: Loader, step: int) -> list[Batch]:
    """The batches of a step that is still to come."""
    if step < loader.state_dict()["step"]:
        raise StreamUsageError(f"step {step}: the first that can be made is {loader.state_dict()['step']}")
    for made in loader:
        batches = [made] if isinstance(made, Batch) else made
        if batches[0].step == step:
            return batches
    raise StreamUsageError(f"step {step}: the run ends at step {loader.state_dict()['step']}")


def pieces(loader: Loader, step: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """(row of the step, fields of Origin with `url` and `text`) of every piece; of a cut document its part's text.

    Of stored tokens no text can be told without their tokenizer: there it is the document's whole text.
    """
    row = 0
    for batch in make_step(loader, step):
        wanted = {(span.source, span.position) for spans in batch.span for span in spans}
        known = columns(loader, wanted, ("record_id", "url", "text"))
        for spans, tokens in zip(batch.span, batch.tokens.tolist(), strict=True):
            at = 0
            for span in spans:
                stop = at + span.end - span.start - 1
                stored = known[span.source, span.position]
                origin = dataclasses.asdict(_origin(loader, span, stored["record_id"]))
                text = loader.encoder.decode(tokens[at:stop])
                yield row, origin | {"url": stored["url"], "text": stored["text"] if text is None else text}
                at = stop
            row += 1


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
