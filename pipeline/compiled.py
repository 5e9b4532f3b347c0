"""`njit`: numba with a compile cache that can always be written, so that only the first process of a node compiles.

numba caches beside the source, else in the user's cache folder. An executor may have neither (a read-only environment,
no home, the project inside a zip); then the cache lies in a folder of this user under the system's temporary one.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core import config

Function = TypeVar("Function", bound=Callable[..., Any])


def _writable_cache() -> None:
    if os.environ.get("NUMBA_CACHE_DIR"):
        return
    here = Path(__file__).parent
    if here.is_dir() and os.access(here, os.W_OK):
        return
    folder = Path(tempfile.gettempdir()) / f"gristmill-numba-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    os.environ["NUMBA_CACHE_DIR"] = str(folder)
    setattr(config, "CACHE_DIR", str(folder))  # noqa: B010 - the module has no types


_writable_cache()


def njit(function: Function) -> Function:
    """Compile to machine code at the first call, cached on disk; results are exact (no fast-math).

    Without numba's reference counts, whose atomic operations at every call cost more than all the rest: a kernel
    cannot allocate, its caller hands it every array it needs.
    """
    options: dict[str, Any] = {"cache": True, "error_model": "numpy", "_nrt": False}
    compiled: Function = numba.njit(**options)(function)
    return compiled
