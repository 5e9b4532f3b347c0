"""Memory back to the system after something huge, so that what comes next does not stand on top of it.

A worker with its child, on 40 pages of 50 MB: 1.17 GB at the most, 1.74 GB without (tests/bench/memory.py).
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import pyarrow as pa

HUGE = 8 << 20  #: bytes or characters of one document from which it pays


def give_back() -> None:
    """Freed memory of Arrow's pool and of C's heap; the latter with glibc only."""
    pa.default_memory_pool().release_unused()
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Any:
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
