"""Committed datasets: nothing half-written is ever data, on a local disk and on S3."""

from __future__ import annotations

import json
import os
import pickle
import signal
import time
from contextlib import suppress
from itertools import pairwise
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.datasets import INPUTS, RECORDS
from pipeline.errors import GristmillError, UsageError
from pipeline.storage import Part, PartWriter, RowGroups, Storage, open_run, read_rows
from pipeline.storage import parquet as parts_module

TEXTS = pa.schema([("record_id", pa.string()), ("text", pa.string())])


def rows(count: int, chars: int = 10) -> list[dict[str, Any]]:
    return [{"record_id": f"{i:032x}", "text": f"{i} " * (chars // 2)} for i in range(count)]


def write(storage: Storage, dataset: str, stem: str, content: list[dict[str, Any]], **options: Any) -> Part:
    with PartWriter(storage, dataset, stem, TEXTS, **options) as writer:
        writer.write(content)
        return writer.close()


def read(storage: Storage, path: str) -> pa.Table:
    with storage.open_input(path) as source:
        return pq.read_table(source)


# -- files


def test_a_file_is_put_read_listed_and_deleted(run: Storage) -> None:
    run = pickle.loads(pickle.dumps(run))
    assert run.list() == []
    assert run.read_json("run.json") is None
    run.put_json("run.json", {"ä": 1})
    run.put_bytes("a/b.bin", b"12345")
    assert run.read_json("run.json") == {"ä": 1}
    assert run.sizes("a") == {"a/b.bin": 5}
    assert run.list() == ["a/b.bin", "run.json"]
    with run.open_input("a/b.bin") as file:
        file.seek(3)
        assert file.read() == b"45"
    run.delete(["a/b.bin", "a/never.bin"])
    assert run.list() == ["run.json"]


def test_paths_stay_inside_the_run(tmp_path: Path) -> None:
    with pytest.raises(GristmillError, match="not a path inside the run"):
        Storage(str(tmp_path / "run")).put_bytes("../outside", b"")


def test_a_failed_put_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Storage(str(tmp_path / "run"))
    run.put_bytes("x", b"old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(GristmillError, match=r"^cannot write .*/x: No space left on device$"):
        run.put_bytes("x", b"new")
    assert run.read_bytes("x") == b"old"
    assert os.listdir(run.uri) == ["x"]


def test_an_unwritable_folder_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    run = open_run(str(tmp_path / "file" / "run"))
    with pytest.raises(GristmillError, match=r"^cannot write .*: (Not a directory|File exists)$"), run.lock():
        pass
    with pytest.raises(GristmillError, match=r"^cannot write"):
        PartWriter(run, "records", "a", TEXTS)


def test_a_missing_bucket_is_one_clear_line(s3_server: str) -> None:
    with (
        pytest.raises(GristmillError, match=r"^cannot (read|write).*bucket does not exist$"),
        Storage("s3://no-such-bucket/run").lock(),
    ):
        pass


# -- parts


def test_a_part_reads_back_equal_and_bounded(run: Storage) -> None:
    content = rows(500, chars=2_000)
    part = write(run, "records", "f", content, row_group_bytes=50_000)
    assert (part.rows, part.file_bytes) == (500, run.sizes("records")[part.path])
    assert read(run, part.path).to_pylist() == content
    with run.open_input(part.path) as source:
        metadata = pq.ParquetFile(source).metadata
    assert metadata.num_row_groups > 10
    for group in range(metadata.num_row_groups):
        assert metadata.row_group(group).column(1).total_uncompressed_size <= 50_200  # plus page headers


def test_page_checksums_are_on(tmp_path: Path) -> None:
    run = Storage(str(tmp_path))
    part = write(run, "records", "f", [{"record_id": "a", "text": os.urandom(2_000).hex()}])
    data = bytearray(run.read_bytes(part.path))
    data[1_000] ^= 1
    run.put_bytes(part.path, bytes(data))
    with pytest.raises(GristmillError, match=r"CRC|checksum|corrupt"):
        list(read_rows(run, part.path, [0]))


def test_an_empty_part_has_its_schema(run: Storage) -> None:
    with PartWriter(run, "inputs", "none", INPUTS) as writer:
        part = writer.close()
    table = read(run, part.path)
    assert (part.rows, table.num_rows) == (0, 0)
    assert table.schema.equals(INPUTS)


def test_dicts_and_batches_make_one_part(tmp_path: Path) -> None:
    run = Storage(str(tmp_path))
    content = rows(9)
    with PartWriter(run, "records", "f", TEXTS) as writer:
        writer.write(content[:4])
        writer.write(pa.RecordBatch.from_pylist(content[4:], schema=TEXTS))
        part = writer.close({"input_id": "x"})
    assert read(run, part.path).to_pylist() == content
    assert part.meta == {"input_id": "x"}


def test_an_unknown_column_is_an_error_and_an_absent_one_null(tmp_path: Path) -> None:
    run = Storage(str(tmp_path))
    with (
        pytest.raises(ValueError, match=r"unknown columns \['txet'\]"),
        PartWriter(run, "records", "f", TEXTS) as writer,
    ):
        writer.write([{"record_id": "a", "txet": "b"}])
    assert run.list() == []  # aborted
    part = write(run, "records", "f", [{"record_id": "a"}])
    assert read(run, part.path).to_pylist() == [{"record_id": "a", "text": None}]


def test_an_aborted_part_never_appears(run: Storage) -> None:
    with suppress(KeyError), PartWriter(run, "records", "f", TEXTS, row_group_bytes=1_000) as writer:
        writer.write(rows(1_000))
        raise KeyError
    assert run.list() == []


@pytest.mark.timeout(600)
def test_more_text_than_32_bit_offsets_hold(tmp_path: Path) -> None:
    """Case 44: 300 documents of 8 MB in one write."""
    run = Storage(str(tmp_path))
    text = "0123456789abcdef" * (8_000_000 // 16)
    part = write(run, "records", "f", [{"record_id": f"{i}", "text": text} for i in range(300)])
    seen = 0
    for _, table in read_rows(run, part.path, range(300)):
        assert table["text"].nbytes < 20_000_000
        assert pc.all(pc.equal(table["text"], text)).as_py()
        seen += table.num_rows
    assert seen == 300


def test_a_value_that_no_reader_could_hold_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts_module, "MAX_VALUE_BYTES", 1_000)
    run = Storage(str(tmp_path))
    write(run, "records", "f", [{"record_id": "a", "text": "x" * 1_000}])
    with pytest.raises(GristmillError, match="column text: "):
        write(run, "records", "f", [{"record_id": "a", "text": "ä" * 501}])


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 30), max_size=40),
    cuts=st.lists(st.integers(0, 40), max_size=6),
    limit=st.integers(1, 50),
)
def test_row_groups_depend_on_rows_not_on_batches(sizes: list[int], cuts: list[int], limit: int) -> None:
    def groups(edges: list[int]) -> list[list[int]]:
        cutter, tables = RowGroups(limit), []
        for start, stop in zip([0, *edges], [*edges, len(sizes)], strict=True):
            batch = pa.RecordBatch.from_arrays([pa.array(range(start, stop), pa.int64())], ["n"])
            tables += cutter.add(batch, np.array(sizes[start:stop], np.int64))
        tables += cutter.rest()
        return [table["n"].to_pylist() for table in tables]

    whole = groups([])
    assert [n for group in whole for n in group] == list(range(len(sizes)))
    for group in whole:
        assert len(group) == 1 or sum(sizes[n] for n in group) <= limit
    for left, right in pairwise(whole):  # none was cut early
        assert sum(sizes[n] for n in left) + sizes[right[0]] > limit
    assert groups(sorted(min(cut, len(sizes)) for cut in cuts)) == whole


BAD = {
    "start": "\ud800text",
    "middle": "te\udfffxt",
    "end": "text\ud800",
    "reversed": "te\udc00\ud800xt",
    "json": json.loads('"a\\ud800b"'),
}


def test_lone_surrogates_become_replacement_characters(tmp_path: Path) -> None:
    """Case 45: the row is kept, what is replaced is counted, neighbours are untouched."""
    run = Storage(str(tmp_path))
    content = [
        {"record_id": f"{name}-{column}", column: bad, "failed": [bad], "counts": [(bad, 1)]}
        for name, bad in BAD.items()
        for column in ("text", "title", "url")
    ]
    schema = pa.schema(
        [(name, pa.string()) for name in ("record_id", "text", "title", "url")]
        + [("failed", pa.list_(pa.string())), ("counts", pa.map_(pa.string(), pa.int64()))]
    )
    with PartWriter(run, "records", "f", schema) as writer:
        writer.write([{"record_id": "good", "text": "grün \U0001f33e"}, *content])
        part = writer.close()
    table = read(run, part.path).to_pylist()
    assert table[0]["text"] == "grün \U0001f33e"
    assert len(table) == 16
    fixed = {"start": "�text", "middle": "te�xt", "end": "text�", "reversed": "te��xt", "json": "a�b"}
    for row in table[1:]:
        name, column = row["record_id"].split("-")
        assert row[column] == row["failed"][0] == row["counts"][0][0] == fixed[name]
    assert part.meta["surrogates"] == 3 * 3 * 6  # 3 columns x 3 places in a row x 6 surrogates


def test_other_readers_agree(spark: Any, tmp_path: Path) -> None:
    run = Storage(str(tmp_path))
    content = [{"record_id": "a", "text": "x\ud800"}, {"record_id": "b", "text": "ไทย"}]
    part = write(run, "records", "f", content)
    run.commit("records", "k", [part])
    found = spark.read.parquet(f"file://{run.uri}/records").orderBy("record_id").collect()
    assert [tuple(row) for row in found] == [("a", "x�"), ("b", "ไทย")]


@settings(max_examples=25, deadline=None)
@given(wanted=st.lists(st.integers(0, 299), max_size=30))
def test_rows_are_read_by_position(tmp_path_factory: pytest.TempPathFactory, wanted: list[int]) -> None:
    run = Storage(str(tmp_path_factory.mktemp("run")))
    part = write(run, "records", "f", rows(300), row_group_bytes=700)
    found = [
        (int(position), record_id)
        for positions, table in read_rows(run, part.path, wanted, ["record_id"])
        for position, record_id in zip(positions, table["record_id"].to_pylist(), strict=True)
    ]
    assert found == [(n, f"{n:032x}") for n in sorted(set(wanted))]


def test_a_row_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    run = Storage(str(tmp_path))
    part = write(run, "records", "f", rows(3))
    with pytest.raises(GristmillError, match="has 3 rows, row 3 is asked for"):
        list(read_rows(run, part.path, [3]))


# -- commits


def test_a_commit_is_what_it_lists_and_nothing_else(run: Storage) -> None:
    first = write(run, "records", "a", rows(3))
    run.put_receipt("records", "task-a", [first], {"why": "x"})
    write(run, "records", "a", rows(3))  # a lost attempt
    assert run.read_manifest("records") is None
    assert run.receipts("records")["task-a"].parts == (first,)
    assert run.receipts("records")["task-a"].info == {"why": "x"}
    manifest = run.commit("records", "key", [first], {"inputs": ["i"]})
    assert run.read_manifest("records") == manifest
    assert (manifest.key, manifest.rows, manifest.extra) == ("key", 3, {"inputs": ["i"]})
    assert run.list("records") == sorted(["records/_manifest.json", first.path])
    second = write(run, "records", "b", rows(2))
    run.commit("records", "key2", [second])
    assert run.list("records") == sorted(["records/_manifest.json", second.path])


def test_a_start_keeps_what_receipts_list(run: Storage) -> None:
    old = write(run, "records", "old", rows(1))
    run.commit("records", "k", [old])
    done = write(run, "records", "done", rows(1))
    run.put_receipt("records", "t", [done])
    lost = write(run, "records", "lost", rows(1))
    assert run.sweep("records", keep_receipts=True) == [lost.path]
    assert set(run.list("records")) == {
        "records/_manifest.json",
        "records/_receipts/t.json",
        old.path,
        done.path,
    }
    run.drop("records")
    assert run.list("records") == []


def test_a_sweep_removes_the_halves_of_killed_puts(tmp_path: Path) -> None:
    run = Storage(str(tmp_path))
    run.commit("records", "k", [write(run, "records", "a", rows(1))])
    (tmp_path / "records" / ".tmp-0123").write_bytes(b"half")
    assert ".tmp" not in " ".join(run.list())
    run.sweep("records")
    assert sorted(os.listdir(tmp_path / "records")) == sorted(p.split("/")[1] for p in run.list("records"))


def test_names_never_clash(tmp_path: Path) -> None:
    """Case 50: one stem many times, one partition in many buffers; a clash in a commit is an error."""
    run = Storage(str(tmp_path))
    content = rows(60_000, chars=4)
    with PartWriter(run, "records", "x.warc.gz", TEXTS, row_group_bytes=1 << 18) as writer:
        for start in range(0, 60_000, 5_000):
            writer.write(content[start : start + 5_000])
        big = writer.close()
    assert read(run, big.path)["record_id"].to_pylist() == [row["record_id"] for row in content]
    parts = [write(run, "records", "x.warc.gz", rows(1)) for _ in range(20)]
    assert len({part.path for part in parts}) == 20
    with pytest.raises(GristmillError, match="two tasks wrote one file name"):
        run.commit("records", "k", [parts[0], parts[0]])
    for path in ("records/_a.parquet", "records/.a.parquet", "other/a.parquet", "records/x/a.parquet"):
        with pytest.raises(GristmillError, match="no data file of this dataset"):
            run.commit("records", "k", [Part(path, 1, 1)])


@pytest.mark.parametrize("key", ["", "a/b", "../x", "_x", ".x", "ü", "x" * 300])
def test_receipt_keys_are_safe_file_names(tmp_path: Path, key: str) -> None:
    with pytest.raises(ValueError, match="not a safe file name"):
        Storage(str(tmp_path)).put_receipt("records", key, [])


def test_a_manifest_of_another_version_is_refused(tmp_path: Path) -> None:
    run = Storage(str(tmp_path))
    run.put_json("records/_manifest.json", {"schema_version": 999, "key": "k", "parts": []})
    with pytest.raises(GristmillError, match="schema version 999"):
        run.read_manifest("records")
    run.put_json("records/_manifest.json", {"schema_version": 1})
    with pytest.raises(GristmillError, match="is not a manifest"):
        run.read_manifest("records")
    run.put_bytes("records/_manifest.json", b"{")
    with pytest.raises(GristmillError, match="is not JSON"):
        run.read_manifest("records")


# -- killed writers (case 47)


def _a_run(uri: str, tasks: int) -> None:
    """Resumes or begins a run of `tasks` tasks with one part each, then commits; what a driver does."""
    run = open_run(uri)
    with run.lock():
        run.sweep("records", keep_receipts=True)
        done = run.receipts("records")
        for task in range(tasks):
            if f"t{task}" not in done:
                part = write(run, "records", f"t{task}", rows(200, chars=400 + task), row_group_bytes=8_000)
                done[f"t{task}"] = run.put_receipt("records", f"t{task}", [part])
        run.commit("records", f"{tasks} tasks", [done[f"t{task}"].parts[0] for task in range(tasks)])
        run.put_json("run.json", {"tasks": tasks})


def test_a_writer_killed_at_any_moment_leaves_no_half_data(tmp_path: Path, processes: ForkServerContext) -> None:
    out = str(tmp_path / "run")
    begun = time.monotonic()
    _a_run(out, 12)
    whole = time.monotonic() - begun
    complete = Storage(out).read_manifest("records")
    assert complete is not None
    for moment in range(20):
        tasks = 12 if moment % 2 else 7  # rerun with fewer partitions, too
        before = Storage(out).read_manifest("records")
        writer = processes.Process(target=_a_run, args=(out, tasks))
        Storage(out).delete([p for p in Storage(out).list("records") if "_receipts" in p])
        writer.start()
        time.sleep(0.02 + whole * moment / 20)
        assert writer.pid is not None
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
        # (a) read at once: the old data or the new, whole
        manifest = Storage(out).read_manifest("records")
        assert manifest is not None
        assert manifest == before or manifest.key == f"{tasks} tasks"
        for part in manifest.parts:
            assert read(Storage(out), part.path).num_rows == part.rows == 200
    # (b) the rerun, which waits for nobody, has exactly one run's data
    _a_run(out, 7)
    assert len(Storage(out).list("records")) == 8
    # (c) without hidden files
    visible = [path for path in (tmp_path / "run" / "records").iterdir() if not path.name.startswith((".", "_"))]
    assert pq.read_table([str(path) for path in visible]).num_rows == 7 * 200
    assert pq.read_table(tmp_path / "run" / "records").num_rows == 7 * 200


# -- which folders are runs


def test_a_folder_of_something_else_is_never_taken(run: Storage) -> None:
    with pytest.raises(UsageError, match=r"is not a run: it has no run\.json"):
        open_run(run.uri, must_exist=True)
    run.put_bytes("thesis/chapter1.txt", b"")
    with pytest.raises(UsageError, match=r"holds other files \(thesis/chapter1\.txt\)"):
        open_run(run.uri)
    run.delete(["thesis/chapter1.txt"])
    with open_run(run.uri).lock():
        pass
    run.put_bytes("records/half.parquet", b"")
    assert open_run(run.uri).uri == run.uri  # its lock file tells that it is ours
    run.put_json("run.json", {})
    assert open_run(run.uri, must_exist=True).uri == run.uri


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    with pytest.raises(UsageError, match="is a file"):
        open_run(str(tmp_path / "x"))
    with pytest.raises(UsageError, match="empty"):
        open_run(" ")


def test_no_text_is_repeated_in_a_footer(tmp_path: Path) -> None:
    run = Storage(str(tmp_path))
    with PartWriter(run, "records", "f", RECORDS) as writer:
        writer.write([{"record_id": "a", "text": "marker", "signature": np.arange(112, dtype=np.uint32)}])
        part = writer.close()
    assert run.read_bytes(part.path).count(b"marker") == 1
    assert read(run, part.path)["signature"][0].as_py() == list(range(112))
