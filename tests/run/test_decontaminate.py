"""Decontamination through the command: planted benchmark words are rejected, the rest is not; what is redone when."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from jobs.cli import main
from pipeline import accounts
from pipeline.errors import GristmillError
from pipeline.recipe import load
from pipeline.run import decontaminate
from pipeline.storage import Storage, open_run
from tests.decontaminate import made
from tests.run import runs

pytestmark = pytest.mark.usefixtures("spark")

WORDS = re.findall(r"\w+", made.QUESTION)
OTHER = "A lighthouse keeper climbs ninety steps every evening and counts seven ships on each of his thirty long walks."
FILLER = (
    "The old mill by the river was built of grey stone in the year {n}, and its wheel has turned ever since. "
    "Visitors number {n} come by boat from the town below, have tea in the garden, and leave before it is dark. "
    "In winter {n} the ice holds the wheel, and the miller mends his nets beside the stove until the thaw."
)
PASSAGES = {
    "exact": f"<p>{made.QUESTION}</p>",
    "case": f"<p>{made.QUESTION.upper()}</p>",
    "punctuation": f"<p>{made.QUESTION.replace(' ', ' - ').replace('.', '!')}</p>",
    "lines": "<p>" + "<br>".join(WORDS) + "</p>",
    "thirteen": f"<p>{' '.join(WORDS[4:17])}</p>",
    "twelve": f"<p>{' '.join(WORDS[4:16])}</p>",
    "chinese": f"<p>{made.CHINESE}</p>",
    "short": f"<p>{made.SHORT}</p>",
    "both": f"<p>{OTHER}</p><p>{made.QUESTION}</p>",
    "other": f"<p>{OTHER}</p>",
    "clean": "<p>Nothing of any benchmark stands on this page.</p>",
    "copy of exact": f"<p>{made.QUESTION}</p>",
    "tiny": "<p>磨</p>",
}
#: What each page's verdict is: None = kept
EXPECTED = {
    **dict.fromkeys(["exact", "case", "punctuation", "lines", "thirteen", "chinese", "both"], "millers"),
    "copy of exact": "millers",
    "other": "keepers",
    "tiny": "too_short_for_lang",
}  # fmt: skip


def page(name: str, passage: str, number: int) -> bytes:
    filler = "" if name == "tiny" else FILLER.format(n=1700 + number)
    around = "" if name == "tiny" else f"<p>{FILLER.format(n=2 * number)}</p>"
    return runs.response(
        f"http://ex.test/{name.replace(' ', '-')}",
        f"<html><head><title>{name}</title></head><body><article><p>{filler}</p>{passage}{around}</article></body></html>".encode(),
    )


def write_crawl(folder: Path, passages: dict[str, str]) -> Path:
    folder.mkdir()
    records = [
        page(name, passage, 0 if name == "copy of exact" else i) for i, (name, passage) in enumerate(passages.items())
    ]
    for number, some in enumerate((records[::2], records[1::2])):
        (folder / f"{number}.warc.gz").write_bytes(b"".join(map(gzip.compress, some)))
    return folder


def recipe(folder: Path, *names: str) -> Path:
    path = folder / f"{'-'.join(names) or 'none'}.toml"
    lines = ['extends = "minimal"', *(f"[decontaminate.benchmarks.{n}]\npath = '{folder}/{n}.jsonl'" for n in names)]
    path.write_text("\n".join(line + ('\nfields = ["question", "answer"]' if "[" in line else "") for line in lines))
    return path


def verdicts(run: Path) -> dict[str, tuple[str | None, str | None]]:
    return {row["url"].rsplit("/", 1)[-1]: (row["stage"], row["reason"]) for row in runs.rows(run, "verdicts")}


def expected(passages: Sequence[str]) -> dict[str, tuple[str | None, str | None]]:
    def of(reason: str | None) -> tuple[str | None, str | None]:
        stage = None if reason is None else "language" if reason == "too_short_for_lang" else "decontaminate"
        return stage, reason

    return {name.replace(" ", "-"): of(EXPECTED.get(name)) for name in passages}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A crawl, two benchmarks, and a finished run that was compared with both."""
    folder = tmp_path_factory.mktemp("decontaminate")
    made.write(folder / "millers.jsonl")
    made.write(folder / "keepers.jsonl", [{"question": OTHER, "answer": "x"}])
    crawl = write_crawl(folder / "crawl", PASSAGES)
    assert runs.curate([crawl], folder / "run", recipe=str(recipe(folder, "millers", "keepers"))) == 0
    return folder


@pytest.fixture(scope="module")
def without(place: Path) -> Path:
    """A finished run of the same crawl without benchmarks."""
    assert runs.curate([place / "crawl"], place / "without") == 0
    return place / "without"


@pytest.fixture
def again(place: Path, tmp_path: Path) -> Path:
    """A copy of all of it."""
    return Path(shutil.copytree(place, tmp_path / "place"))


def test_planted_words_are_rejected_and_nothing_else_is(place: Path) -> None:
    run = place / "run"
    assert verdicts(run) == expected(list(PASSAGES))
    assert runs.rows(run, "duplicates") == []  # of the two equal pages none entered dedup
    told = json.loads((run / "run.json").read_text())
    assert told["counts"]["rejected"]["decontaminate"] == {"millers": 8, "keepers": 1}
    assert told["dedup"]["entered"] == 3
    millers = told["decontaminate"]["millers"]
    assert {k: v for k, v in millers.items() if k != "ngrams"} == {"entries": 3, "too_short": 1, "matched": 8}
    assert told["decontaminate"]["keepers"]["matched"] == 2
    accounts.check(open_run(str(run), must_exist=True))


def test_the_dataset_names_entry_and_span(place: Path) -> None:
    names = {row["record_id"]: row["url"].rsplit("/", 1)[-1] for row in runs.rows(place / "run", "records")}
    texts = {row["record_id"]: row["text"] for row in runs.rows(place / "run", "records")}
    rows = runs.rows(place / "run", "contaminated")
    assert Counter(names[r["record_id"]] for r in rows)["both"] == 2
    for row in rows:
        span = texts[row["record_id"]][row["span_start"] : row["span_end"]]
        assert span == row["span"]
        assert row["ngrams"] >= 1
        wanted = (
            made.CHINESE if names[row["record_id"]] == "chinese" else OTHER if row["benchmark"] == "keepers" else None
        )
        if wanted:
            assert span == wanted.rstrip(".?")
        else:
            assert set(re.findall(r"\w+", span.lower())) <= {word.lower() for word in WORDS}
        assert row["entry"] == {"keepers": 0}.get(row["benchmark"], 2 if wanted else 1)


def test_why_export_report_and_rules_tell_of_it(
    place: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run = str(place / "run")
    assert main(["why", run, "http://ex.test/case"]) == 0
    said = capsys.readouterr().out
    assert "rejected: decontaminate/millers" in said
    assert "holds words of millers: entry 1 of millers.jsonl, question" in said
    assert f"»{made.QUESTION.upper().rstrip('?')}«?" in said
    assert main(["why", run, "http://ex.test/both", "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)
    assert [row["benchmark"] for row in one["contaminated"]] == ["millers", "keepers"]
    assert main(["export", run, "--reason", "keepers"]) == 0
    (row,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert row["contaminated"][0]["span"] == OTHER.rstrip(".")
    assert main(["export", run, "--reason", "keeper"]) == 2
    assert "nearest: keepers" in capsys.readouterr().err
    assert main(["report", run]) == 0
    said = capsys.readouterr().out
    assert re.search(r"decontaminate +9 .*\n +millers +8 .*\n +keepers +1 ", said)
    assert "benchmark millers: 1 of 3 entries are shorter than 13 words" in said
    assert OTHER[:40] in (place / "run" / "report" / "report.html").read_text()
    assert main(["rules", run, "--set", "language.min_letters=0"]) == 0
    assert "decontaminate (estimate)  loses 75.0 %" in capsys.readouterr().out


def test_partitions_do_not_matter(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    files = sorted((place / "crawl").iterdir(), reverse=True)
    wish = ["--set", "input.split_mib=0.0005"]
    assert runs.curate(files, out, *wish, recipe=str(place / "millers-keepers.toml")) == 0
    assert len(runs.rows(out, "inputs")) == 2 < len(list((out / "contaminated").glob("*.parquet")))
    assert runs.shard_hashes(out) == runs.shard_hashes(place / "run")
    assert runs.verdict_rows(out) == runs.verdict_rows(place / "run")
    key = ["record_id", "benchmark"]
    rows = [sorted(runs.rows(run, "contaminated"), key=lambda r: [r[k] for k in key]) for run in (out, place / "run")]
    assert rows[0] == rows[1]


def manifests(run: Path) -> dict[str, bytes]:
    found = {path.parent.name: path.read_bytes() for path in run.glob("*/_manifest.json")}
    return found | {"shards": (run / "shards" / "manifest.json").read_bytes()}


def redone(run: Path, before: dict[str, bytes]) -> set[str]:
    after = manifests(run)
    return {name for name in {*before, *after} if before.get(name) != after.get(name)}


@pytest.mark.usefixtures("no_reading")
def test_what_is_redone_when_something_changes(
    again: Path, place: Path, without: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The copy's benchmarks lie elsewhere, which does not count; its crawl is the first one's."""
    run, crawl = again / "run", place / "crawl"
    before = manifests(run)
    wish = str(recipe(again, "millers", "keepers"))
    assert runs.curate([crawl], run, recipe=wish) == 0
    assert redone(run, before) == set()
    # a threshold: nothing is compared again
    parts = sorted((run / "contaminated").iterdir())
    assert runs.curate([crawl], run, "--set", "language.min_letters=0", recipe=wish) == 0
    assert redone(run, before) == {"duplicates", "verdicts", "shards"}
    assert sorted((run / "contaminated").iterdir()) == parts
    assert runs.curate([crawl], run, recipe=wish) == 0
    # a benchmark: its texts are compared again, no crawl is read
    before = manifests(run)
    made.write(again / "keepers.jsonl", [{"question": FILLER.format(n=1710), "answer": "x"}])
    capsys.readouterr()
    assert runs.curate([crawl], run, recipe=wish) == 0
    assert "decontaminate.benchmarks.keepers changed" in capsys.readouterr().err
    assert redone(run, before) == {"contaminated", "duplicates", "verdicts", "shards"}
    changed = {name: v for name, v in verdicts(run).items() if v != expected(list(PASSAGES))[name]}
    assert changed == dict.fromkeys(["clean", "twelve", "short"], ("decontaminate", "keepers"))
    # none at all: the dataset goes, and all is as if there had never been one
    assert runs.curate([crawl], run, recipe=str(recipe(again))) == 0
    assert not (run / "contaminated").exists()
    assert runs.shard_hashes(run) == runs.shard_hashes(without)
    assert not (without / "contaminated").exists()
    assert Counter(v[0] for v in verdicts(run).values()) == {None: 11, "dedup": 1, "language": 1}


@pytest.mark.usefixtures("no_reading")
def test_a_run_of_a_version_without_this_stage_is_not_touched(
    without: Path, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads((without / "run.json").read_text())
    del document["recipe"]["decontaminate"]
    (without / "run.json").write_text(json.dumps(document))
    before = manifests(without)
    assert runs.curate([place / "crawl"], without) == 0
    assert "nothing to do" in capsys.readouterr().err
    assert redone(without, before) == set()
    assert load("minimal").digest() == load("minimal", ["decontaminate.ngram=20"]).digest() == document["recipe_hash"]


def test_texts_that_were_dropped_are_read_again(again: Path, place: Path) -> None:
    run, crawl, wish = again / "run", place / "crawl", str(recipe(again, "millers", "keepers"))
    assert runs.curate([crawl], run, "--set", "keep_text=none", recipe=wish) == 0
    assert not any(row["text"] for row in runs.rows(run, "records", ["text"]))
    made.write(again / "keepers.jsonl", [{"question": PASSAGES["clean"], "answer": "x"}])
    assert runs.curate([crawl], run, "--set", "keep_text=none", "--set", "decontaminate.ngram=7", recipe=wish) == 0
    assert verdicts(run)["clean"] == ("decontaminate", "keepers")
    assert verdicts(run)["other"] == (None, None)
    assert not any(row["text"] for row in runs.rows(run, "records", ["text"]))


def test_a_killed_run_goes_on_with_what_was_compared(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, wish = tmp_path / "run", str(place / "millers-keepers.toml")
    match = decontaminate._match

    def killed(*given: Any) -> None:
        match(*given)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(decontaminate, "_match", killed)
        assert runs.curate([place / "crawl"], out, recipe=wish) == 130
    assert not (out / "contaminated" / "_manifest.json").exists()
    left: list[int] = []
    monkeypatch.setattr(decontaminate, "_match", lambda run, tasks, index: left.append(len(tasks)) or [])
    assert runs.curate([place / "crawl"], out, recipe=wish) == 0
    assert left == [0]
    assert runs.shard_hashes(out) == runs.shard_hashes(place / "run")


def test_a_benchmark_that_changes_under_the_run_ends_it(
    again: Path, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made.write(again / "keepers.jsonl", [{"question": PASSAGES["clean"] * 2, "answer": "x"}])
    build = decontaminate.build

    def late(settings: Any) -> Any:
        made.write(again / "keepers.jsonl", [{"question": made.ANSWER, "answer": "x"}])
        return build(settings)

    monkeypatch.setattr(decontaminate, "build", late)
    assert runs.curate([place / "crawl"], again / "run", recipe=str(recipe(again, "millers", "keepers"))) == 1
    assert "changed while the run was at work" in capsys.readouterr().err


def test_an_unbalanced_run_is_found(again: Path) -> None:
    storage = open_run(str(again / "run"), must_exist=True)
    accounts.check(storage)

    def put(rows: list[list[dict[str, object]]]) -> Storage:
        from pipeline.datasets import CONTAMINATED
        from tests.publish.made import write

        write(storage, "contaminated", CONTAMINATED, rows)
        return storage

    files = [
        runs.ds.dataset(str(again / "run" / p.path), format="parquet").to_table().to_pylist()
        for p in storage.read_manifest("contaminated").parts  # type: ignore[union-attr]
    ]
    clean = next(row for row in runs.rows(again / "run", "verdicts") if row["kept"])
    for rows, message in (
        ([files[0][1:], files[1]], "contaminated/ says nothing"),
        ([[{**files[0][0], "benchmark": "keepers"}, *files[0][1:]], files[1]], "says keepers"),
        ([[*files[0], {**files[0][0], "record_id": clean["record_id"]}], files[1]], "was not rejected for it|has not"),
        ([files[0]], "1 files in contaminated/, 2 in verdicts/"),
    ):
        with pytest.raises(GristmillError, match=f"^accounts: .*({message})"):
            accounts.check_contaminated(put(rows))
    accounts.check_contaminated(put(files))
    storage.drop("contaminated")
    with pytest.raises(GristmillError, match="contaminated/ says nothing"):
        accounts.check_contaminated(storage)


def test_gsm8k_in_pages(shared_data: Path, tmp_path: Path) -> None:
    """Every thirteenth question of the test set, in a page of its own; and pages without one."""
    bench = shared_data / "bench" / "gsm8k" / "grade_school_math" / "data" / "test.jsonl"
    questions = [json.loads(line)["question"] for line in bench.read_text().splitlines()]
    planted = {f"q{i}": f"<p>{questions[i]}</p>" for i in range(0, len(questions), 13)}
    crawl = write_crawl(tmp_path / "crawl", {"clean": PASSAGES["clean"], **planted})
    table = f'decontaminate.benchmarks.gsm8k={{path="{bench}", fields=["question", "answer"]}}'
    assert runs.curate([crawl], tmp_path / "run", "--set", table) == 0
    found = verdicts(tmp_path / "run")
    assert {name for name, v in found.items() if v == ("decontaminate", "gsm8k")} == set(planted)
    entries = {row["record_id"]: row["entry"] for row in runs.rows(tmp_path / "run", "contaminated")}
    for row in runs.rows(tmp_path / "run", "records", ["record_id", "url"]):
        name = row["url"].rsplit("/", 1)[-1]
        if name in planted:
            assert entries[row["record_id"]] == int(name[1:])
