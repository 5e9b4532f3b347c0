"""A made-up corpus of any size with planted duplicates, stored as a run stores its records, and the truth about it.

Documents are 80 to 160 words of 50,000 made-up ones, so that strangers share nothing. Planted among them: trees of
edits (each document a copy of an earlier one of its tree with up to three words changed), chains whose neighbours have
Jaccard 0.83, and one page of which there are many copies, two thirds of them with one number changed. The members of a
cluster are spread over the files of its writer.

The truth of a cluster is the greedy pass over all its pairs that share a band, written down here once more, in plain
numpy: see `survivors`.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from pipeline.datasets import RECORDS
from pipeline.dedup.candidates import bounds
from pipeline.dedup.signature import signature
from pipeline.dedup.verify import jaccard
from pipeline.recipe import Dedup
from pipeline.shingles import Hashes, shingle
from pipeline.storage import Part, PartWriter, Storage

FILES_PER_WRITER = 8
CHAIN = 1000
HOT = "hot"  #: file names begin with it where the many copies of one page lie

_TRUTH = pa.schema(
    [("record_id", pa.string()), ("cluster", pa.string()), ("kept", pa.bool_()), ("kept_by_all_pairs", pa.bool_())]
)


@dataclass(frozen=True)
class Shape:
    """How many documents of which kind."""

    singles: int
    trees: int  # documents in trees
    chains: int  # chains of CHAIN documents
    hot: int

    @classmethod
    def of(cls, documents: int, hot: int, trees: float = 0.2) -> Shape:
        """A fifth in trees, one hundredth in chains (one chain at least), `hot` copies of one page besides."""
        chains = max(1, round(documents / 100 / CHAIN)) if documents >= 2 * CHAIN else 0
        in_trees = round(documents * trees)
        return cls(documents - in_trees - chains * CHAIN, in_trees, chains, hot)

    def share(self, writer: int, writers: int) -> Shape:
        """What one of the writers makes; those of the hot page are all of the last one's."""
        part = {
            name: (getattr(self, name) * (writer + 1)) // writers - getattr(self, name) * writer // writers
            for name in ("singles", "trees", "chains")
        }
        return Shape(**part, hot=self.hot if writer == writers - 1 else 0)


@dataclass(frozen=True)
class Document:
    text: str
    score: float
    record_id: str

    @property
    def n_words(self) -> int:
        return self.text.count(" ") + 1

    @property
    def priority(self) -> tuple[float, int, str]:
        """The smaller, the better."""
        return -self.score, -self.n_words, self.record_id


@dataclass(frozen=True)
class Measured:
    document: Document
    exact_hash: str
    hashes: Hashes
    signature: Hashes

    @classmethod
    def of(cls, document: Document, settings: Dedup) -> Measured:
        one = shingle(document.text, settings)
        return cls(document, one.exact_hash, one.hashes, signature(one.hashes, settings))


@dataclass(frozen=True)
class Cluster:
    name: str
    documents: list[Document]


@cache
def vocabulary() -> npt.NDArray[np.object_]:
    generator = random.Random(7)
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    words = {"".join(generator.choices(letters, k=generator.randint(3, 9))) for _ in range(55_000)}
    return np.array(sorted(words)[:50_000], object)


def write(folder: Path, shape: Shape, settings: Dedup, processes: int = 2, rows_per_file: int = 16_000) -> list[Part]:
    """Records and the truth about them under `folder`; the parts in order."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "truth").mkdir(parents=True)
    total = shape.singles + shape.trees + shape.chains * CHAIN
    writers = max(processes, round(total / FILES_PER_WRITER / rows_per_file))
    task = partial(_write_share, folder, shape, settings, writers)
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        parts = [part for some in pool.map(task, range(writers)) for part in some]
    Storage(str(folder)).commit("records", "bench", parts)
    return parts


def clusters(shape: Shape, seed: int) -> Iterator[Cluster]:
    """The share of one writer, a single being a cluster of one."""
    generator = np.random.default_rng(seed)
    number = 0

    def name(kind: str) -> str:
        nonlocal number
        number += 1
        return f"{kind}-{seed}-{number}"

    def documents(texts: list[list[str]]) -> list[Document]:
        scores = generator.integers(0, 10, len(texts)) / 10
        drawn = generator.integers(0, 1 << 62, len(texts))
        return [
            Document(" ".join(text), float(score), xxhash.xxh3_128_hexdigest(f"{seed} {number} {i} {salt}".encode()))
            for i, (text, score, salt) in enumerate(zip(texts, scores, drawn, strict=True))
        ]

    for _ in range(shape.singles):
        yield Cluster(name("single"), documents([random_words(generator, int(generator.integers(80, 161)))]))
    left = shape.trees
    while left > 0:
        size = min(left, int(generator.integers(2, 51)))
        left -= size
        yield Cluster(name("tree"), documents(tree(generator, size)))
    for _ in range(shape.chains):
        yield Cluster(name("chain"), documents(chain(generator, CHAIN)))
    if shape.hot:
        page = random_words(generator, 120)
        copies = [[*page[:60], f"{i}" if i % 3 else "0", *page[60:]] for i in range(shape.hot)]
        yield Cluster(name(HOT), documents(copies))


def random_words(generator: np.random.Generator, n: int) -> list[str]:
    words = vocabulary()
    return list(words[generator.integers(0, len(words), n)])


def tree(generator: np.random.Generator, size: int) -> list[list[str]]:
    texts = [random_words(generator, int(generator.integers(80, 161)))]
    while len(texts) < size:
        text = list(texts[int(generator.integers(len(texts)))])
        for at in generator.integers(0, len(text), int(generator.integers(0, 4))):
            text[at] = random_words(generator, 1)[0]
        texts.append(text)
    return texts


def chain(generator: np.random.Generator, links: int, size: int = 400, step: int = 32) -> list[list[str]]:
    """Each text replaces the next `step` words of the one before: neighbours at Jaccard 0.83, others below 0.7."""
    texts = [random_words(generator, size)]
    for link in range(1, links):
        at = (link - 1) * step % size
        texts.append([*texts[-1][:at], *random_words(generator, step), *texts[-1][at + step :]][:size])
    return texts


def _write_share(folder: Path, shape: Shape, settings: Dedup, writers: int, writer: int) -> list[Part]:
    storage = Storage(str(folder))
    names = [f"part-{writer:03}-{i}" for i in range(FILES_PER_WRITER)]
    share = shape.share(writer, writers)
    spread = random.Random(writer)
    parts: list[Part] = []
    truth: list[dict[str, object]] = []
    for stems, kinds in ((names, replace(share, hot=0)), ([f"{HOT}-{i}" for i in range(4)], Shape(0, 0, 0, share.hot))):
        if not any((kinds.singles, kinds.trees, kinds.chains, kinds.hot)):
            continue
        sinks = [PartWriter(storage, "records", stem, RECORDS) for stem in stems]
        waiting: list[list[Measured]] = [[] for _ in sinks]
        for cluster in clusters(kinds, 1000 + writer):
            measured = [Measured.of(document, settings) for document in cluster.documents]
            for one in measured:
                at = spread.randrange(len(sinks))
                waiting[at].append(one)
                if len(waiting[at]) == 1000:
                    sinks[at].write(_records(waiting[at]))
                    waiting[at].clear()
            if len(measured) > 1:
                truth += _truth(cluster.name, measured, settings)
        for sink, rest in zip(sinks, waiting, strict=True):
            if rest:
                sink.write(_records(rest))
            parts.append(sink.close())
    pq.write_table(pa.Table.from_pylist(truth, schema=_TRUTH), folder / "truth" / f"{writer:03}.parquet")
    return parts


def _records(measured: list[Measured]) -> pa.RecordBatch:
    n = len(measured)
    texts = [one.document.text for one in measured]
    values = {
        "record_id": [one.document.record_id for one in measured],
        "text": texts,
        "lang": ["en"] * n,
        "lang_score": [1.0] * n,
        "quality_score": [one.document.score for one in measured],
        "n_words": [one.document.n_words for one in measured],
        "n_chars": [len(text) for text in texts],
        "n_letters": [len(text) for text in texts],
        "exact_hash": [one.exact_hash for one in measured],
        "signature": [one.signature for one in measured],
    }
    columns = [pa.array(values[f.name], f.type) if f.name in values else pa.nulls(n, f.type) for f in RECORDS]
    return pa.RecordBatch.from_arrays(columns, schema=RECORDS)


def _truth(cluster: str, measured: list[Measured], settings: Dedup) -> list[dict[str, object]]:
    documents = [one.document for one in measured]
    order = sorted(range(len(documents)), key=lambda i: documents[i].priority)
    hashes = [one.hashes for one in measured]
    met = survivors(order, hashes, np.stack([one.signature for one in measured]), settings)
    small = len(order) <= 100  # all pairs of a chain or of the hot page would take hours
    every = survivors(order, hashes, None, settings) if small else met
    return [
        {"record_id": document.record_id, "cluster": cluster, "kept": i in met, "kept_by_all_pairs": i in every}
        for i, document in enumerate(documents)
    ]


def survivors(order: list[int], hashes: list[Hashes], signatures: Hashes | None, settings: Dedup) -> set[int]:
    """The greedy over all pairs: best first, a document goes if one that is kept is like it.

    With `signatures`, over the pairs that share a band and are alike enough by their signature, as dedup states it.
    """
    kept: list[int] = []
    bands = minima = np.empty((0, 0), np.uint32)
    if signatures is not None:
        used = settings.bands * settings.rows
        bands = signatures[:, :used].reshape(len(signatures), settings.bands, settings.rows)
        minima = signatures[:, : min(128, settings.permutations)].astype(np.uint8)
    for i in order:
        others = kept
        if signatures is not None and kept:
            at = np.array(kept)
            share = (bands[at] == bands[i]).all(axis=2).any(axis=1)
            share &= (minima[at] == minima[i]).sum(axis=1) >= bounds(settings).pair
            others = at[share].tolist()
        if not any(jaccard(hashes[i], hashes[k]) >= settings.threshold for k in others):
            kept.append(i)
    return set(kept)
