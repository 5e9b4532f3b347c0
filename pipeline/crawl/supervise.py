"""One item's crash, endless loop or greed ends that item only: items are handled in a forked child under watch.

The child announces each item in a shared page before it starts it, and writes each result into a pipe as it ends.
When the child dies, or its item passes the limit on CPU time or memory, that item is tried once more, first and alone
in a fresh child, and what happens then is its verdict. A new child goes on behind it. Results come in order, each once.

CPU time and peak memory are checked by the child after each item and by the parent meanwhile, on the same clocks, so
that verdicts depend neither on load nor on when the parent looks. Wall time is a backstop of ten times the CPU limit.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import fcntl
import gc
import mmap
import os
import pickle
import resource
import select
import signal
import struct
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from pipeline.errors import GristmillError
from pipeline.memory import HUGE, give_back

Key = TypeVar("Key")
Item = TypeVar("Item")
Verdict = Literal["ok", "error", "timeout", "memory", "crash"]

MIB = 1024 * 1024
WALL_FACTOR = 10
#: Reading up to the next item may take this many times an item's CPU time: passing over a huge record takes seconds.
SOURCE_FACTOR = 30
#: Past the limit allocations fail outright; the slack keeps small overshoots for the parent and child to see.
RLIMIT_SLACK_MIB = 160
POLL_SECONDS = 0.05
_READ = 64 * 1024

_SLOT = struct.Struct("=qqddq")  # items begun, phase, CPU and wall seconds at its start, resident bytes at fork
_FRAME = struct.Struct("=Q")
_READING, _HANDLING, _SENDING, _OVER_CPU, _OVER_MEMORY = range(5)
_PR_SET_PDEATHSIG = 1
_F_SETPIPE_SZ = 1031


@dataclass(frozen=True, slots=True)
class Outcome(Generic[Key]):
    """`value` is what `handle` returned (`ok`), else what `describe` says of the item; `detail` is for people."""

    key: Key
    verdict: Verdict
    value: Any
    detail: str | None = None


class SourceError(GristmillError):
    """The items themselves could not be read on: a matter of the file, not of one item."""


def supervised(
    open_items: Callable[[Key | None], Iterator[tuple[Key, Item]]],
    handle: Callable[[Item], Any],
    *,
    describe: Callable[[Item], Any] = lambda item: None,
    cpu_seconds: float,
    memory_mib: float,
) -> Iterator[Outcome[Key]]:
    """One outcome per item of `open_items(None)`, in order.

    `open_items(after)` runs in the child and yields (key, item) from behind the item with that key; it opens its own
    connections. Keys, results and descriptions are pickled. An exception in `handle` is the verdict `error`; one in
    `open_items` is raised here, as it is where it can be pickled. Load and warm what `handle` needs before the call.
    """
    limits = _Limits(cpu_seconds, int(memory_mib * MIB))
    after: Key | None = None
    alone = False
    while True:
        child = _Child(open_items, handle, describe, limits, after, alone)
        described: tuple[Any, Any] | None = None
        finished = again = False
        try:
            for kind, key, value, detail in child.messages():
                if kind == "end":
                    finished = True
                elif kind == "again":
                    again = True
                elif kind == "begin":
                    described = (key, value)
                elif kind == "source":
                    raise value if isinstance(value, GristmillError) else SourceError(str(detail))
                else:
                    yield Outcome(key, kind, value, detail)
                    after = key
                    described = None
        finally:
            death = child.close()
        if finished:
            return
        if again:
            alone = False
        elif not alone:
            alone = True
        elif described is None:
            raise SourceError(f"reading the next record failed twice: {death[0]} ({death[1]})")
        else:
            key, value = described
            yield Outcome(key, death[0], value, death[1])
            after = key
            alone = False


@dataclass(frozen=True, slots=True)
class _Limits:
    cpu_seconds: float
    memory: int


class _Child:
    def __init__(
        self,
        open_items: Callable[[Any], Iterator[tuple[Any, Any]]],
        handle: Callable[[Any], Any],
        describe: Callable[[Any], Any],
        limits: _Limits,
        after: Any,
        alone: bool,
    ) -> None:
        self._limits = limits
        self._slot = mmap.mmap(-1, mmap.PAGESIZE)
        self._killed: tuple[Verdict, str] | None = None
        self._status: int | None = None
        self._pipe, write_end = os.pipe()
        _widen(write_end)
        parent = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # threads of the parent hold no lock we use
            self._pid = os.fork()
        if self._pid == 0:
            try:
                os.close(self._pipe)
                _prepare(parent, limits)
                _Worker(self._slot, write_end, limits).run(open_items, handle, describe, after, alone)
                os._exit(0)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(70)
        os.close(write_end)
        os.set_blocking(self._pipe, False)

    def messages(self) -> Iterator[tuple[Any, Any, Any, Any]]:
        """What the child sends until it ends or is killed; what was sent before a kill still comes."""
        poll = select.poll()
        poll.register(self._pipe, select.POLLIN | select.POLLHUP)
        buffer = bytearray()
        next_look = time.monotonic() + POLL_SECONDS
        while True:
            poll.poll(POLL_SECONDS * 1000)
            try:
                chunk = os.read(self._pipe, _READ)
            except BlockingIOError:
                chunk = None
            if chunk == b"":
                return
            if chunk:
                buffer += chunk
                yield from _frames(buffer)
            now = time.monotonic()
            if now >= next_look and self._killed is None:
                next_look = now + POLL_SECONDS
                self._killed = self._over_limit(now)
                if self._killed:
                    os.kill(self._pid, signal.SIGKILL)

    def _over_limit(self, now: float) -> tuple[Verdict, str] | None:
        _, phase, cpu, wall, resident = _SLOT.unpack_from(self._slot)
        if phase not in (_READING, _HANDLING) or wall == 0:
            return None
        try:
            used = _cpu_seconds(self._pid) - cpu
            grown = _resident(self._pid) - resident
        except OSError:  # it has just ended
            return None
        allowed = self._limits.cpu_seconds * (SOURCE_FACTOR if phase == _READING else 1)
        if used > allowed:
            return "timeout", f"more than {allowed:g} s of CPU time"
        # The backstop spares a child that merely waits for its turn on a busy machine, as far as ten times go.
        if now - wall > max(allowed, 1) * WALL_FACTOR:
            return "timeout", f"more than {max(allowed, 1) * WALL_FACTOR:g} s"
        if grown > self._limits.memory:
            return "memory", f"more than {self._limits.memory // MIB} MiB"
        return None

    def close(self) -> tuple[Verdict, str]:
        """Ends the child, where it still runs, and says how it died."""
        os.close(self._pipe)
        phase = _SLOT.unpack_from(self._slot)[1]
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        if pid == 0:
            # Its end of the pipe may close a moment before it is a zombie.
            if self._killed is None:
                deadline = time.monotonic() + 0.2
                while pid == 0 and time.monotonic() < deadline:
                    time.sleep(0.002)
                    pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid == 0:
                os.kill(self._pid, signal.SIGKILL)
                _, status = os.waitpid(self._pid, 0)
        self._slot.close()
        if self._killed:
            return self._killed
        if phase == _OVER_CPU:
            return "timeout", f"more than {self._limits.cpu_seconds:g} s of CPU time"
        if phase == _OVER_MEMORY:
            return "memory", f"more than {self._limits.memory // MIB} MiB"
        if os.WIFSIGNALED(status):
            return "crash", f"the process died of {signal.Signals(os.WTERMSIG(status)).name}"
        return "crash", f"the process ended with status {os.WEXITSTATUS(status)}"


class _Worker:
    """What runs in the child."""

    def __init__(self, slot: mmap.mmap, pipe: int, limits: _Limits) -> None:
        self._slot = slot
        self._pipe = pipe
        self._limits = limits
        self._resident = _resident(os.getpid())
        self._base = _peak_resident()

    def run(
        self,
        open_items: Callable[[Any], Iterator[tuple[Any, Any]]],
        handle: Callable[[Any], Any],
        describe: Callable[[Any], Any],
        after: Any,
        alone: bool,
    ) -> None:
        pack, slot, resident = _SLOT.pack_into, self._slot, self._resident
        begun = 0
        pack(slot, 0, begun, _READING, time.process_time(), time.monotonic(), resident)
        try:
            items = iter(open_items(after))
            while True:
                entry = next(items, None)
                if entry is None:
                    break
                key, item = entry
                if alone:
                    self._send("begin", key, describe(item), None)
                begun += 1
                cpu = time.process_time()
                pack(slot, 0, begun, _HANDLING, cpu, time.monotonic(), resident)
                verdict, value, detail = self._handle(handle, describe, item)
                used = time.process_time() - cpu
                peak = _peak_resident() - self._base
                if used > self._limits.cpu_seconds:
                    return self._give_up(_OVER_CPU)
                if peak > self._limits.memory:
                    return self._give_up(_OVER_MEMORY)
                pack(slot, 0, begun, _SENDING, 0.0, 0.0, resident)
                del item, entry
                sent = self._send(verdict, key, value, detail)
                del value
                if sent > HUGE:
                    give_back()
                if alone:
                    self._send("again", None, None, None)
                    return
                if peak > self._limits.memory // 2 and _resident(os.getpid()) - resident > self._limits.memory // 4:
                    # What earlier items left behind would count against the next one.
                    self._send("again", None, None, None)
                    return
                pack(slot, 0, begun, _READING, time.process_time(), time.monotonic(), resident)
        except MemoryError:
            return self._give_up(_OVER_MEMORY)
        except Exception as error:
            pack(slot, 0, begun, _SENDING, 0.0, 0.0, resident)
            known = error if isinstance(error, GristmillError) else None
            self._send("source", None, known, f"{type(error).__name__}: {error}")
            return
        pack(slot, 0, begun, _SENDING, 0.0, 0.0, resident)
        self._send("end", None, None, None)

    def _handle(
        self, handle: Callable[[Any], Any], describe: Callable[[Any], Any], item: Any
    ) -> tuple[Verdict, Any, str | None]:
        try:
            return "ok", handle(item), None
        except MemoryError:
            raise
        except BaseException as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{os.path.basename(frame.filename)}:{frame.lineno}"
            return "error", describe(item), f"{type(error).__name__}: {error} ({where})"

    def _give_up(self, phase: int) -> None:
        _SLOT.pack_into(self._slot, 0, 0, phase, 0.0, 0.0, self._resident)

    def _send(self, *message: Any) -> int:
        """Bytes of the message."""
        body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        view = memoryview(_FRAME.pack(len(body)) + body) if len(body) < 65536 else None
        if view is None:
            self._write(memoryview(_FRAME.pack(len(body))))
            view = memoryview(body)
        self._write(view)
        return len(body)

    def _write(self, view: memoryview) -> None:
        while view:
            view = view[os.write(self._pipe, view) :]


def _frames(buffer: bytearray) -> Iterator[tuple[Any, Any, Any, Any]]:
    """The whole messages in `buffer`, which then holds the rest."""
    at = 0
    while len(buffer) - at >= _FRAME.size:
        (size,) = _FRAME.unpack_from(buffer, at)
        end = at + _FRAME.size + size
        if len(buffer) < end:
            break
        with memoryview(buffer) as whole, whole[at + _FRAME.size : end] as body:
            message = pickle.loads(body)
        at = end
        if size > HUGE:  # its bytes need not stay while it is written
            del buffer[:at]
            at = 0
        yield message
    del buffer[:at]


def _prepare(parent: int, limits: _Limits) -> None:
    """Makes the forked child die with its parent, ignore the parent's handlers and keep within its memory."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM, signal.SIGCHLD, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    faulthandler.disable()  # a crash is a verdict here, told in one place
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(71)
    gc.freeze()  # collections then leave the parent's pages alone, which stay shared
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    cap = _data_bytes() + limits.memory + RLIMIT_SLACK_MIB * MIB
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (cap if hard == resource.RLIM_INFINITY else min(cap, hard), hard))


def _widen(pipe: int) -> None:
    """A larger pipe lets the child run ahead while the parent writes."""
    with contextlib.suppress(OSError):
        fcntl.fcntl(pipe, _F_SETPIPE_SZ, MIB)


def _cpu_seconds(pid: int) -> float:
    """CPU time of the process with all its threads; its clock's id is made as the C library makes it."""
    return time.clock_gettime((~pid << 3) | 2)


def _resident(pid: int) -> int:
    with open(f"/proc/{pid}/statm", "rb") as file:
        return int(file.read().split()[1]) * mmap.PAGESIZE


def _peak_resident() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _data_bytes() -> int:
    with open("/proc/self/status", "rb") as file:
        for line in file:
            if line.startswith(b"VmData:"):
                return int(line.split()[1]) * 1024
    return 0
