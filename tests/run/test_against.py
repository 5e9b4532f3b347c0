"""`--against` and `dedup.keep_shingles` through the command: what is compared, said, redone and refused."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from jobs.cli import main
from pipeline import accounts
from pipeline.datasets import SHINGLES
from pipeline.dedup.signature import scheme
from pipeline.errors import GristmillError
from pipeline.recipe import Dedup
from pipeline.shingles import shingle
from pipeline.storage import PartWriter, Storage
from tests.run import runs

pytestmark = pytest.mark.usefixtures("spark")

_NOUNS = (
    "the river mill stone grain water wheel village market bread harvest winter summer road bridge church field horse "
    "wagon farmer miller baker morning evening children school garden apple orchard letter story window candle kitchen"
)
WORDS = _NOUNS.split()
#: The longest text stays, and every text of A is made longer than all of B's: the condition for "as one run would".
#: 56 bands of 2 rows, so that what is similar meets for certain.
PRIORITY = ["--set", 'dedup.priority=["n_chars"]', "--set", "dedup.bands=56", "--set", "dedup.rows=2"]
KEEP = ["--set", "dedup.keep_shingles=true"]


def prose(seed: int, n: int = 120) -> list[str]:
    return random.Random(seed).choices(WORDS, k=n)


def edited(words: list[str], at: int) -> list[str]:
    return [*words[:at], "changed", *words[at + 1 :]]


def wet(path: Path, pages: dict[str, str]) -> Path:
    """Ready texts as a WET file."""
    records = []
    for url, text in pages.items():
        body = text.encode()
        records.append(
            f"WARC/1.0\r\nWARC-Type: conversion\r\nWARC-Target-URI: {url}\r\nWARC-Date: 2024-01-01T00:00:00Z\r\n"
            f"WARC-Record-ID: <urn:uuid:{len(records):012d}>\r\nContent-Type: text/plain\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
            + b"\r\n\r\n"
        )
    path.write_bytes(b"".join(records))
    return path


def text_of(words: list[str], dots: int = 0) -> str:
    """One line of prose; dots make it longer, and dedup does not see them."""
    return " ".join([*words, *["."] * dots]) + "."


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two crawl files, A and B: near and exact copies within each and across, chains, and texts of one alone."""
    folder = tmp_path_factory.mktemp("two-crawls")
    a: dict[str, str] = {}
    b: dict[str, str] = {}
    for i in range(12):
        base = prose(i)
        a[f"http://a.example/{i}"] = text_of(base, 150)
        a[f"http://a.example/{i}-near"] = text_of(edited(base, 40), 100)
        a[f"http://a.example/{i}-alone"] = text_of(prose(100 + i), 100)
        b[f"http://b.example/{i}-copy"] = text_of(base)
        b[f"http://b.example/{i}-chain"] = text_of(edited(edited(base, 40), 80))
        # like the two above that go, not like the one they go for: it stays
        b[f"http://b.example/{i}-end"] = text_of(edited(edited(edited(base, 40), 80), 10))
        b[f"http://b.example/{i}-alone"] = text_of(prose(200 + i))
        b[f"http://b.example/{i}-alone-near"] = text_of(edited(prose(200 + i), 60))
    return wet(folder / "a.warc.wet", a), wet(folder / "b.warc.wet", b)


@pytest.fixture(scope="module")
def earlier(files: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A, curated with its shingles kept; tests that change it work on a copy."""
    out = tmp_path_factory.mktemp("earlier") / "run"
    assert runs.curate([files[0]], out, *PRIORITY, *KEEP) == 0
    return out


@pytest.fixture(scope="module")
def later(files: tuple[Path, Path], earlier: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """B, curated against A."""
    out = tmp_path_factory.mktemp("later") / "run"
    assert runs.curate([files[1]], out, *PRIORITY, "--against", str(earlier)) == 0
    return out


@pytest.fixture
def a_copy(earlier: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(earlier, tmp_path / "a"))


@pytest.fixture
def b_copy(later: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(later, tmp_path / "b"))


def survivors(run: Path) -> set[str]:
    return {row["record_id"] for row in runs.rows(run, "shards", ["record_id"])}


def manifests(run: Path) -> dict[str, bytes]:
    names = ("records", "inputs", "duplicates", "verdicts", "shingles")
    found = {name: run / name / "_manifest.json" for name in names} | {"shards": run / "shards" / "manifest.json"}
    return {name: path.read_bytes() for name, path in found.items() if path.exists()}


def run_id(run: Path) -> str:
    return str(json.loads((run / "shards" / "manifest.json").read_text())["run_id"])


def document(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "run.json").read_text())
    return found


def test_two_runs_leave_what_one_run_over_everything_leaves(
    files: tuple[Path, Path], earlier: Path, later: Path, tmp_path: Path
) -> None:
    assert runs.curate(files, tmp_path / "whole", *PRIORITY) == 0
    assert survivors(earlier) | survivors(later) == survivors(tmp_path / "whole")
    duplicates = runs.rows(later, "duplicates")
    assert {row["kept_run"] for row in duplicates} == {None, run_id(earlier)}
    assert Counter(row["kind"] for row in duplicates if row["kept_run"]) == {"exact": 12, "near": 12}
    assert Counter(row["kind"] for row in duplicates if row["kept_run"] is None) == {"near": 12}
    assert len(survivors(later)) == 24
    for row in duplicates:
        home = later if row["kept_run"] is None else earlier
        assert row["kept_id"] in survivors(home)
    one_run = {(row["record_id"], row["kept_id"]) for row in runs.rows(tmp_path / "whole", "duplicates")}
    assert {(row["record_id"], row["kept_id"]) for row in duplicates} <= one_run


def test_everyone_says_what_was_removed_for_the_earlier_run(
    earlier: Path, b_copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (told,) = document(b_copy)["against"]
    assert told == {
        "uri": str(earlier),
        "run_id": run_id(earlier),
        "documents": 24,
        "shingles": True,
        "standard_error": None,
        "removed": {"exact": 12, "near": 12},
    }
    assert document(b_copy)["dedup"]["earlier_met"] == 12
    for verb in ("report", "dups"):
        assert main([verb, str(b_copy)]) == 0
        (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith(run_id(earlier))]
        assert line.split() == [run_id(earlier), "24", "12", "12", "0", "shingles", str(earlier)]
    assert str(earlier) in (b_copy / "report" / "report.html").read_text()
    assert main(["why", str(b_copy), "http://b.example/3-chain"]) == 0
    said = capsys.readouterr().out
    assert f"removed as near duplicate of {next(iter(_kept(b_copy, '3-chain')))} of run {run_id(earlier)}" in said
    assert f"the survivor is in {earlier}" in said
    assert "http://a.example/3" in said
    rows = [line for line in said.splitlines() if line.startswith("≠")]
    assert sum("changed" in row for row in rows) == 2
    tree = document(b_copy)
    tree["against"][0]["uri"] = str(tmp_path / "gone")
    (b_copy / "run.json").write_text(json.dumps(tree))
    assert main(["why", str(b_copy), "http://b.example/3-chain"]) == 0
    assert "gone (that run is not there any more)" in capsys.readouterr().out


def _kept(run: Path, end: str) -> set[str]:
    urls = {row["record_id"]: row["url"] for row in runs.rows(run, "records", ["record_id", "url"])}
    return {row["kept_id"] for row in runs.rows(run, "duplicates") if urls[row["record_id"]].endswith(end)}


def test_without_shingles_near_ones_are_estimated_and_that_is_said(
    files: tuple[Path, Path], a_copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert runs.curate([files[0]], a_copy, *PRIORITY) == 0
    assert not (a_copy / "shingles").exists()
    out = tmp_path / "run"
    capsys.readouterr()
    assert runs.curate([files[1]], out, *PRIORITY, "--against", str(a_copy)) == 0
    assert "standard error of 0.0378 at the threshold" in capsys.readouterr().out
    kinds = Counter(row["kind"] for row in runs.rows(out, "duplicates") if row["kept_run"])
    assert kinds["exact"] == 12
    assert kinds["near"] == 0
    assert kinds["near_estimated"] >= 10
    assert {row["reason"] for row in runs.rows(out, "verdicts") if row["stage"] == "dedup"} == {"exact", "near"}
    assert main(["report", str(out)]) == 0
    said = capsys.readouterr().out
    assert "signatures, ± 0.0378" in said
    assert f"{kinds['near_estimated']} documents were removed by signature only, for run {run_id(a_copy)}" in said


def test_what_is_redone(
    files: tuple[Path, Path], later: Path, a_copy: Path, b_copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same run elsewhere: nothing. The same without its shingles, another state of it, or none: duplicates."""

    def again(*extra: str) -> set[str]:
        before = manifests(b_copy)
        assert runs.curate([files[1]], b_copy, *PRIORITY, *extra) == 0
        return {name for name, content in manifests(b_copy).items() if content != before[name]}

    assert again("--against", str(a_copy), "--against", str(a_copy)) == set()
    assert document(b_copy)["against"][0]["uri"] == str(a_copy)
    capsys.readouterr()
    assert again("--against", str(a_copy)) == set()
    assert "nothing to do" in capsys.readouterr().err
    assert runs.curate([files[0]], a_copy, *PRIORITY, *KEEP, "--set", "dedup.threshold=0.99") == 0
    assert again("--against", str(a_copy)) == {"duplicates", "verdicts", "shards"}
    assert "the earlier runs changed" in capsys.readouterr().err
    assert again() == {"duplicates", "verdicts", "shards"}
    assert {row["kept_run"] for row in runs.rows(b_copy, "duplicates")} == {None}
    assert document(b_copy)["against"] == []
    assert len(survivors(b_copy)) > len(survivors(later))


REFUSED: dict[str, tuple[list[str], str]] = {
    "shingle": (["dedup.shingle=7"], "shingle=5 there, shingle=7 here"),
    "permutations": (["dedup.permutations=128"], "permutations=112 there, permutations=128 here"),
    "seed": (["dedup.seed=3"], "seed=1 there, seed=3 here"),
    "fold_numbers": (["dedup.fold_numbers=true"], "fold_numbers=0 there, fold_numbers=1 here"),
    "several": (["dedup.seed=3", "dedup.shingle=7"], "seed=1 there, seed=3 here, shingle=5 there, shingle=7 here"),
    "nothing to compare": (["dedup.exact=false", "dedup.near=false"], "dedup.exact and dedup.near are off"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_compare_is_refused_before_anything_is_read(
    name: str, files: tuple[Path, Path], earlier: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Case 39: signatures of two schemes are never mixed."""
    keys, message = REFUSED[name]
    extra = [word for key in keys for word in ("--set", key)]
    assert runs.curate([files[1]], tmp_path / "b", *extra, "--against", str(earlier)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("gristmill: --against")
    assert message in line
    assert not (tmp_path / "b").exists()


def _unfinished(run: Path) -> None:
    (run / "run.json").write_text(json.dumps({**document(run), "status": "unfinished"}))


def _other_scheme(run: Path) -> None:
    path = run / "records" / "_manifest.json"
    path.write_text(path.read_text().replace("seed=1 ", "seed=9 "))


def _no_scheme(run: Path) -> None:
    path = run / "records" / "_manifest.json"
    tree = json.loads(path.read_text())
    for part in tree["parts"]:
        del part["meta"]["scheme"]
    path.write_text(json.dumps(tree))


def _lost_part(run: Path) -> None:
    next((run / "verdicts").glob("*.parquet")).unlink()


def _torn_manifest(run: Path) -> None:
    (run / "records" / "_manifest.json").write_text('{"schema_version": 1, "par')


def _newer(run: Path) -> None:
    path = run / "verdicts" / "_manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema_version": 99}))


def _foreign_shards(run: Path) -> None:
    path = run / "shards" / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "run_id": None}))


HARMED: dict[str, tuple[Any, str]] = {
    "unfinished": (_unfinished, "that run is not finished"),
    "no run": (lambda run: (run / "run.json").unlink(), "is not a run: it has no run.json"),
    "no records": (lambda run: shutil.rmtree(run / "records"), "its records/ is gone"),
    "a part lost": (_lost_part, "its verdicts/.*parquet is gone"),
    "records of another seed": (_other_scheme, "seed=9 there, seed=1 here"),
    "a torn manifest": (_torn_manifest, "is not JSON .*; curate that run again, or leave it out"),
    "another schema": (_newer, "schema version 99, .*; curate that run again, or leave it out"),
    "shards of another run": (_foreign_shards, "are of different runs"),
    "records that do not say": (_no_scheme, "does not say how its signatures were made .here: .*seed=1 "),
}


@pytest.mark.parametrize("name", HARMED)
def test_a_run_that_cannot_serve_is_refused(
    name: str, files: tuple[Path, Path], a_copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    harm, message = HARMED[name]
    harm(a_copy)
    assert runs.curate([files[1]], tmp_path / "b", *PRIORITY, "--against", str(a_copy)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(f"--against {a_copy}.*{message}", line)


def test_a_run_against_itself_is_refused(
    files: tuple[Path, Path], earlier: Path, a_copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for other in (a_copy, earlier):
        assert runs.curate([files[0]], a_copy, *PRIORITY, *KEEP, "--against", str(other)) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert str(a_copy) in line
    (tmp_path / "link").symlink_to(a_copy)
    assert runs.curate([files[0]], a_copy, *PRIORITY, "--against", str(tmp_path / "link")) == 2


def test_own_records_of_another_scheme_are_refused(
    files: tuple[Path, Path], a_copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _other_scheme(a_copy)
    assert runs.curate([files[0]], a_copy, *PRIORITY, *KEEP, "--set", "dedup.threshold=0.9") == 1
    assert "seed=9 there, seed=1 here" in capsys.readouterr().err.splitlines()[-1]


def test_an_earlier_run_in_s3(
    files: tuple[Path, Path], earlier: Path, later: Path, s3_bucket: str, tmp_path: Path
) -> None:
    remote = Storage(f"{s3_bucket}/runs/a")
    for path in earlier.rglob("*"):
        if path.is_file() and path.name != "_lock":
            remote.put_bytes(str(path.relative_to(earlier)), path.read_bytes())
    assert runs.curate([files[1]], tmp_path / "b", *PRIORITY, "--against", remote.uri) == 0
    assert runs.shard_hashes(tmp_path / "b") == runs.shard_hashes(later)
    assert document(tmp_path / "b")["against"][0]["uri"] == remote.uri


def test_shingles_are_those_of_the_kept_texts(earlier: Path) -> None:
    kept = [row["record_id"] for row in runs.rows(earlier, "verdicts") if row["kept"]]
    texts = {row["record_id"]: row["edited"] or row["text"] for row in runs.rows(earlier, "records")}
    rows = runs.rows(earlier, "shingles")
    assert [row["record_id"] for row in rows] == kept
    for row in rows:
        assert row["hashes"] == shingle(texts[row["record_id"]], Dedup()).hashes.tolist()
    assert json.loads((earlier / "shingles" / "_manifest.json").read_text())["extra"]["scheme"] == scheme(Dedup())


def test_shingles_come_and_go_with_the_key_and_follow_what_they_depend_on(
    files: tuple[Path, Path], b_copy: Path
) -> None:
    def again(*extra: str) -> set[str]:
        before = manifests(b_copy)
        assert runs.curate([files[1]], b_copy, *PRIORITY, *extra) == 0
        now = manifests(b_copy)
        return {name for name in {*now, *before} if now.get(name) != before.get(name)}

    again()
    assert again(*KEEP) == {"shingles"}
    assert again(*KEEP) == set()
    assert again(*KEEP, "--set", "dedup.threshold=0.9") == {"duplicates", "verdicts", "shards", "shingles"}
    assert again("--set", "dedup.threshold=0.9") == {"shingles"}
    assert not (b_copy / "shingles").exists()
    # texts that keep_text dropped are read again for them, and dropped again
    assert again("--set", "dedup.threshold=0.9", "--set", "keep_text=none") == {"records"}
    assert again("--set", "dedup.threshold=0.9", "--set", "keep_text=none", *KEEP) == {"records", "shingles"}
    assert all(row["text"] is None for row in runs.rows(b_copy, "records", ["text"]))
    accounts.check(Storage(str(b_copy)))


def test_shingles_of_other_documents_are_found(a_copy: Path) -> None:
    storage = Storage(str(a_copy))
    accounts.check(storage)
    (path,) = (a_copy / "shingles").glob("*.parquet")
    rows = runs.rows(a_copy, "shingles")
    rows[3]["record_id"] = "f" * 32
    with PartWriter(storage, "shingles", "other", SHINGLES) as writer:
        writer.write(rows)
        other = writer.close()
    path.write_bytes(storage.read_bytes(other.path))
    manifest = a_copy / "shingles" / "_manifest.json"
    tree = json.loads(manifest.read_text())
    tree["parts"][0]["file_bytes"] = other.file_bytes
    manifest.write_text(json.dumps(tree))
    with pytest.raises(GristmillError, match=r"does not hold the ids that verdicts/.* keeps"):
        accounts.check(storage)
    tree = json.loads((a_copy / "shingles" / "_manifest.json").read_text())
    tree["parts"] = []
    (a_copy / "shingles" / "_manifest.json").write_text(json.dumps(tree))
    with pytest.raises(GristmillError, match="files in verdicts/, 0 in shingles/"):
        accounts.check(Storage(str(a_copy)))
