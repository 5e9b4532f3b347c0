"""Bytes of remote files come once each and in order, whatever the network does, or the file fails by its name."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.crawl import retry
from pipeline.crawl.remote import MIB, Known, RemoteFile
from pipeline.crawl.slots import place
from pipeline.crawl.sources import identify, mark, open_at
from pipeline.crawl.supervise import SourceError
from pipeline.errors import UsageError
from pipeline.recipe import Input
from tests.crawl.faulty import Faulty, serve

DATA = random.Random(5).randbytes(5 * MIB + 12_345)
QUICK = Input(wait_seconds=0.01, stall_seconds=0.5, tries=4)


@pytest.fixture(scope="module")
def running() -> Iterator[Faulty]:
    with serve(Faulty({"/a.warc.gz": DATA, "/small": b"0123456789", "/empty": b""})) as server:
        yield server


@pytest.fixture
def web(running: Faulty) -> Faulty:
    """The server as new: no faults, no memory."""
    running.faults = lambda path, number: None
    running.ranges.clear()
    running.connections.clear()
    running.etags.clear()
    running.most_at_once = 0
    return running


def read_all(web: Faulty, path: str = "/a.warc.gz", settings: Input = QUICK) -> bytes:
    with RemoteFile(web.address + path, settings) as file:
        return file.read()


def one_fault(fault: str, at: int) -> Callable[[str, int], str | None]:
    return lambda path, number: fault if number == at else None


PASSING = [
    "status 503", "status 429", "status 500", "later 0", "close", "hang 2", "drop 0", "drop 1", "drop 70000",
    "drop 900000", "length 10", "length -10", "longer 9", "shift 1", "shift -1", "shorter 5", "shorter 300000",
    "unsized 1000", "trickle 0.01", "labelled",
]  # fmt: skip


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("fault", PASSING)
def test_a_fault_that_passes_changes_no_byte(web: Faulty, fault: str, at: int) -> None:
    web.faults = one_fault(fault, at)
    assert read_all(web) == DATA


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from([*(f for f in PASSING if not f.startswith(("hang", "trickle"))), ""]), max_size=9))
def test_any_sequence_of_faults_changes_no_byte(web: Faulty, faults: list[str]) -> None:
    web.ranges.clear()
    web.faults = lambda path, number: faults[number] if number < len(faults) else None
    assert read_all(web, settings=Input(wait_seconds=0.001, stall_seconds=0.5, tries=10)) == DATA


def test_a_dropped_connection_goes_on_at_the_first_missing_byte(web: Faulty) -> None:
    web.faults = one_fault("drop 700000", 1)
    assert read_all(web) == DATA
    starts = [int(wanted.removeprefix("bytes=").partition("-")[0]) for wanted in web.ranges]
    assert starts[:2] == [0, MIB]
    assert MIB + 500_000 < starts[2] <= MIB + 700_000
    assert starts == sorted(set(starts)), "nothing is asked for twice"


def test_one_connection_serves_a_whole_file(web: Faulty) -> None:
    assert read_all(web) == DATA
    assert len(web.ranges) == 3, "1, 2 and the last 2 MiB"
    assert len(web.connections) == 1


def test_seeking_reads_what_is_there(web: Faulty) -> None:
    with RemoteFile(web.address + "/a.warc.gz", QUICK) as file:
        for at in (4 * MIB, 17, len(DATA) - 3, 0, 3 * MIB - 1, len(DATA), len(DATA) + 5):
            assert file.seek(at) == file.tell() == at
            assert file.read(10) == DATA[at : at + 10]
        assert file.seek(-5, 2) == len(DATA) - 5
        assert file.read() == DATA[-5:]


def test_small_and_empty_files(web: Faulty) -> None:
    assert read_all(web, "/small") == b"0123456789"
    assert read_all(web, "/empty") == b""
    assert mark(web.address + "/empty", QUICK)[0] == 0
    assert identify(web.address + "/small", QUICK).size == 10
    web.faults = lambda path, number: "whole"
    assert read_all(web, "/small") == b"0123456789"


@pytest.mark.parametrize(
    ("fault", "tries", "words"),
    [
        ("status 503", 4, "503"),
        ("later 0", 4, "429"),
        ("status 404", 1, "404"),
        ("status 403", 1, "403"),
        ("close", 4, "Disconnected"),
        ("drop 1000", 4, r"Payload|ended after"),
        ("hang 3", 4, "Timeout"),
        ("trickle 0.01", 4, "too slow"),
        ("shorter 1", 4, "got 1"),
        ("length 7", 4, "contradicts"),
        ("shift 9", 4, "from 1048585 on"),
        ("whole", 1, "no byte ranges"),
        ("etag two", 1, "ETag is two now, one when"),
        ("changed 40", 1, "bytes now"),
    ],
)
def test_a_fault_that_stays_ends_clearly_and_names_the_file(web: Faulty, fault: str, tries: int, words: str) -> None:
    web.faults = lambda path, number: fault if number else None
    began = time.monotonic()
    with RemoteFile(web.address + "/a.warc.gz", QUICK) as file:
        assert file.read(100) == DATA[:100]
        file.seek(MIB)
        with pytest.raises(SourceError, match=words) as caught:
            file.read(100)
    assert f"{web.address}/a.warc.gz: " in str(caught.value)
    assert "\n" not in str(caught.value)
    assert ("given up after 4 tries" in str(caught.value)) == (tries == 4)
    # aiohttp itself asks once more, at once, where a connection closes before any answer.
    assert len(web.ranges) == 1 + (2 * tries if fault == "close" else tries)
    assert time.monotonic() - began < 8


def test_a_file_that_changes_between_plan_and_reading_fails(web: Faulty, tmp_path: Path) -> None:
    planned = identify(web.address + "/a.warc.gz", QUICK)
    web.etags["/a.warc.gz"] = "two"
    with pytest.raises(SourceError, match="changed"):
        open_at(planned.uri, file=planned, settings=QUICK).read(1)
    local = tmp_path / "x.warc"
    local.write_bytes(b"one")
    planned = identify(str(local))
    local.write_bytes(b"two!")
    with pytest.raises(SourceError, match="changed"):
        open_at(planned.uri, file=planned)


def test_an_address_that_nobody_serves_is_said_soon(web: Faulty) -> None:
    for missing, words in (
        (f"{web.address}/absent", "404"),
        ("http://127.0.0.1:1/x.warc.gz", "given up after 3 tries"),
    ):
        with pytest.raises(UsageError, match=words) as caught:
            identify(missing, QUICK)
        assert missing in str(caught.value)


def test_pauses_grow_differ_and_end() -> None:
    pauses = [[retry.pause(failed, 1) for failed in range(1, 12)] for _ in range(50)]
    for failed, seen in enumerate(zip(*pauses, strict=True)):
        top = min(60, 2**failed)
        assert all(top / 2 <= wait <= top for wait in seen)
        assert len(set(seen)) > 40, "readers do not come back in step"


def test_retry_after_is_kept(web: Faulty) -> None:
    web.faults = one_fault("later 1", 0)
    began = time.monotonic()
    assert read_all(web, "/small") == b"0123456789"
    assert time.monotonic() - began >= 1
    assert retry.understand(retry.Refusal(429, "", "Wed, 21 Oct 2015 07:28:00 GMT")).pause == 0
    assert retry.understand(retry.Refusal(429, "", "99999")).pause == retry.LONGEST_RETRY_AFTER


def test_requests_at_once_are_capped(web: Faulty) -> None:
    web.faults = lambda path, number: "trickle 0.02"
    settings = Input(requests=3)
    readers = [threading.Thread(target=read_all, args=(web, "/small", settings)) for _ in range(12)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert len(web.ranges) == 12
    assert web.most_at_once == 3


def test_places_are_shared_by_processes_and_a_killed_one_gives_its_back() -> None:
    code = (
        "from pipeline.crawl.slots import place\nwith place('http://test', 1):\n    print(1, flush=True)\n    input()"
    )
    holder = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"1\n"
    entered = threading.Event()

    def enter() -> None:
        with place("http://test", 1):
            entered.set()

    waiting = threading.Thread(target=enter)
    waiting.start()
    assert not entered.wait(0.2)
    holder.kill()
    holder.communicate()
    waiting.join(5)
    assert entered.is_set()


def test_s3_is_read_in_ranges_and_a_changed_object_fails(s3_bucket: str) -> None:
    import boto3

    client = boto3.client("s3")
    bucket = s3_bucket.removeprefix("s3://")
    client.put_object(Bucket=bucket, Key="a/b c.warc.gz", Body=DATA)
    client.put_object(Bucket=bucket, Key="empty", Body=b"")
    uri = f"{s3_bucket}/a/b c.warc.gz"
    planned = identify(uri, QUICK)
    assert (planned.size, planned.etag) == mark(uri, QUICK)
    with open_at(uri, file=planned, settings=QUICK) as stream:
        assert stream.read() == DATA
    with open_at(uri, 3 * MIB + 7, file=planned, settings=QUICK) as stream:
        assert stream.read(9) == DATA[3 * MIB + 7 : 3 * MIB + 16]
    assert identify(f"{s3_bucket}/empty", QUICK).size == 0
    with pytest.raises(UsageError, match="absent"):
        identify(f"{s3_bucket}/absent", QUICK)
    client.put_object(Bucket=bucket, Key="a/b c.warc.gz", Body=DATA[:-1])
    with open_at(uri, file=planned, settings=QUICK) as stream, pytest.raises(SourceError, match="changed"):
        stream.read()
    with pytest.raises(SourceError, match="changed"):
        RemoteFile(uri, QUICK, Known(planned.size, "other")).read()


S3_TROUBLE = {
    "slow down": ("status", 503, b"<Error><Code>SlowDown</Code><Message>Reduce your request rate</Message></Error>"),
    "server error": ("status", 500, b"<Error><Code>InternalError</Code><Message>again</Message></Error>"),
    "no words": ("status", 503, b""),
    "drop": ("drop", 0, b""),
}


@pytest.mark.parametrize("name", S3_TROUBLE)
def test_s3_trouble_passes_or_ends(name: str, s3_bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real S3 server (moto) behind a proxy that spoils the first answers."""
    import boto3

    from tests.crawl.s3_proxy import spoiling

    bucket = s3_bucket.removeprefix("s3://")
    boto3.client("s3").put_object(Bucket=bucket, Key="a.warc.gz", Body=DATA)
    kind, status, body = S3_TROUBLE[name]
    with spoiling(kind, status, body) as proxy:
        from pipeline.crawl import remote

        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.address)
        monkeypatch.setattr(remote, "_systems", {})
        proxy.spoil = 3
        assert RemoteFile(f"{s3_bucket}/a.warc.gz", QUICK).read() == DATA
        assert proxy.spoil == 0
        proxy.spoil = 99
        with pytest.raises(SourceError, match=r"a\.warc\.gz: .*given up after 4 tries"):
            RemoteFile(f"{s3_bucket}/a.warc.gz", QUICK).read()
        assert proxy.spoil == 95, "the libraries try nothing again by themselves"
