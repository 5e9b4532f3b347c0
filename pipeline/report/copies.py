"""Are there copies among the kept documents? Dedup that ran and did nothing shows here, whatever its counts say."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from pipeline.recipe import Dedup

#: Texts that are looked at: those with the smallest hashes, so of a text all copies or none. 16 bytes each.
SAMPLE = 1 << 18


@dataclass
class Copies:
    """Counts of the `size` texts with the smallest hashes among all that were added."""

    size: int = SAMPLE
    hashes: npt.NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))
    counts: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def documents(self) -> int:
        """Documents looked at."""
        return int(self.counts.sum())

    @property
    def extra(self) -> int:
        """How many of them dedup should have removed."""
        return self.documents - len(self.counts)

    def add(self, texts: npt.NDArray[np.uint64]) -> None:
        found, numbers = np.unique(texts, return_counts=True)
        every = np.concatenate([self.hashes, found])
        order = np.argsort(every, kind="stable")
        every, numbers = every[order], np.concatenate([self.counts, numbers])[order]
        firsts = np.flatnonzero(np.append(True, every[1:] != every[:-1])) if len(every) else np.empty(0, np.int64)
        self.hashes = every[firsts][: self.size]
        self.counts = np.add.reduceat(numbers, firsts)[: self.size] if len(firsts) else numbers


def texts_of(kept: pa.RecordBatch, settings: Dedup) -> npt.NDArray[np.uint64]:
    """64 bits per document, equal for copies that dedup may compare; `kept` has exact_hash, lang and crawl."""
    kept = kept.filter(pc.is_valid(kept["exact_hash"]))
    scopes = [name for name, on in (("lang", settings.per_language), ("crawl", settings.per_crawl)) if on]
    whole = bytes.fromhex("".join(kept["exact_hash"].to_pylist()))
    texts = np.frombuffer(whole, ">u8").reshape(-1, 2)[:, 0].astype(np.uint64)
    for name in scopes:
        encoded = pc.dictionary_encode(pc.fill_null(kept[name], ""))
        names = encoded.dictionary.to_pylist()
        salts = np.array([xxhash.xxh3_64_intdigest(one.encode()) for one in names], np.uint64)
        if len(salts):
            texts ^= salts[np.asarray(encoded.indices)]
            texts *= np.uint64(0x9E3779B97F4A7C15)
    return texts
