"""What a run reads and how it is batched."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from numbers import Integral, Real
from typing import Any

from trainer.stream.errors import StreamUsageError
from trainer.stream.manifest import Manifest
from trainer.stream.tokens import BYTES, Encoder

MODES = ("packed", "concat", "bucketed")
UNITS = ("tokens", "documents")
#: Positions of a step over all ranks: far above any in use, and a slip of the hand is told before memory is asked for.
MOST_POSITIONS = 1 << 31


@dataclass(frozen=True)
class Source:
    """One part of a mixture: a run's folder or some of its languages, and its share (of what `weights_by` counts)."""

    uri: str
    weight: float | None = None
    languages: tuple[str, ...] | None = None


def sources_of(given: Iterable[str]) -> tuple[Source, ...]:
    """Runs as a command line names them: each a folder or address, which may end in @WEIGHT."""
    sources = []
    for text in given:
        uri, at, weight = text.rpartition("@")
        try:
            sources.append(Source(uri, float(weight)) if at else Source(text))
        except ValueError:
            sources.append(Source(text))
    return tuple(sources)


@dataclass(frozen=True)
class StreamConfig:
    sources: tuple[Source, ...]
    #: positions per row, T
    seq_len: int
    #: rows per step over all ranks, B; may change between steps
    batch_size: int
    mode: str = "packed"
    #: None: the largest power of two up to 64 that divides the batch size; fixed for the run
    lanes: int | None = None
    seed: int = 0
    #: passes over each source; None: without end
    epochs: int | None = None
    #: `bytes`, `stored`, or the address of a tokenizer.json
    tokenizer: str = BYTES
    eos_id: int | None = None
    weights_by: str = "tokens"
    #: row groups shuffled together
    window: int = 4
    #: threads that read and encode; 0: all in the caller's
    threads: int = 2
    #: steps made ahead
    prefetch: int = 2
    #: None: where CUDA is
    pin_memory: bool | None = None
    #: record ids, or (source, position); may change between runs
    exclude: tuple[str | tuple[int, int], ...] = ()
    #: where the states go that `lineage` starts from
    log_dir: str | None = None
    log_every: int = 100

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, tree: dict[str, Any]) -> StreamConfig:
        sources = tuple(
            Source(s["uri"], s["weight"], None if s["languages"] is None else tuple(s["languages"]))
            for s in tree["sources"]
        )
        exclude = tuple(e if isinstance(e, str) else (int(e[0]), int(e[1])) for e in tree["exclude"])
        return cls(**{**tree, "sources": sources, "exclude": exclude})


@dataclass(frozen=True)
class Checked:
    """A configuration that fits: what is derived from it and the manifests once."""

    lanes: int
    weights: list[float]
    excluded_positions: list[list[int]] = field(default_factory=list)
    excluded_ids: frozenset[str] = frozenset()


def check(config: StreamConfig, manifests: Sequence[Manifest], rank: int, world: int) -> Checked:
    """Raises StreamUsageError, by name, for what cannot be."""
    for name, value, allowed in (("mode", config.mode, MODES), ("weights_by", config.weights_by, UNITS)):
        if value not in allowed:
            raise StreamUsageError(f"{name} {value!r}: one of {', '.join(allowed)}")
    least = {"seq_len": 1, "batch_size": 1, "window": 1, "threads": 0, "prefetch": 1, "log_every": 1, "seed": None}
    optional = {"lanes": 1, "epochs": None, "eos_id": None}
    for name, smallest in {**least, **optional}.items():
        value = getattr(config, name)
        if value is None and name in optional:
            continue
        if type(value) is not int:  # NumPy's would not go into a state's JSON
            raise StreamUsageError(f"{name} {value!r}: a whole number")
        if smallest is not None and value < smallest:
            raise StreamUsageError(f"{name} {value}: at least {smallest}")
    if config.batch_size * config.seq_len > MOST_POSITIONS:
        raise StreamUsageError(
            f"batch_size {config.batch_size} x seq_len {config.seq_len} is over {MOST_POSITIONS:,} positions a step: "
            "take less of one"
        )
    if config.epochs is not None and config.epochs < 1:
        raise StreamUsageError(f"epochs {config.epochs}: at least 1, or none for a stream without end")
    lanes = config.lanes or next(n for n in (64, 32, 16, 8, 4, 2, 1) if config.batch_size % n == 0)
    check_layout(lanes, config.batch_size, rank, world)
    positions: list[list[int]] = [[] for _ in config.sources]
    for entry in config.exclude:
        if not isinstance(entry, str):
            if not (
                isinstance(entry, tuple | list) and len(entry) == 2 and all(isinstance(n, Integral) for n in entry)
            ):
                raise StreamUsageError(f"exclude {entry!r}: a record id, or (source, position)")
            source, position = entry
            if not 0 <= source < len(manifests) or not 0 <= position < manifests[source].rows:
                raise StreamUsageError(f"exclude {source}:{position}: no such source or position")
            positions[source].append(position)
    ids = frozenset(entry for entry in config.exclude if isinstance(entry, str))
    return Checked(lanes, _weights(config, manifests), positions, ids)


def check_layout(lanes: int, batch_size: int, rank: int, world: int) -> None:
    if batch_size % lanes:
        raise StreamUsageError(f"batch size {batch_size} is no multiple of the run's {lanes} lanes; take one that is")
    if world < 1:
        raise StreamUsageError(f"data-parallel degree {world}: at least 1")
    if lanes % world:
        fitting = [n for n in range(1, lanes + 1) if lanes % n == 0]
        raise StreamUsageError(
            f"data-parallel degree {world} does not divide the run's {lanes} lanes: take one of {fitting}"
            + ("" if batch_size % world else f", or start a run with lanes={world}")
        )
    if not 0 <= rank < world:
        raise StreamUsageError(f"data rank {rank} of {world}: ranks count from 0")


def _weights(config: StreamConfig, manifests: Sequence[Manifest]) -> list[float]:
    if not config.sources:
        raise StreamUsageError("no source to read")
    sizes: list[float] = []
    for source, manifest in zip(config.sources, manifests, strict=True):
        known = {file.lang for file in manifest.files}
        for lang in source.languages or ():
            if lang not in known:
                raise StreamUsageError(f"{source.uri} has no language {lang!r}; it has {', '.join(sorted(known))}")
        chosen = [source.languages is None or file.lang in source.languages for file in manifest.files]
        groups = manifest.groups
        column = groups.n_chars if config.weights_by == "tokens" else groups.rows
        inside = [chosen[file] for file in groups.file.tolist()]
        if not groups.rows[inside].sum():
            raise StreamUsageError(f"{source.uri} holds no document to train on; curate more, or leave it out")
        sizes.append(max(1.0, float(column[inside].sum())))
    given = [source.weight for source in config.sources if source.weight is not None]
    if not given:
        return sizes
    sound = all(isinstance(weight, Real) and 0 < weight < math.inf for weight in given)
    if len(given) < len(sizes) or not sound:
        raise StreamUsageError("weights: one number above 0 for every source, or none for their natural shares")
    return given


def fingerprint(
    config: StreamConfig, checked: Checked, manifests: Sequence[Manifest], encoder: Encoder
) -> dict[str, object]:
    """What makes the stream what it is. Not in it: batch size, threads, number of epochs, exclusions."""
    return {
        "manifest": [f"run {manifest.run_id} {manifest.digest[:16]}" for manifest in manifests],
        "recipe": {
            "mode": config.mode,
            "seq_len": config.seq_len,
            "window": config.window,
            "weights": checked.weights,
            "weights_by": config.weights_by,
            "languages": [list(s.languages) if s.languages is not None else None for s in config.sources],
        },
        "tokenizer": f"{encoder.sha256[:16]} in {encoder.column}, eos {encoder.eos_id}",
        "seed": config.seed,
        "lanes": checked.lanes,
    }
