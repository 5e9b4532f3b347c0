"""Repeated lines through the whole command: counted over all inputs, removed, and only what changes is done again."""

from __future__ import annotations

import json
import random
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import xxhash

from jobs.cli import main
from pipeline.errors import GristmillError
from pipeline.run import lines as stage
from pipeline.run.keys import VERSIONS
from pipeline.storage import Storage
from tests.run import runs

pytestmark = pytest.mark.usefixtures("spark")

ON = ("--set", "edit.repeated_lines={}", "--set", "dedup.threshold=0.95")
EVERYWHERE, SOME = "All rights reserved by the publisher of this site.", "Subscribe to our letter, it costs nothing."
PLANTED = (EVERYWHERE, SOME, "Menu", "", "   ", "x")


def record(url: str, text: str) -> bytes:
    block = text.encode()
    head = (
        f"WARC/1.0\r\nWARC-Type: conversion\r\nWARC-Target-URI: {url}\r\nWARC-Date: 2024-01-01T00:00:00Z\r\n"
        f"WARC-Record-ID: <urn:uuid:{xxhash.xxh3_128_hexdigest(url.encode())}>\r\n"
        f"Content-Type: text/plain\r\nContent-Length: {len(block)}\r\n\r\n"
    )
    return head.encode() + block + b"\r\n\r\n"


def own_line(chance: random.Random) -> str:
    words = ("river", "bridge", "market", "garden", "winter", "letter", "station", "harbour", "teacher", "village")
    return " ".join(chance.choices(words, k=9)) + f" {chance.randrange(10**9)}."


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Four files of ready text, not compressed: the same bytes, and so ids, everywhere. d shares lines with a."""
    folder = tmp_path_factory.mktemp("lines")
    chance = random.Random(7)
    made = []
    for name in "abcd":
        pages = []
        for number in range(8):
            text = [own_line(chance) for _ in range(6)]
            text += chance.sample(PLANTED, k=chance.randrange(len(PLANTED)))
            chance.shuffle(text)
            if name in "ad":
                text.insert(2, f"This line joins two far pages, {number}.")
            pages.append(record(f"http://{name}.example/{number}", "\n".join(text)))
        path = folder / f"{name}.wet"
        path.write_bytes(b"".join(pages))
        made.append(path)
    return made


@pytest.fixture(scope="module")
def three(files: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("three") / "run"
    assert runs.curate(files[:3], out, *ON) == 0
    return out


@pytest.fixture(scope="module")
def four(files: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In another order, in many small parts."""
    out = tmp_path_factory.mktemp("four") / "run"
    assert runs.curate(files[::-1], out, *ON, "--set", "input.split_mib=0.002") == 0
    assert len(list((out / "records").glob("*.parquet"))) > 8
    return out


@pytest.fixture
def run(three: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(three, tmp_path / "run"))


def texts(out: Path) -> dict[str, tuple[str, str]]:
    """record_id -> (text, what is left of it)"""
    rows = runs.rows(out, "records", ["record_id", "text", "edited"])
    return {r["record_id"]: (r["text"], r["text"] if r["edited"] is None else r["edited"]) for r in rows if r["text"]}


def holders(out: Path) -> dict[str, list[str]]:
    """Line, stripped and in lower case -> ids of the documents that hold it."""
    found: dict[str, set[str]] = {}
    for record_id, (text, _) in texts(out).items():
        for line in text.split("\n"):
            found.setdefault(line.strip().lower(), set()).add(record_id)
    found.pop("", None)
    return {line: sorted(ids) for line, ids in found.items()}


def measured(out: Path) -> list[dict[str, Any]]:
    """Every column of `records/` that does not depend on how a file is cut."""
    columns = [name for name in runs.table(out, "records").column_names if name not in ("warc_offset", "warc_length")]
    return sorted(runs.rows(out, "records", columns), key=lambda row: row["record_id"])


def again(err: str) -> list[int]:
    return [int(n) for n in re.findall(r"lines: (\d+) records measured again", err)]


def names(out: Path, dataset: str) -> set[str]:
    return {path.name for path in (out / dataset).glob("*.parquet")}


def states(out: Path) -> dict[tuple[str, int], tuple[str, str]]:
    """Place of each file of `records/` -> its name, the state of its lines"""
    tree = json.loads((out / "records" / "_manifest.json").read_text())
    metas = {part["path"]: part["meta"] for part in tree["parts"]}
    return {(meta["input_id"], meta["stretch"]): (path, meta["lines"]) for path, meta in metas.items()}


def test_each_repeated_line_stays_once_in_the_smallest_id_that_holds_it(three: Path) -> None:
    where = holders(three)
    assert len([line for line, ids in where.items() if len(ids) > 1]) >= 4
    for record_id, (text, left) in texts(three).items():
        expected, seen = [], set()
        for line in text.split("\n"):
            key = line.strip().lower()
            first = key not in seen
            seen.add(key)
            if key and (len(where[key]) < 2 or (where[key][0] == record_id and first)):
                expected.append(line.strip())
        assert [line.strip() for line in left.split("\n") if line.strip()] == expected


def test_signals_say_what_was_repeated_and_what_went(three: Path) -> None:
    where = holders(three)
    taken = 0
    for row in runs.rows(three, "records", ["text", "edited", "n_chars", "repeated_line_ratio", "repeated_line_chars"]):
        lines = [line for line in row["text"].split("\n") if line.strip()]
        repeated = sum(len(line) for line in lines if len(where[line.strip().lower()]) > 1)
        assert row["repeated_line_ratio"] == repeated / sum(map(len, lines))
        assert row["repeated_line_chars"] == len(row["text"]) - row["n_chars"]
        taken += row["repeated_line_chars"]
    assert taken


def test_the_dataset_holds_the_repeated_lines_of_each_file(three: Path) -> None:
    expected = {xxhash.xxh3_64_intdigest(line.encode()): len(ids) for line, ids in holders(three).items() if ids[1:]}
    tree = json.loads((three / "lines" / "_manifest.json").read_text())
    assert names(three, "lines") == {part["path"].rsplit("/", 1)[-1] for part in tree["parts"]}
    assert {row["hash"]: row["documents"] for row in runs.rows(three, "lines")} == expected
    keepers = [(row["hash"], row["first"]) for row in runs.rows(three, "lines") if row["first"] is not None]
    ids = {xxhash.xxh3_64_intdigest(line.encode()): ids for line, ids in holders(three).items()}
    assert sorted(keepers) == sorted((line, int(ids[line][0][:16], 16)) for line in expected)
    counts = json.loads((three / "run.json").read_text())["repeated_lines"]
    assert counts == {"documents": 24, "distinct": len(ids), "repeated": len(expected)}


def test_golden_lines(three: Path) -> None:
    """As tests/run/test_golden.py, of the one stage that no preset has."""
    rows = [sorted(map(repr, runs.rows(three, "lines"))), sorted(map(repr, texts(three).items()))]
    now = {"version": VERSIONS["lines"], "hash": xxhash.xxh3_64_hexdigest(repr(rows).encode())}
    assert json.loads(Path(__file__).with_name("golden.json").read_text())["lines"] == now


def test_why_shows_each_repeated_line_and_who_keeps_it(three: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = holders(three)
    for record_id, (text, left) in list(texts(three).items())[:6]:
        assert main(["why", str(three), record_id, "--json"]) == 0
        (one,) = json.loads(capsys.readouterr().out)
        expected = [line.strip() for line in text.split("\n") if len(where.get(line.strip().lower(), ())) > 1]
        shown = one["repeated_lines"]
        assert [line["text"] for line in shown] == expected
        for line in shown:
            ids = where[line["text"].lower()]
            assert (line["documents"], line["kept_id"]) == (len(ids), ids[0])
        assert [line["text"] for line in shown if not line["removed"]] == [x for x in expected if x in left.split("\n")]
    assert main(["why", str(three), record_id]) == 0
    out = capsys.readouterr().out
    assert all(line in out for line in expected)
    assert f"kept in {ids[0]}" in out or ids[0] == record_id


def test_the_report_says_what_went(three: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(three), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    pairs = texts(three).values()
    shortened = [(len(text), len(left)) for text, left in pairs if text != left]
    assert said["repeated_lines"] == {
        "documents": sum(row["repeated_line_ratio"] > 0 for row in runs.rows(three, "records")),
        "documents_shortened": len(shortened),
        "characters_removed": sum(before - after for before, after in shortened),
        "characters_before": sum(len(text) for text, _ in pairs),
    }
    assert any(f"{len(shortened)} lost some" in finding["text"] for finding in said["findings"])
    assert main(["rules", str(three), "--set", "edit.repeated_lines.min_documents=5"]) == 2
    assert "run curate with --set edit.repeated_lines" in capsys.readouterr().err


def test_a_new_input_changes_lines_in_old_files_and_only_those_records_are_measured_again(
    run: Path, three: Path, four: Path, files: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    before, parts = texts(run), states(run)
    assert runs.curate(files, run, *ON) == 0
    after = texts(run)
    changed = [record_id for record_id, (_, left) in before.items() if after[record_id][1] != left]
    fresh = [i for i, (text, left) in after.items() if i not in before and text != left]
    assert len(changed) > 0
    assert len(changed) < len(before)
    err = capsys.readouterr().err
    assert again(err) == [len(changed) + len(fresh)]
    assert "1 of 4 inputs: to read" in err
    # a file is written again exactly where the state of its lines is another
    now = states(run)
    assert {place: parts[place][0] == now[place][0] for place in parts} == {
        place: parts[place][1] == now[place][1] for place in parts
    }
    assert any(parts[place] == now[place] for place in parts)
    assert measured(run) == measured(four)
    assert runs.shard_hashes(run) == runs.shard_hashes(four)
    assert runs.verdict_rows(run) == runs.verdict_rows(four)
    # and without it again, all is as it was
    assert runs.curate(files[:3], run, *ON) == 0
    assert measured(run) == measured(three)
    assert runs.shard_hashes(run) == runs.shard_hashes(three)


def test_nothing_changes_when_nothing_has(run: Path, files: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*.parquet")}
    assert runs.curate(files[:3], run, *ON) == 0
    assert "nothing to do" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in run.rglob("*.parquet")} == before


def test_switched_off_it_ends_as_if_it_had_never_been(
    run: Path, files: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert runs.curate(files[:3], tmp_path / "off", *ON[2:]) == 0
    said = capsys.readouterr().err
    assert "lines" not in said
    assert not (tmp_path / "off" / "lines").exists()
    assert "repeated_lines" not in json.loads((tmp_path / "off" / "run.json").read_text())
    assert all(row["repeated_line_ratio"] is None for row in runs.rows(tmp_path / "off", "records"))
    changed = sum(text != left for text, left in texts(run).values())
    assert runs.curate(files[:3], run, *ON[2:]) == 0
    assert again(capsys.readouterr().err) == [changed]
    assert not (run / "lines").exists()
    assert measured(run) == measured(tmp_path / "off")
    assert runs.shard_hashes(run) == runs.shard_hashes(tmp_path / "off")


def test_only_counted_lines_stay_where_they_are(run: Path, files: list[Path], tmp_path: Path) -> None:
    rule = ["--set", "quality.rules.repeated_line_ratio.max=0.05", "--set", "edit.repeated_lines.remove=false"]
    assert runs.curate(files[:3], run, *ON, *rule) == 0
    assert all(text == left for text, left in texts(run).values())
    ratios = [row["repeated_line_ratio"] for row in runs.rows(run, "records", ["repeated_line_ratio"])]
    assert max(ratios) > 0.05
    reasons = [row["reason"] for row in runs.rows(run, "verdicts")]
    assert reasons.count("repeated_line_ratio") == sum(ratio > 0.05 for ratio in ratios)


def test_texts_that_were_dropped_are_read_again_when_lines_change(
    run: Path, files: list[Path], four: Path, three: Path
) -> None:
    none = ("--set", "keep_text=none")
    assert runs.curate(files[:3], run, *ON, *none) == 0
    assert texts(run) == {}
    assert runs.curate(files, run, *ON, *none) == 0
    assert texts(run) == {}
    assert runs.shard_hashes(run) == runs.shard_hashes(four)
    # read once more, now in other pieces, for which nothing was counted
    cuts = ("--set", "dedup.threshold=0.9", "--set", "input.split_mib=0.002")
    assert runs.curate(files, run, *ON, *cuts) == 0
    assert measured(run) == measured(four)


def test_spans_of_three_sentences(run: Path, files: list[Path], tmp_path: Path) -> None:
    common = "We moved to the coast in May. The house was small. Nobody minded that."
    pages = [
        f"My own story number {n} begins here. {common} Then it went on, differently each time {n}." for n in range(3)
    ]
    path = tmp_path / "s.wet"
    path.write_bytes(b"".join(record(f"http://s.example/{n}", text) for n, text in enumerate(pages)))
    assert runs.curate([*files[:3], path], run, *ON, "--set", "edit.repeated_lines.unit=sentences") == 0
    left = dict(texts(run).values())
    assert sum(common in left[page] for page in pages) == 1
    for n, page in enumerate(pages):
        assert left[page].startswith(f"My own story number {n} begins here.")
        assert left[page].endswith(f"differently each time {n}.")


@pytest.mark.parametrize("moment", ["before the records", "before the lines", "between two parts"])
def test_interrupted_anywhere_it_goes_on_and_ends_the_same(
    moment: str, run: Path, files: list[Path], four: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, due = Storage.commit, stage._bring_up_to_date
    counted = False

    def stop(storage: Storage, dataset: str, *args: Any) -> Any:
        if counted and dataset == {"before the records": "records", "before the lines": "lines"}.get(moment):
            raise GristmillError("stopped here")
        return commit(storage, dataset, *args)

    def some(it: Any, parts: list[stage.PartDue]) -> None:
        nonlocal counted
        counted = True
        if moment == "between two parts":
            for one in parts[:2]:
                stage.remake_part(one, it.recipe, it.storage)
            raise GristmillError("stopped here")
        due(it, parts)

    with monkeypatch.context() as patch:
        patch.setattr(Storage, "commit", stop)
        patch.setattr(stage, "_bring_up_to_date", some)
        assert runs.curate(files, run, *ON) == 1
    assert runs.curate(files, run, *ON) == 0
    assert measured(run) == measured(four)
    assert runs.shard_hashes(run) == runs.shard_hashes(four)
    for dataset in ("records", "lines"):
        tree = json.loads((run / dataset / "_manifest.json").read_text())
        listed = {part["path"].rsplit("/", 1)[-1] for part in tree["parts"]}
        assert {path.name for path in (run / dataset).iterdir()} == listed | {"_manifest.json"}
