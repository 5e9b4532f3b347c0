from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.cli import main
from pipeline.storage import Storage
from tests.report.conftest import Written
from tests.report.synthetic import write_run


def _lines(capsys: pytest.CaptureFixture[str], status: int, *argv: str) -> tuple[str, str]:
    assert main([str(a) for a in argv]) == status
    captured = capsys.readouterr()
    return captured.out, captured.err


def test_report_prints_the_funnel_and_writes_the_page(plain: Written, capsys: pytest.CaptureFixture[str]) -> None:
    out, err = _lines(capsys, 0, "report", str(plain.folder))
    assert err == ""
    assert "quality" in out
    assert "lengths after" in out
    path = plain.folder / "report" / "report.html"
    assert out.splitlines()[-1] == f"report: {path}"
    assert path.read_bytes().startswith(b"<!doctype html>")
    assert "\x1b" not in out


def test_columns_of_the_printed_funnel_line_up(plain: Written, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = _lines(capsys, 0, "report", str(plain.folder))
    lines = out.split("\n\n")[1].splitlines()
    edge = lines[0].index("records") + len("records")
    for line in lines[2:]:
        assert line[edge - 1].isdigit()
        assert line[edge : edge + 2] == "  "


def test_report_as_json(plain: Written, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = _lines(capsys, 0, "report", str(plain.folder), "--json")
    figures = json.loads(out)
    assert figures["records"] == len(plain.truth.records)
    reasons = {(r["stage"], r["reason"]): r["records"] for r in figures["funnel"] if r["reason"]}
    assert sum(reasons.values()) + figures["kept"] == figures["records"]


def test_hostile_text_does_nothing_to_a_terminal(hostile: Written, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = next(r for r in hostile.truth.records if "\x1b" in r["url"] and r.get("text"))
    for argv in (["report"], ["dups"], ["why", chosen["record_id"]], ["why", chosen["url"]]):
        out, _ = _lines(capsys, 0, argv[0], str(hostile.folder), *argv[1:])
        assert not {"\x1b", "\x07", "\u202e"} & set(out)
    _, err = _lines(capsys, 1, "why", str(hostile.folder), "http://\x1b[31m/")
    assert "\x1b" not in err


def test_why_shows_a_rejected_record(plain: Written, capsys: pytest.CaptureFixture[str]) -> None:
    verdict = next(v for v in plain.truth.verdicts if len(v["failed_rules"]) > 1 and v["stage"] == "quality")
    record, _ = plain.truth.of(verdict["record_id"])
    out, _ = _lines(capsys, 0, "why", str(plain.folder), record["url"])
    assert out.splitlines()[0] == record["url"]
    assert f"rejected: quality/{verdict['reason']}" in out
    assert f"fails as well: {', '.join(verdict['failed_rules'][1:])}" in out
    for rule in plain.run.recipe.quality.rules:
        line = next(x for x in out.splitlines() if x.startswith(f"{rule} "))
        assert ("FAIL" in line) == (rule in verdict["failed_rules"])


def test_why_as_json_says_everything(plain: Written, capsys: pytest.CaptureFixture[str]) -> None:
    gone = plain.truth.duplicates[0]
    (one,) = json.loads(_lines(capsys, 0, "why", str(plain.folder), gone["record_id"], "--json")[0])
    kept_url = plain.truth.of(gone["kept_id"])[0]["url"]
    assert one["removed_for"] == {**gone, "kept_url": kept_url}
    assert one["verdict"]["stage"] == "dedup"
    assert one["shard"] is None
    record, _ = plain.truth.of(gone["record_id"])
    assert one["signals"]["fineweb_short_line_ratio"] == record["fineweb_short_line_ratio"]

    (one,) = json.loads(_lines(capsys, 0, "why", str(plain.folder), kept_url, "--json")[0])
    mine = [d for d in plain.truth.duplicates if d["kept_id"] == gone["kept_id"]]
    assert {d["record_id"] for d in one["kept_instead_of"]} == {d["record_id"] for d in mine}
    assert one["kept_instead_of_count"] == len(mine)


def test_why_finds_shard_and_row_of_every_kept_record(plain: Written, capsys: pytest.CaptureFixture[str]) -> None:
    import pyarrow.parquet as pq

    kept = [v["record_id"] for v in plain.truth.verdicts if v["kept"]]
    for record_id in kept[::15]:
        (one,) = json.loads(_lines(capsys, 0, "why", str(plain.folder), record_id, "--json")[0])
        table = pq.read_table(plain.folder / one["shard"]["path"], columns=["record_id"])
        assert table["record_id"][one["shard"]["row"]].as_py() == record_id


def test_why_shows_every_capture_of_an_address(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    truth = write_run(tmp_path / "run", rows=60, same_url=3)
    out, _ = _lines(capsys, 0, "why", str(tmp_path / "run"), truth.records[0]["url"])
    assert out.startswith("3 captures\n")
    assert all(f"record {truth.records[i]['record_id']} " in out for i in range(3))


def test_why_names_the_nearest_address(plain: Written, capsys: pytest.CaptureFixture[str]) -> None:
    url = plain.truth.records[7]["url"]
    out, err = _lines(capsys, 1, "why", str(plain.folder), url.replace("https://", "http://") + "/")
    assert out == ""
    assert err.count("\n") == 1
    assert err.endswith(f"(nearest: {url})\n")
    _, err = _lines(capsys, 1, "why", str(plain.folder), "https://nowhere.invalid/")
    assert "nor any page of its host" in err
    _, err = _lines(capsys, 1, "why", str(plain.folder), "0" * 32)
    assert "no record of this run has the id" in err


def test_export_gives_the_rows_of_a_reason(plain: Written, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    for argv, wanted in (
        (["--reason", "near"], lambda v: v["reason"] == "near"),
        (["--reason", "dedup/near"], lambda v: v["reason"] == "near"),
        (["--stage", "quality"], lambda v: v["stage"] == "quality"),
        (["--stage", "language", "--reason", "low_score"], lambda v: v["reason"] == "low_score"),
        (["--kept"], lambda v: v["kept"]),
        (["--reason", "blocked_word"], lambda _: False),
    ):
        assert main(["export", str(plain.folder), *argv]) == 0
        rows = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
        assert {r["record_id"] for r in rows} == {v["record_id"] for v in plain.truth.verdicts if wanted(v)}
        assert len(rows) == len({r["record_id"] for r in rows})


def test_export_to_a_file(plain: Written, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "kept.jsonl.gz"
    out, err = _lines(capsys, 0, "export", str(plain.folder), "--kept", "--limit", "5", "--out", str(target))
    assert (out, err) == ("", f"5 rows in {target}\n")
    first = target.read_bytes()
    assert len(gzip.decompress(first).splitlines()) == 5
    _lines(capsys, 0, "export", str(plain.folder), "--kept", "--limit", "5", "--out", str(target))
    assert target.read_bytes() == first
    assert os.listdir(tmp_path) == ["kept.jsonl.gz"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--reason", "gopher_shrt_doc"], "unknown reason 'gopher_shrt_doc' (nearest: gopher_short_doc)"),
        (["--reason", "read/no_text"], "unknown reason 'no_text' of stage read"),
        (["--stage", "qualty"], "unknown stage 'qualty' (nearest: quality)"),
        ([], "name what to export"),
        (["--kept", "--reason", "near"], "name what to export"),
        (["--kept", "--limit", "-1"], "--limit -1"),
        (["--kept", "--out", "."], "--out .: a folder"),
        (["--kept", "--out", ""], "--out : a folder"),
    ],
)
def test_export_refuses(plain: Written, capsys: pytest.CaptureFixture[str], argv: list[str], message: str) -> None:
    out, err = _lines(capsys, 2, "export", str(plain.folder), *argv)
    assert (out, err.count("\n")) == ("", 1)
    assert message in err


def test_export_to_an_impossible_place(plain: Written, capsys: pytest.CaptureFixture[str]) -> None:
    _, err = _lines(capsys, 1, "export", str(plain.folder), "--kept", "--out", "/nowhere/at/all.jsonl")
    assert err == "gristmill: cannot write /nowhere/at/all.jsonl: No such file or directory\n"
    _, err = _lines(capsys, 1, "export", str(plain.folder), "--kept", "--out", "x" * 300)
    assert err.endswith("File name too long\n")


def test_export_writes_to_a_pipe_and_leaves_it_one(
    plain: Written, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = tmp_path / "pipe"  # /dev/stdout is no other, and to replace that would break the machine
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE) as reader:
        _lines(capsys, 0, "export", str(plain.folder), "--kept", "--limit", "1", "--out", str(pipe))
        assert reader.communicate(timeout=20)[0].startswith(b'{"record_id"')
    assert pipe.is_fifo()
    assert os.listdir(tmp_path) == ["pipe"]


def test_export_stops_quietly_when_its_reader_does(plain: Written) -> None:
    command = [sys.executable, "-m", "jobs.cli", "export", str(plain.folder), "--stage", "quality"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b'{"record_id"')
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_dups_shows_survivors_and_members(plain: Written, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = _lines(capsys, 0, "dups", str(plain.folder), "--largest", "3", "--members", "50", "--json")
    seen = json.loads(out)
    sizes: dict[str, int] = {}
    for row in plain.truth.duplicates:
        sizes[row["kept_id"]] = row["cluster_size"]
    assert seen["removed"] == len(plain.truth.duplicates)
    assert seen["clusters"] == len(sizes)
    largest = sorted(sizes, key=lambda i: (-sizes[i], i))[:3]
    assert [c["kept_id"] for c in seen["largest"]] == largest
    for cluster in seen["largest"]:
        assert len(cluster["members"]) == cluster["size"] - 1
        alike = [m["similarity"] for m in cluster["members"]]
        assert alike == sorted(alike, reverse=True)
        assert cluster["survivor"]["url"] == plain.truth.of(cluster["kept_id"])[0]["url"]
    out, _ = _lines(capsys, 0, "dups", str(plain.folder), "--largest", "1", "--members", "2")
    assert f"{seen['largest'][0]['size']:,} documents" in out
    assert "more" in out.splitlines()[-1]


@pytest.mark.parametrize("verb", ["report", "why", "rules", "export", "dups"])
def test_a_folder_that_is_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str) -> None:
    more = {"why": ["http://x/"], "export": ["--kept"]}.get(verb, [])
    for folder in (tmp_path, tmp_path / "absent"):
        out, err = _lines(capsys, 2, verb, str(folder), *more)
        assert (out, err.count("\n")) == ("", 1)
        assert "is not a run" in err
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("verb", ["report", "why", "rules", "export", "dups"])
def test_an_unfinished_run(tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str) -> None:
    more = {"why": ["http://x/"], "export": ["--kept"]}.get(verb, [])
    write_run(tmp_path / "run", rows=20)
    document = json.loads((tmp_path / "run" / "run.json").read_text())
    (tmp_path / "run" / "run.json").write_text(json.dumps({**document, "status": "running"}))
    for _ in range(2):
        out, err = _lines(capsys, 1, verb, str(tmp_path / "run"), *more)
        assert (out, err.count("\n")) == ("", 1)
        assert "not finished" in err
        (tmp_path / "run" / "run.json").unlink(missing_ok=True)


@pytest.mark.parametrize("verb", ["report", "why", "rules", "export", "dups"])
def test_a_manifest_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str) -> None:
    more = {"why": ["http://x/"], "export": ["--kept"]}.get(verb, [])
    write_run(tmp_path / "run", rows=20)
    for content in ("{}", "[]", "null"):
        (tmp_path / "run" / "shards" / "manifest.json").write_text(content)
        out, err = _lines(capsys, 1, verb, str(tmp_path / "run"), *more)
        assert (out, err.count("\n")) == ("", 1)
        assert "is not a manifest" in err or "not finished" in err


@pytest.mark.parametrize("damage", ["gone", "cut", "shuffled"])
def test_a_damaged_run(tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str) -> None:
    write_run(tmp_path / "run", rows=40)
    parts = sorted((tmp_path / "run" / "verdicts").glob("part-*.parquet"))
    if damage == "gone":
        parts[0].unlink()
    elif damage == "cut":
        parts[0].write_bytes(parts[0].read_bytes()[:100])
    else:
        first, second = parts[0].read_bytes(), parts[1].read_bytes()
        parts[0].write_bytes(second)
        parts[1].write_bytes(first)
    out, err = _lines(capsys, 1, "report", str(tmp_path / "run"))
    assert (out, err.count("\n")) == ("", 1)
    assert "run curate again" in err


def test_rules_shows_stored_beside_what_if(plain: Written, capsys: pytest.CaptureFixture[str]) -> None:
    """By the real judge, whose verdicts on the stored signals are those that the generator worked out by hand."""
    out, err = _lines(capsys, 0, "rules", str(plain.folder), "--json")
    assert err == ""
    same = json.loads(out)
    assert same["stored"] == same["what_if"]
    assert same["stored"]["estimated_kept"] == plain.summary.survey.kept

    sole = plain.summary.survey.rules["fineweb_short_line_ratio"].sole
    assert sole > 0
    argv = ["rules", str(plain.folder), "--set", "quality.rules.fineweb_short_line_ratio=off"]
    figures = json.loads(_lines(capsys, 0, *argv, "--json")[0])
    assert figures["what_if"]["passed_quality"] - figures["stored"]["passed_quality"] == sole
    out, _ = _lines(capsys, 0, *argv)
    (line,) = [x for x in out.splitlines() if x.startswith("passed quality")]
    assert line.split()[-1] == f"+{sole}"


def test_rules_refuses_in_one_line(plain: Written, capsys: pytest.CaptureFixture[str]) -> None:
    for override, message in (
        ("edit.c4.min_words=9", "run curate with --set edit.c4"),
        ("quality.rules.c4_sentence=off", "nearest: c4_sentences"),
        ("qualty.rules.c4_sentences=off", "nearest: quality"),
        ('language.allowed=["xx"]', "the model never returns 'xx'"),
    ):
        out, err = _lines(capsys, 2, "rules", str(plain.folder), "--set", override)
        assert (out, err.count("\n")) == ("", 1)
        assert message in err


def test_a_run_on_s3_is_looked_at_in_the_same_way(
    s3_bucket: str, plain: Written, capsys: pytest.CaptureFixture[str]
) -> None:
    local = Storage(str(plain.folder))
    remote = Storage(f"{s3_bucket}/run")
    for path in local.list():
        remote.put_bytes(path, local.read_bytes(path))
    for argv in (["dups"], ["export", "--reason", "near"], ["why", plain.truth.records[50]["record_id"]]):
        there = _lines(capsys, 0, argv[0], f"{s3_bucket}/run", *argv[1:])
        assert there == _lines(capsys, 0, argv[0], str(plain.folder), *argv[1:])
    _lines(capsys, 0, "report", str(plain.folder))
    out, _ = _lines(capsys, 0, "report", f"{s3_bucket}/run")
    assert out.endswith(f"report: {s3_bucket}/run/report/report.html\n")
    assert remote.read_bytes("report/report.html") == local.read_bytes("report/report.html")
    _, err = _lines(capsys, 2, "report", f"{s3_bucket}/nothing")
    assert "is not a run" in err
