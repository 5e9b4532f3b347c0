"""What a mixture will look like as batches, before a GPU waits for it: `gristmill inspect`.

Lengths, shares and speed are measured on a sample, made by the loader itself in the order of training; tokens stored in
the shards are counted, not sampled.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from trainer.stream.batch import Batch, Utilisation, count
from trainer.stream.config import MODES, StreamConfig
from trainer.stream.loader import Loader
from trainer.stream.packing import PackedRow
from trainer.stream.plan import Order
from trainer.stream.tokens import length_encoder

#: Positions per mode that a sample has; more where only stored lengths are read.
SAMPLE = 2_000_000
STORED_SAMPLE = 20_000_000
SECONDS = 3.0


@dataclass(frozen=True)
class SourceShare:
    name: str
    documents: int
    tokens: int
    #: counted, or the sample's mean times the documents
    exact: bool
    #: share of the mixture
    weight: float
    #: passes over it in the training asked for; None without one
    epochs: float | None


@dataclass(frozen=True)
class Survey:
    sources: list[SourceShare]
    #: floor(log2(tokens)) -> (documents, tokens) of the sampled documents
    lengths: dict[int, tuple[int, int]]
    modes: dict[str, Utilisation]
    #: with documents, masks and tensors, on one core
    tokens_per_second: float
    #: how far from a shuffle of everything: see `mixing`
    displacement: float
    together: int


def survey(config: StreamConfig, train_tokens: int | None = None) -> Survey:
    loaders = {
        mode: Loader(dataclasses.replace(config, mode=mode, threads=0, epochs=None, log_dir=None)) for mode in MODES
    }
    loader = loaders["concat"]
    lengths: Counter[int] = Counter()
    documents, tokens = Counter[int](), Counter[int]()
    modes = {}
    for mode, one in loaders.items():
        seen = Utilisation()
        for rows in _sample(one):
            seen += count(rows)
            if mode == "concat":
                for piece in (piece for row in rows for piece in row.pieces if piece.start == 0):
                    lengths[len(piece.ids)] += 1
                    documents[piece.source] += 1
                    tokens[piece.source] += len(piece.ids)
        modes[mode] = seen
    shares = [_share(loader, i, documents[i], tokens[i], train_tokens) for i in range(len(config.sources))]
    buckets: dict[int, tuple[int, int]] = {}
    for length, many in sorted(lengths.items()):
        bucket = max(1, length).bit_length() - 1
        before = buckets.get(bucket, (0, 0))
        buckets[bucket] = before[0] + many, before[1] + many * length
    displacement, together = mixing(loader)
    return Survey(shares, buckets, modes, speed(config), displacement, together)


def _sample(loader: Loader) -> Iterator[list[PackedRow]]:
    """Steps until about an epoch, or the sample, is through."""
    encoder = length_encoder(loader.manifests, loader.encoder)
    limit = STORED_SAMPLE if encoder is not None else SAMPLE
    rows_left = sum(int(pieces.rows.sum()) for deal in loader.deals for pieces in deal)
    for step in loader.rows_of_all_lanes(encoder):
        rows = [row for of_lane in step for row in of_lane]
        yield rows
        used = count(rows)
        limit -= used.positions
        rows_left -= used.documents
        if limit <= 0 or rows_left <= 0:
            return


def _share(loader: Loader, number: int, documents: int, tokens: int, train_tokens: int | None) -> SourceShare:
    source, manifest = loader.config.sources[number], loader.manifests[number]
    rows = sum(int(pieces.rows.sum()) for pieces in loader.deals[number])
    exact = manifest.tokenizer_sha256 == loader.encoder.sha256
    if exact:
        chosen = [source.languages is None or file.lang in source.languages for file in manifest.files]
        inside = np.array(chosen, dtype=bool)[manifest.groups.file]
        total = int(manifest.groups.n_tokens[inside].sum())
    else:
        total = round(rows * tokens / max(1, documents))
    weight = loader.weights[number] / sum(loader.weights)
    name = source.uri + ("" if source.languages is None else f" ({', '.join(source.languages)})")
    epochs = None if train_tokens is None else train_tokens * weight / max(1, total)
    return SourceShare(name, rows, total, exact, weight, epochs)


def mixing(loader: Loader) -> tuple[float, int]:
    """(displacement, rows shuffled together), the mean over sources and up to 8 lanes of the first epoch.

    Displacement: how far rows stand from their place in the shards' order, the mean distance over that of a uniform
    shuffle (a third of the rows): 0 = not shuffled, 1 = as good as a full shuffle.
    """
    found, sizes = [], []
    for number, deal in enumerate(loader.deals):
        for lane, pieces in enumerate(deal[:8]):
            rows = int(pieces.rows.sum())
            if rows < 2:
                continue
            order = Order(pieces, loader.config.window, loader.config.seed, number, lane, 0)
            first = loader.manifests[number].groups.first
            positions = []
            at = 0
            while at < rows:
                window = order.window_at(at)
                positions.append(window.pieces.positions(first)[window.order])
                sizes.append(len(window))
                at += len(window)
            ranks = np.argsort(np.argsort(np.concatenate(positions)))
            found.append(float(np.abs(ranks - np.arange(rows)).mean()) / ((rows * rows - 1) / (3 * rows)))
    return (sum(found) / len(found), round(sum(sizes) / len(sizes))) if found else (math.nan, 0)


def speed(config: StreamConfig) -> float:
    """Tokens per second of CPU time that one core makes ready, after the first step."""
    steps = iter(Loader(dataclasses.replace(config, threads=0, epochs=None, log_dir=None, pin_memory=False)))
    next(steps)
    tokens, begin = 0, time.process_time()
    while (spent := time.process_time() - begin) < SECONDS and tokens < 50 * SAMPLE:
        step = next(steps)
        tokens += sum(batch.utilisation.tokens for batch in ([step] if isinstance(step, Batch) else step))
    return tokens / max(spent, 1e-9)


def verify(loader: Loader) -> list[str]:
    """Names of the files whose sha256 is not the manifest's. Reads everything."""
    return [
        f"{manifest.folder}/{file.path}"
        for manifest, reader in zip(loader.manifests, loader.readers, strict=True)
        for file in manifest.files
        if reader.sha256(file) != file.sha256
    ]
