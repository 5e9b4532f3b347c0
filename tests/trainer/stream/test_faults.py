"""Shards that are damaged, gone, swapped, huge, or behind a bad line: each has one stated outcome."""

from __future__ import annotations

import json
import multiprocessing
import random
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fsspec
import pyarrow.parquet as pq
import pytest
from torch.utils.data import DataLoader

from tests.trainer.stream import drive, made
from trainer.stream import Loader, Source, StreamError, StreamUsageError, read_manifest, reader
from trainer.stream.manifest import Manifest


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """40 row groups of 10 documents of 30 ids in 8 files."""
    return made.run(tmp_path / "r", made.numbered([30] * 400, 10, 5), tokens=True)


def settings(*runs: Path | Source, **changes: Any) -> Any:
    return drive.config(*runs, **{"tokenizer": "stored", "epochs": 1, "lanes": 4, **changes})


def shard(run: Path, number: int) -> Path:
    return run / "shards" / read_manifest(str(run)).files[number].path


def damage(path: Path, group: int) -> None:
    """Turns a byte over in the middle of the ids of a row group."""
    parquet = pq.ParquetFile(path)
    chunk = next(c for i in range(parquet.metadata.num_columns)
                 if (c := parquet.metadata.row_group(group).column(i)).path_in_schema.startswith("tokens"))  # fmt: skip
    data = bytearray(path.read_bytes())
    data[chunk.data_page_offset + chunk.total_compressed_size // 2] ^= 0x55
    path.write_bytes(data)


@pytest.mark.parametrize("threads", [0, 2])
def test_a_damaged_row_group_goes_into_quarantine_and_stays_there(run: Path, threads: int) -> None:
    whole, _ = drive.steps_at(settings(run), 1, 10**9)
    path = shard(run, 3)
    sound = path.read_bytes()
    damage(path, 2)
    bad = range(170, 180)
    lost = settings(run, threads=threads, epochs=2, mode="concat")
    steps, state = drive.steps_at(lost, 2, 10**9)
    drive.assert_covered(steps, {(0, p): 30 for p in range(400) if p not in bad}, epochs=2)
    assert sum(rows for _, _, rows in state["quarantine"]) == 10
    assert {first + i for _, first, rows in state["quarantine"] for i in range(rows)} == set(bad)
    # stopped in the middle of the second epoch and mended: still out, at any degree
    first, state = drive.steps_at(lost, 4, 45)
    path.write_bytes(sound)
    rest, _ = drive.steps_at(lost, 1, 10**9, json.loads(json.dumps(state)))
    assert first + rest == steps
    assert drive.steps_at(settings(run), 1, 10**9)[0] == whole


def test_quarantine_moves_no_other_document(run: Path) -> None:
    concat = settings(run, mode="concat")
    whole, _ = drive.steps_at(concat, 1, 10**9)
    damage(shard(run, 0), 0)
    steps, _ = drive.steps_at(concat, 1, 10**9)
    for lane in range(4):
        order = [[s[1] for step in made for row in step.get(lane, []) for s in row if s[2] == 0 and s[1] >= 10]
                 for made in (whole, steps)]  # fmt: skip
        assert order[0] == order[1]


def test_another_file_under_a_listed_name_stops_the_run(run: Path) -> None:
    one, two = shard(run, 0), shard(run, 1)
    for change, message in (
        (
            lambda: one.write_bytes(one.read_bytes()[:-100]),
            "is not the file that the manifest lists: .* bytes, the manif",
        ),
        (
            lambda: one.write_bytes(two.read_bytes()[: one.stat().st_size].ljust(one.stat().st_size, b"x")),
            "not the file",
        ),
        (lambda: one.write_bytes(one.read_bytes()[:-6] + b"abPAR1"), "not the file that the manifest lists"),
        (one.unlink, "is missing from .*; restore it or curate again"),
    ):
        sound = one.read_bytes()
        change()
        for threads in (0, 2):
            with pytest.raises(StreamError, match=message):
                list(Loader(settings(run, threads=threads)))
        one.write_bytes(sound)
    swapped = (one.read_bytes(), two.read_bytes())
    one.write_bytes(swapped[1])
    two.write_bytes(swapped[0])
    with pytest.raises(StreamError, match="not the file that the manifest lists"):
        list(Loader(settings(run)))


def test_empty_shards_and_runs(tmp_path: Path) -> None:
    files = made.numbered([30] * 40, 10, 2)
    run = made.run(tmp_path / "r", [[], files[0], [], files[1]], tokens=True)
    steps, _ = drive.steps_at(settings(run), 1, 10**9)
    drive.assert_covered(steps, {(0, p): 30 for p in range(40)})
    empty = made.run(tmp_path / "e", [[]], tokens=True)
    with pytest.raises(StreamUsageError, match="holds no document to train on"):
        Loader(settings(empty))
    with pytest.raises(StreamUsageError, match="no finished run here"):
        Loader(settings(tmp_path))
    # fewer documents than lanes: the lanes without any give masked rows
    few = made.run(tmp_path / "f", made.numbered([30, 30], 1, 2), tokens=True)
    steps, _ = drive.steps_at(settings(few), 4, 10**9)
    drive.assert_covered(steps, {(0, 0): 30, (0, 1): 30})


@pytest.mark.parametrize("change", [b"{", b"[]", b'{"schema_version": 9}', b'{"schema_version": 1, "files": [{}]}'])
def test_a_damaged_manifest_is_one_line(tmp_path: Path, change: bytes) -> None:
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards" / "manifest.json").write_bytes(change)
    with pytest.raises(StreamError, match="curate") as told:
        read_manifest(str(tmp_path))
    assert "\n" not in str(told.value)


def test_a_manifest_that_lost_a_file_is_refused(run: Path) -> None:
    path = run / "shards" / "manifest.json"
    tree = json.loads(path.read_text())
    del tree["files"][3]
    path.write_text(json.dumps(tree))
    with pytest.raises(StreamError, match="files of 400 rows are not all listed"):
        read_manifest(str(run))


class Files(BaseHTTPRequestHandler):
    """Serves a folder with ranges; every third request fails at first, where `flaky`."""

    folder: Path
    flaky = False
    seen = 0

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, body: bool) -> None:
        type(self).seen += 1
        path = self.folder / self.path.lstrip("/")
        if self.flaky and self.seen % 3 == 0:
            self.send_error(503)
            return
        if not path.is_file():
            self.send_error(404)
            return
        data = path.read_bytes()
        wanted = self.headers.get("Range")
        first, last = 0, len(data) - 1
        if wanted:
            low, high = wanted.removeprefix("bytes=").split("-")
            first, last = int(low), min(last, int(high) if high else last)
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(last - first + 1))
        self.send_header("Accept-Ranges", "bytes")
        if wanted:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        self.end_headers()
        if body:
            self.wfile.write(data[first : last + 1])

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def http(run: Path) -> Any:
    handler = type("Handler", (Files,), {"folder": run})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}", handler
    server.shutdown()


def test_http_and_s3_give_what_the_disk_gives(
    run: Path, http: Any, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, _ = drive.steps_at(settings(run), 1, 10**9)
    address, handler = http
    monkeypatch.setattr(reader, "RETRY_AFTER", (0.0, 0.0, 0.0))
    assert drive.steps_at(settings(Source(address), threads=2), 2, 10**9)[0] == expected
    handler.flaky = True
    handler.seen = 0
    assert drive.steps_at(settings(Source(address)), 1, 10**9)[0] == expected
    fsspec.filesystem("s3").put(str(run), f"{s3_bucket}/r", recursive=True)
    assert drive.steps_at(settings(Source(f"{s3_bucket}/r"), threads=2), 1, 10**9)[0] == expected


def test_faults_of_the_line_stop_the_run_and_never_quarantine(
    run: Path, http: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, handler = http
    monkeypatch.setattr(reader, "RETRY_AFTER", (0.0, 0.0))
    loader = Loader(settings(Source(address)))
    handler.do_GET = lambda self: self.send_error(500)
    with pytest.raises(StreamError, match=r"en-0000\d.*cannot be read \(ClientResponseError"):
        list(loader)
    assert loader.quarantined == []


def test_a_huge_row_group_is_read_in_parts(tmp_path: Path) -> None:
    """Case 70 at a tenth: a group of 200 MB of text in a process that may hold little; the bounds scaled alike."""
    rng = random.Random(5)
    letters = "".join(rng.choices("abcdefghij klmnop", k=1 << 13))
    texts = [letters[i:] + letters[:i] for i in rng.choices(range(1 << 13), k=25_600)]
    run = made.run(tmp_path / "r", [[texts]])
    code = f"""
from tests.memory import peak_kib
from trainer.stream import Loader, Source, StreamConfig, plan, reader
plan.PART_BYTES, reader.WHOLE_BYTES, reader.RANGE_BYTES = 8 << 20, 8 << 20, 1 << 20
loader = Loader(StreamConfig((Source({str(run)!r}),), 4096, 16, lanes=4, epochs=1, window=1, threads=4))
before = peak_kib()
documents = sum(batch.utilisation.documents for batch in loader)
print(documents, loader.utilisation.tokens, (peak_kib() - before) // 1024)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[3], capture_output=True, text=True, check=True
    )
    documents, tokens, mebibytes = map(int, done.stdout.split())
    assert (documents, tokens) == (25_600, sum(map(len, texts)))
    assert mebibytes < 180, mebibytes  # the group is 200 MB of text


def test_a_document_of_ten_million_tokens(tmp_path: Path) -> None:
    long = "lorem ipsum " * (10_000_000 // 12)
    run = made.run(tmp_path / "r", [[[long], ["short text"] * 50], [["other"] * 50]])
    whole, _ = drive.steps_at(drive.config(run, seq_len=32768, batch_size=4, lanes=2, epochs=1), 1, 10**9)
    lengths = {(0, p): n for p, n in enumerate([len(long)] + [10] * 50 + [5] * 50)}
    found = drive.covered(whole)
    assert {key: spans[-1][1] - 1 for key, spans in found.items()} == lengths
    spans = next(s for s in found.values() if s[-1][1] == len(long) + 1)
    assert [end - 1 for _, end in spans[:-1]] == [start for start, _ in spans[1:]]
    first, state = drive.steps_at(drive.config(run, seq_len=32768, batch_size=4, lanes=2, epochs=1), 2, 30)
    rest, _ = drive.steps_at(drive.config(run, seq_len=32768, batch_size=4, lanes=2, epochs=1), 1, 10**9, state)
    assert first + rest == whole


def test_worker_processes_are_refused_in_one_line(run: Path) -> None:
    loader = Loader(settings(run))
    assert next(iter(DataLoader(loader, batch_size=None))).tokens.shape == (8, 64)
    with pytest.raises(Exception, match="reads by threads and refuses worker processes: num_workers=0"):
        next(iter(DataLoader(loader, batch_size=None, num_workers=2, multiprocessing_context="fork")))


def _use_in_child(loader: Loader, pipe: Any) -> None:
    try:
        next(iter(loader))
        pipe.send("read")
    except StreamUsageError as error:
        pipe.send(str(error))


def test_leaving_after_one_batch_ends_cleanly(run: Path) -> None:
    """Case 62: threads at work in the parent, then forks; a break after one batch; a process that just ends."""
    before = threading.active_count()
    for _ in range(30):
        for _batch in Loader(settings(run, threads=3)):
            break
    assert threading.active_count() <= before  # threads of earlier tests may end meanwhile
    loader = Loader(settings(run, threads=3, epochs=None))
    going = iter(loader)
    next(going)
    context = multiprocessing.get_context("fork")
    for _ in range(4):
        here, there = context.Pipe()
        child = context.Process(target=_use_in_child, args=(loader, there))
        child.start()
        assert here.poll(120)
        assert "refuses worker processes" in here.recv()
        child.join(120)
        assert child.exitcode == 0
    going.close()
    code = (
        "from trainer.stream import Loader, Source, StreamConfig\n"
        f"steps = iter(Loader(StreamConfig((Source({str(run)!r}),), 64, 8, tokenizer='stored', threads=3)))\n"
        "next(steps)\n"
    )
    for _ in range(3):
        subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_memory_is_flat_over_epochs_of_a_large_manifest(tmp_path: Path) -> None:
    """Case 73: 200,000 entries (over a few files of the same content), 8 threads, 3 epochs."""
    import psutil

    run = made.run(tmp_path / "r", made.numbered([60] * 16, 16, 1), tokens=True)
    tree = json.loads((run / "shards" / "manifest.json").read_text())
    entry = tree["files"][0]
    source = run / "shards" / entry["path"]
    tree["files"] = [{**entry, "path": f"en-{i:05d}.parquet"} for i in range(200_000)]
    tree["totals"]["rows"] *= 200_000
    manifest = _parse(tree, run)
    (run / "shards" / "manifest.json").write_text("{}")
    sound = reader.Reader._path
    try:
        reader.Reader._path = lambda self, path: str(source)  # type: ignore[method-assign]
        loader = Loader(
            settings(run, threads=8, epochs=None, seq_len=4096, batch_size=256, lanes=256), 0, 256, [manifest]
        )
        sizes = []
        epoch = 0
        for number, batch in enumerate(loader):
            assert not isinstance(batch, list)
            if number % 50 == 49:
                sizes.append(psutil.Process().memory_info().rss)
            if (epoch := batch.state["lanes"]["0"][0][0]) == 3:
                break
        assert epoch == 3
    finally:
        reader.Reader._path = sound  # type: ignore[method-assign]
    assert len(sizes) > 9
    assert max(sizes[1:]) < 1.1 * sizes[1]


def _parse(tree: dict[str, Any], run: Path) -> Manifest:
    from trainer.stream.manifest import parse_manifest

    return parse_manifest(json.dumps(tree).encode(), str(run / "shards"), "made")
