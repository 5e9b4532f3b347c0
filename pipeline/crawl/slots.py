"""Places for requests to a server, shared by all processes of one machine, whichever executor or run they are of.

More exactly, by those with the same user and temporary folder: containers that share none count apart. A place is a
locked file, so a process that is killed gives its place back at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import tempfile
import time
from collections.abc import Iterator

import xxhash

_POLL_SECONDS = 0.02


@contextlib.contextmanager
def place(server: str, count: int) -> Iterator[None]:
    """Waits for one of `count` places at `server` and holds it."""
    folder = os.path.join(tempfile.gettempdir(), f"gristmill-requests-{os.getuid()}")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    name = os.path.join(folder, xxhash.xxh3_64_hexdigest(server.encode()))
    held = _take(name, count)
    while held is None:
        time.sleep(_POLL_SECONDS * random.uniform(0.5, 1.5))
        held = _take(name, count)
    try:
        yield
    finally:
        os.close(held)


def _take(name: str, count: int) -> int | None:
    for number in random.sample(range(count), count):
        file = os.open(f"{name}.{number}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
        else:
            return file
    return None
