"""`njit`: numba with a compile cache that is always writable and never stale, so that a node compiles once per version.

numba's own cache lies beside each source file and looks at that file alone, though a compiled kernel holds its callees
of other files too: a cache outlives them. So here the cache's folder is named after the sources of all kernels. It lies
in NUMBA_CACHE_DIR, or in the package's `__pycache__`, or, where that cannot be written (a read-only environment, the
project inside a zip), in a folder of this user under the system's temporary one.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core import config

Function = TypeVar("Function", bound=Callable[..., Any])

_HERE = Path(__file__).parent


def cache_folder() -> Path:
    """Where kernels of this version are kept; made if it is not there."""
    given = os.environ.get("NUMBA_CACHE_DIR")
    beside = _HERE / "__pycache__"
    ours = Path(tempfile.gettempdir()) / f"gristmill-{os.getuid()}"
    for base in [Path(given)] if given else [beside, ours]:
        folder = base / f"numba-{_version()}"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:  # read-only, or no folder at all: next
            continue
        if os.access(folder, os.W_OK):
            return folder
    return Path(tempfile.mkdtemp(prefix="gristmill-numba-"))


def _version() -> str:
    digest = hashlib.sha256()
    if _HERE.is_dir():
        for path in sorted(_HERE.rglob("*.py")):
            source = path.read_bytes()
            if b"njit" in source or path.name == "text_tables.py":
                digest.update(path.relative_to(_HERE).as_posix().encode() + b"\0" + source)
    else:
        archive = next(parent for parent in _HERE.parents if parent.exists())
        stat = archive.stat()
        digest.update(f"{archive}:{stat.st_size}:{stat.st_mtime_ns}".encode())
    return digest.hexdigest()[:12]


setattr(config, "CACHE_DIR", str(cache_folder()))  # noqa: B010 - the module declares no names


def njit(function: Function) -> Function:
    """Compile to machine code at the first call, cached on disk; results are exact (no fast-math).

    Without numba's reference counts, whose atomic operations at every call cost more than all the rest: a kernel
    cannot allocate, its caller hands it every array it needs.
    """
    options: dict[str, Any] = {"cache": True, "error_model": "numpy", "_nrt": False}
    compiled: Function = numba.njit(**options)(function)
    return compiled
