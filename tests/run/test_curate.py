"""The main job through its command: accounts, determinism, resuming, what is redone when something changes."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest

from pipeline.datasets import ERROR, REASONS
from tests.run import runs

pytestmark = pytest.mark.usefixtures("spark")


def test_every_record_has_one_verdict_of_the_taxonomy(finished: Path) -> None:
    verdicts = runs.rows(finished, "verdicts")
    records = runs.rows(finished, "records", ["record_id"])
    assert sorted(v["record_id"] for v in verdicts) == sorted(r["record_id"] for r in records)
    for verdict in verdicts:
        assert verdict["kept"] == (verdict["stage"] is None) == (verdict["reason"] is None)
        if not verdict["kept"]:
            assert verdict["reason"] in (*REASONS[verdict["stage"]], ERROR)
    counts = json.loads((finished / "run.json").read_text())["counts"]
    tally = Counter((v["stage"], v["reason"]) for v in verdicts if not v["kept"])
    assert counts["records"] == len(verdicts)
    assert counts["kept"] == sum(v["kept"] for v in verdicts) == len(runs.rows(finished, "shards", ["record_id"]))
    assert {(s, r): n for s, reasons in counts["rejected"].items() for r, n in reasons.items()} == dict(tally)


def test_the_sample_exercises_many_reasons_and_keeps_something(finished: Path) -> None:
    verdicts = runs.rows(finished, "verdicts")
    assert len({v["reason"] for v in verdicts}) >= 8
    assert 0.1 < sum(v["kept"] for v in verdicts) / len(verdicts) < 0.9


def test_records_agree_with_an_independent_reader_on_sound_files(finished: Path, crawl: Path) -> None:
    damaged = {row["uri"] for row in runs.rows(finished, "inputs") if row["gaps"]}
    by_file = Counter(row["warc_file"] for row in runs.rows(finished, "records", ["warc_file"]))
    sound = [path for path in sorted(crawl.glob("*.warc.gz")) if str(path) not in damaged]
    assert sound
    for path in sound:
        if "damaged" not in path.name:
            assert by_file[path.name] == runs.independent_count(path), path.name


def test_folders_of_a_finished_run_hold_committed_files_only(finished: Path) -> None:
    for dataset in ("inputs", "records", "verdicts", "duplicates", "shards"):
        names = {path.name for path in (finished / dataset).iterdir()}
        manifest = "manifest.json" if dataset == "shards" else "_manifest.json"
        tree = json.loads((finished / dataset / manifest).read_text())
        listed = {entry["path"].rsplit("/", 1)[-1] for entry in tree.get("files", tree.get("parts"))}
        assert names == listed | {manifest}


@pytest.mark.parametrize("variant", ["shuffled order", "another folder", "many parts", "a copy beside it"])
def test_shards_do_not_depend_on_how_the_input_is_given(
    variant: str, finished: Path, crawl: Path, tmp_path: Path
) -> None:
    files = sorted(crawl.glob("*.warc.gz"))
    inputs: list[Path] = files
    extra: list[str] = []
    if variant == "shuffled order":
        inputs = files[::-1]
    elif variant == "another folder":
        inputs = [Path(shutil.copytree(crawl, tmp_path / "elsewhere" / "deeper"))]
    elif variant == "many parts":
        extra = ["--set", "input.split_mib=0.01"]
    elif variant == "a copy beside it":
        shutil.copy(files[0], tmp_path / files[0].name)
        inputs = [*files, tmp_path / files[0].name]
    out = tmp_path / "run"
    assert runs.curate(inputs, out, *extra, recipe="fineweb") == 0
    assert runs.shard_hashes(out) == runs.shard_hashes(finished)
    assert runs.verdict_rows(out) == runs.verdict_rows(finished)
    if variant == "many parts":
        assert len(list((out / "records").glob("*.parquet"))) > len(files) + 3


@pytest.mark.usefixtures("no_reading")
def test_a_finished_run_rerun_does_nothing(copy: Path, crawl: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def files() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in copy.rglob("*") if path.is_file() and path.name != "_lock"}

    before = files()
    assert runs.curate([crawl], copy, recipe="fineweb") == 0
    assert "nothing to do" in capsys.readouterr().err
    assert files() == before


@pytest.mark.usefixtures("no_reading")
@pytest.mark.parametrize(
    ("override", "redone", "kept"),
    [
        ("language.min_score=0.9", {"duplicates", "verdicts", "shards"}, {"records", "inputs"}),
        ("quality.rules.gopher_short_doc.min=80", {"duplicates", "verdicts", "shards"}, {"records", "inputs"}),
        ("dedup.threshold=0.9", {"duplicates", "verdicts", "shards"}, {"records", "inputs"}),
        ("dedup.seed=7", {"records", "duplicates", "verdicts", "shards"}, {"inputs"}),
        ("edit.c4.min_words=4", {"records", "duplicates", "verdicts", "shards"}, {"inputs"}),
        ("publish.pii.emails=false", {"shards"}, {"records", "inputs", "duplicates", "verdicts"}),
    ],
)
def test_a_changed_key_redoes_what_depends_on_it_and_reads_no_crawl(
    override: str, redone: set[str], kept: set[str], copy: Path, crawl: Path, tmp_path: Path
) -> None:
    def parts(run: Path, dataset: str) -> set[str]:
        return {path.name for path in (run / dataset).glob("*.parquet")}

    manifests = {name: (copy / name / "_manifest.json") for name in ("records", "inputs", "duplicates", "verdicts")}
    manifests["shards"] = copy / "shards" / "manifest.json"
    before = {name: path.read_bytes() for name, path in manifests.items()}
    assert runs.curate([crawl], copy, "--set", override, recipe="fineweb") == 0
    changed = {name for name, path in manifests.items() if path.read_bytes() != before[name]}
    assert changed == redone
    assert not changed & kept
    assert parts(copy, "verdicts")


def test_a_changed_threshold_ends_as_a_fresh_run_would(copy: Path, crawl: Path, tmp_path: Path) -> None:
    wish = ["--set", "dedup.permutations=128", "--set", "dedup.bands=16", "--set", "edit.c4.min_words=5"]
    assert runs.curate([crawl], copy, *wish, recipe="fineweb") == 0
    assert runs.curate([crawl], tmp_path / "fresh", *wish, recipe="fineweb") == 0
    assert runs.shard_hashes(copy) == runs.shard_hashes(tmp_path / "fresh")
    assert runs.verdict_rows(copy) == runs.verdict_rows(tmp_path / "fresh")


def test_a_run_is_a_function_of_the_inputs_given_now(copy: Path, crawl: Path, tmp_path: Path) -> None:
    files = sorted(crawl.glob("*.warc.gz"))
    assert runs.curate(files[1:], copy, recipe="fineweb") == 0
    assert {row["warc_file"] for row in runs.rows(copy, "records", ["warc_file"])} == {f.name for f in files[1:]}
    assert runs.curate(files, copy, recipe="fineweb") == 0
    assert runs.curate(files, tmp_path / "fresh", recipe="fineweb") == 0
    assert runs.shard_hashes(copy) == runs.shard_hashes(tmp_path / "fresh")


@pytest.mark.parametrize("keep", ["kept", "none"])
def test_texts_are_dropped_once_shards_are_out(keep: str, copy: Path, crawl: Path, finished: Path) -> None:
    assert runs.curate([crawl], copy, "--set", f"keep_text={keep}", recipe="fineweb") == 0
    texts = {row["record_id"]: row["text"] for row in runs.rows(copy, "records", ["record_id", "text"])}
    for verdict in runs.rows(copy, "verdicts"):
        if keep == "none" or not verdict["kept"]:
            assert texts[verdict["record_id"]] is None
        else:
            assert texts[verdict["record_id"]]
    assert runs.shard_hashes(copy) == runs.shard_hashes(finished)
    # what needs texts again reads the crawl again, and ends as it would have with them
    assert runs.curate([crawl], copy, "--set", "keep_text=all", recipe="fineweb") == 0
    assert all(row["text"] or not row["n_chars"] for row in runs.rows(copy, "records", ["text", "n_chars"]))
    assert runs.shard_hashes(copy) == runs.shard_hashes(finished)


def test_an_unreadable_input_fails_alone(crawl: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listing = tmp_path / "some.paths"
    files = sorted(crawl.glob("*.warc.gz"))[:2]
    listing.write_text("\n".join([*map(str, files), str(tmp_path / "gone.warc.gz")]))
    out = tmp_path / "run"
    assert runs.curate([listing], out) == 1
    assert "gone.warc.gz" in capsys.readouterr().err
    status = {Path(row["uri"]).name: row["status"] for row in runs.rows(out, "inputs")}
    assert status.pop("gone.warc.gz") == "failed"
    assert set(status) == {f.name for f in files}
    assert runs.rows(out, "shards", ["record_id"])
