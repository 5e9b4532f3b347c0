"""Whatever one item does to its process costs that item only; nothing is lost, nothing comes twice."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest

from pipeline.crawl.supervise import Outcome, SourceError, supervised
from pipeline.errors import GristmillError
from pipeline.memory import give_back

COUNT = 60


def numbers(after: int | None) -> Iterator[tuple[int, int]]:
    for number in range(0 if after is None else after + 1, COUNT):
        yield number, number


def run(
    handle: Callable[[int], Any], source: Any = numbers, cpu: float = 0.3, memory: float = 200
) -> list[Outcome[int]]:
    give_back()  # what earlier tests freed would be used again, and count for nothing
    outcomes = list(
        supervised(source, handle, describe=lambda item: {"item": item}, cpu_seconds=cpu, memory_mib=memory)
    )
    return outcomes


def own_children() -> set[psutil.Process]:
    return set(psutil.Process().children())


@pytest.fixture(autouse=True)
def _no_stray_processes() -> Iterator[None]:
    before = own_children()  # a Spark session of other tests, say
    yield
    assert own_children() <= before


def expect(outcomes: list[Outcome[int]], bad: dict[int, str]) -> None:
    assert [o.key for o in outcomes] == list(range(COUNT))
    for outcome in outcomes:
        verdict = bad.get(outcome.key, "ok")
        assert outcome.verdict == verdict, outcome
        assert outcome.value == (outcome.key * 2 if verdict == "ok" else {"item": outcome.key})
        assert (outcome.detail is None) == (verdict == "ok")


def spin() -> None:
    while True:
        pass


def swallow() -> None:
    while True:
        try:
            spin()
        except BaseException:
            continue


def spin_in_c() -> None:
    ctypes.CDLL(None).qsort  # noqa: B018
    sum(range(10**12))


def grow() -> None:
    kept = []
    while True:
        kept.append(b"x" * 1_000_000)


def at_once() -> None:
    bytearray(3 << 30)


def in_c() -> None:
    block = ctypes.CDLL(None).malloc
    block.restype = ctypes.c_void_p
    for _ in range(400):
        pointer = block(ctypes.c_size_t(1 << 20))
        if not pointer:
            raise MemoryError
        ctypes.memset(pointer, 1, 1 << 20)


def killed(number: int) -> None:
    os.kill(os.getpid(), number)


CASES: dict[str, tuple[Callable[[], None], str]] = {
    "segfault": (lambda: killed(signal.SIGSEGV), "crash"),
    "abort": (lambda: killed(signal.SIGABRT), "crash"),
    "kill": (lambda: killed(signal.SIGKILL), "crash"),
    "exit": (lambda: os._exit(9), "crash"),
    "exit in silence": (lambda: os._exit(0), "crash"),
    "null": (lambda: ctypes.string_at(0), "crash"),  # type: ignore[dict-item, return-value]
    "spin": (spin, "timeout"),
    "spin in C": (spin_in_c, "timeout"),
    "swallow": (swallow, "timeout"),
    "grow": (grow, "memory"),
    "at once": (at_once, "memory"),
    "grow in C": (in_c, "memory"),
    "exception": (lambda: 1 // 0, "error"),  # type: ignore[dict-item, return-value]
    "system exit": (lambda: sys.exit(3), "error"),
    "recursion": (lambda: recurse(), "error"),
}


def recurse() -> None:
    recurse()


@pytest.mark.parametrize("name", CASES)
def test_each_fault_costs_its_item_only(name: str) -> None:  # cases 13 and 15
    act, verdict = CASES[name]
    bad = {3: verdict, 4: verdict, COUNT - 1: verdict}

    def handle(item: int) -> int:
        if item in bad:
            act()
        return item * 2

    # On a busy machine 200 MB may take longer to touch than an endless loop is let run.
    expect(run(handle, cpu=0.3 if verdict == "timeout" else 5), bad)


def test_verdicts_under_load_are_the_same() -> None:
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4)]

    def handle(item: int) -> int:
        if item == 10:
            spin()
        return item * 2

    try:
        expect(run(handle, cpu=0.25), {10: "timeout"})
    finally:
        for process in busy:
            process.kill()
            process.wait()


def test_a_failure_that_does_not_repeat_is_no_verdict(tmp_path: Any) -> None:
    def handle(item: int) -> int:
        mark = tmp_path / str(item)
        if item in (0, 20, 21) and not mark.exists():
            mark.touch()
            os._exit(1)
        return item * 2

    expect(run(handle), {})


def test_what_earlier_items_left_does_not_count() -> None:
    kept: list[bytes] = []

    def handle(item: int) -> int:
        kept.append(b"x" * (10 << 20))  # the child is renewed before the sum of these matters
        return item * 2

    expect(run(handle, memory=60), {})


def test_large_results_come_through() -> None:
    got = run(lambda item: "ä" * (12 << 20) if item == 5 else item * 2)
    assert got[5].value == "ä" * (12 << 20)
    assert len(got) == COUNT


def test_a_source_that_fails_is_the_callers_matter() -> None:
    def known(after: int | None) -> Iterator[tuple[int, int]]:
        yield 0, 0
        raise GristmillError("the server hung up: try again")

    def unknown(after: int | None) -> Iterator[tuple[int, int]]:
        yield 0, 0
        raise OSError("disk on fire")

    def crash(after: int | None) -> Iterator[tuple[int, int]]:
        yield from ((i, i) for i in range(2) if after is None or i > after)
        os._exit(3)

    for source, kind, words in ((known, GristmillError, "hung up"), (unknown, SourceError, "disk on fire"),
                                (crash, SourceError, "twice")):  # fmt: skip
        outcomes = supervised(source, lambda item: item, cpu_seconds=1, memory_mib=200)
        assert next(outcomes).key == 0
        with pytest.raises(kind, match=words):
            list(outcomes)


def test_closing_early_leaves_no_process() -> None:
    before = own_children()
    outcomes = supervised(numbers, lambda item: item, cpu_seconds=1, memory_mib=200)
    assert next(outcomes).key == 0
    outcomes.close()  # type: ignore[attr-defined]
    assert own_children() <= before


def test_children_die_with_their_parent() -> None:
    script = """
        import os, sys, time
        from pipeline.crawl.supervise import supervised
        def handle(item):
            if item:
                while True: pass
            return os.getpid()
        for outcome in supervised(lambda after: iter([(0, 0), (1, 1)]), handle, cpu_seconds=60, memory_mib=200):
            print(outcome.value, flush=True)
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    for _ in range(200):
        if not child.is_running() or child.status() == psutil.STATUS_ZOMBIE:
            return
        time.sleep(0.02)
    child.kill()
    pytest.fail("the child outlived its parent")
