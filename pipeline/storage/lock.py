"""One live run per folder.

`_lock` names the holder and its last heartbeat. On a local file system the kernel's flock decides, so a killed run
frees the folder at once; on object stores (and between hosts) the record decides, changed only by conditional puts.
The file stays, marked free, when a run ends: it also marks the folder as ours before there is a run.json.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from contextlib import suppress
from typing import Any

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

from pipeline.errors import GristmillError
from pipeline.storage.files import Files, plain_errors

LOCK = "_lock"
HEARTBEAT_SECONDS = 15.0
STALE_SECONDS = 60.0


class Lock:
    """Held from `acquire` to `release`; `check` raises once another run has taken over."""

    def __init__(self, storage: Files) -> None:
        self._storage = storage
        self._token = uuid.uuid4().hex
        self._descriptor: int | None = None
        self._version: Any = None
        self._stop = threading.Event()
        self._lost = False
        self._thread: threading.Thread | None = None

    def acquire(self) -> None:
        if self._storage.local:
            self._acquire_local()
        else:
            self._acquire_remote()
        self._thread = threading.Thread(target=self._beat, name="gristmill-lock", daemon=True)
        self._thread.start()

    def release(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        with suppress(Exception):  # the run is over; a lock that cannot be freed goes stale by itself
            if not self._lost:
                self._write({"free": True})
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def check(self) -> None:
        if self._lost:
            raise GristmillError(f"{self._storage.uri}: another run took over this folder; this one stops")

    # -- local: flock, then the record for holders on other hosts -----------------------------------------------------

    def _acquire_local(self) -> None:
        path = self._storage.path(LOCK)
        with plain_errors(f"write {self._storage.uri}"):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            held = _flock(self._descriptor)
            record = _parse(os.pread(self._descriptor, 1 << 16, 0))
            if held is False or (record and not _is_over(record, flock=bool(held))):
                raise self._refusal(record)
            with plain_errors(f"write {self._storage.uri}"):
                self._write(self._record())
        except BaseException:
            os.close(self._descriptor)
            self._descriptor = None
            raise

    # -- object stores: conditional puts ------------------------------------------------------------------------------

    def _acquire_remote(self) -> None:
        record, version = self._read_remote()
        if record and not _is_over(record, flock=False):
            raise self._refusal(record)
        self._version = version
        with plain_errors(f"write {self._storage.uri}"):
            try:
                self._write(self._record())
            except _Conflict:
                raise self._refusal(self._read_remote()[0]) from None

    def _read_remote(self) -> tuple[dict[str, Any], Any]:
        fs, path = self._storage.fs, self._storage.path(LOCK)
        with plain_errors(f"read {self._storage.uri}"):
            try:
                version = fs.info(path).get("ETag")
                return _parse(fs.cat_file(path)), version
            except FileNotFoundError:
                return {}, None

    def _write(self, record: dict[str, Any]) -> None:
        data = json.dumps(record).encode()
        if self._descriptor is not None:
            os.pwrite(self._descriptor, data.ljust(512), 0)
            return
        fs, path = self._storage.fs, self._storage.path(LOCK)
        if self._storage.protocol not in ("s3", "s3a"):
            fs.pipe_file(path, data)
            return
        try:
            only_if = {"mode": "create"} if self._version is None else {"IfMatch": self._version}
            answer = fs.pipe_file(path, data, **only_if)
        except Exception as error:
            if _is_conflict(error):
                raise _Conflict from error
            raise
        self._version = answer["ETag"]  # asking for it afterwards could give that of a run that took over in between

    # -- both ----------------------------------------------------------------------------------------------------

    def _record(self) -> dict[str, Any]:
        pid = os.getpid()
        return {"token": self._token, "host": _host(), "pid": pid, "started": _started(pid), "heartbeat": time.time()}

    def _beat(self) -> None:
        while not self._stop.wait(HEARTBEAT_SECONDS):
            try:
                self._write(self._record())
            except _Conflict:
                self._lost = True
                return
            except Exception:  # the store is away for a moment; the next beat tries again
                continue

    def _refusal(self, record: dict[str, Any]) -> GristmillError:
        host, pid = str(record.get("host", "?")).split("/")[0], record.get("pid", "?")
        return GristmillError(
            f"{self._storage.uri} is being written by another run (host {host}, pid {pid}); wait for it or stop it"
        )


class _Conflict(Exception):  # noqa: N818 - never leaves this module
    pass


def _flock(descriptor: int) -> bool | None:
    """True: ours; False: another process has it; None: this file system knows no locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _is_over(record: dict[str, Any], *, flock: bool) -> bool:
    """Whether the recorded holder is gone: freed, dead, or (where its process cannot be seen) silent for a minute."""
    if record.get("free"):
        return True
    if record.get("host") == _host():
        return flock or not _alive(int(record.get("pid", 0)), record.get("started"))
    return bool(time.time() - float(record.get("heartbeat", 0)) > STALE_SECONDS)


def _alive(pid: int, started: Any) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return started is None or _started(pid) in (None, started)


def _started(pid: int) -> str | None:
    """When process `pid` started, in the kernel's own count: tells a process from a later one with its number."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


def _host() -> str:
    """Equal only where process numbers mean the same: host name, boot, and pid namespace."""
    boot = namespace = ""
    with suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = file.read().strip()
    with suppress(OSError):
        namespace = os.readlink("/proc/self/ns/pid")
    return f"{socket.gethostname()}/{boot}/{namespace}"


def _parse(data: bytes) -> dict[str, Any]:
    """The record; {} for an empty or torn file, which is nobody's."""
    try:
        record = json.loads(data or b"{}")
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}


def _is_conflict(error: BaseException) -> bool:
    seen: BaseException | None = error
    while seen is not None:
        response = getattr(seen, "response", None)
        code = str((response or {}).get("Error", {}).get("Code", ""))
        if isinstance(seen, FileExistsError) or code in ("PreconditionFailed", "ConditionalRequestConflict", "412"):
            return True
        seen = seen.__cause__ or seen.__context__
    return "PreconditionFailed" in str(error) or "pre-conditions" in str(error)
