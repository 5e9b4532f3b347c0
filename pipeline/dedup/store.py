"""Shingle hashes of documents that a task still has to compare with, by any key."""

from __future__ import annotations

import tempfile
from collections.abc import Hashable
from typing import IO

import numpy as np

from pipeline.shingles import Hashes

MEMORY_BYTES = 256 << 20


class ShingleStore:
    """In memory up to a bound, beyond it in a temporary file that ends with the store."""

    def __init__(self, memory_bytes: int = MEMORY_BYTES) -> None:
        self._memory_bytes = memory_bytes
        self._held = 0
        self._arrays: dict[Hashable, Hashes] = {}
        self._places: dict[Hashable, tuple[int, int]] = {}
        self._file: IO[bytes] | None = None

    def __enter__(self) -> ShingleStore:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file:
            self._file.close()

    def clear(self) -> None:
        self._held = 0
        self._arrays.clear()
        if self._file:
            self._places.clear()
            self._file.seek(0)
            self._file.truncate()

    def add(self, key: Hashable, hashes: Hashes) -> None:
        if self._held + hashes.nbytes <= self._memory_bytes:
            self._held += hashes.nbytes
            self._arrays[key] = hashes.copy()  # a view would hold its whole batch
            return
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="gristmill-kept-")  # noqa: SIM115 - closed by __exit__
        at = self._file.seek(0, 2)
        self._file.write(hashes.data)
        self._places[key] = (at, hashes.nbytes)

    def get(self, key: Hashable) -> Hashes | None:
        array = self._arrays.get(key)
        if array is not None:
            return array
        place = self._places.get(key)
        if place is None or self._file is None:
            return None
        self._file.seek(place[0])
        return np.frombuffer(self._file.read(place[1]), np.uint32)
