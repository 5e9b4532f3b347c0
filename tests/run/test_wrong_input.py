"""Every command with wrong input ends in one clear line and status 1 or 2, without a traceback."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.cli import main
from pipeline.storage import Storage

Case = tuple[list[str], int, str]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "some.warc.gz"
    path.write_bytes(b"not a crawl file, but there")
    return path


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["curate", "{dir}/absent.warc.gz", "--out", "{dir}/out"], 2, "absent.warc.gz"),
        (["curate", "{dir}/empty", "--out", "{dir}/out"], 2, "no crawl files"),
        (["curate", "{dir}/none-*.gz", "--out", "{dir}/out"], 2, "nothing matches"),
        (["curate", "{dir}/zero.warc.gz", "--out", "{dir}/out"], 2, "empty"),
        (["curate", "{dir}/list.paths", "--out", "{dir}/out"], 2, "list is empty"),
        (["curate", "{file}", "--out", "{dir}/out", "--recipe", "finweb"], 2, "fineweb"),
        (["curate", "{file}", "--out", "{dir}/out", "--recipe", "{dir}/no.toml"], 2, "no.toml"),
        (["curate", "{file}", "--out", "{dir}/out", "--set", "language.min_scor=1"], 2, "min_score"),
        (["curate", "{file}", "--out", "{dir}/out", "--set", "dedup.threshold=1.5"], 2, "dedup.threshold"),
        (["curate", "{file}", "--out", "{dir}/out", "--set", "language"], 2, "key=value"),
        (["curate", "{file}", "--out", "{dir}/out", "--set", "quality.rules.gofer_short_doc.min=3"], 2,
         "gopher_short_doc"),
        (["curate", "{file}", "--out", "{dir}/out", "--set", "quality.rules.gopher_short_doc.min=30",
          "--set", "quality.rules.gopher_short_doc.max=3"], 2, "no number is in the range"),
        (["curate", "{file}", "--out", "{dir}/out", "--set", 'language.allowed=["xx"]'], 2, "xx"),
        (["curate", "{file}", "--out", "{dir}/out", "--set", "language.model={dir}/no.bin"], 2, "no.bin"),
        (["curate", "{file}", "--out", "{dir}/out", "--set", "publish.tokenizer={dir}/no.json"], 2, "no.json"),
        (["curate", "{file}", "--out", "{dir}/out", "--set", "quality.score_model={dir}/no.bin"], 2, "no.bin"),
        (["curate", "{file}", "--out", "{dir}/out", "--set", "quality=off"], 2, "keys of its own"),
        (["curate", "{file}", "--out", "{dir}/out", "--set", "limits.body_mib=inf"], 2, "finite"),
        (["curate", "{file}", "--out", "{dir}/out", "--set", "limits.memory_mib=1e300"], 2, "memory_mib"),
        (["curate", "{file}", "--out", "{dir}/out", "--set", "publish.shard_mib=1e-300"], 2, "shard_mib"),
        (["curate", "{file}", "--out", "{dir}/out", "--set", "dedup.seed=4294967296"], 2, "dedup.seed"),
        (["curate", "{file}", "--out", "{dir}/out", "--set", "publish.pii.emial=true"], 2, "publish.pii.emial "),
        (["curate", "{file}", "--out", "{dir}/out", "--set", "x=" + "[" * 5000], 2, "unknown key x"),
        (["curate", "{file}", "--out", "{dir}/out", "--set", 'keep_text="all"\nname="a"'], 2, "keep_text"),
        (["curate", "{file}", "--out", "{dir}/out", "--recipe", "{dir}/circle.toml"], 2, "circle"),
        (["curate", "{file}", "--out", "{dir}/out", "--recipe", "{dir}/nul.toml"], 2, "NUL"),
        (["curate", "{file}", "--out", "{dir}/out", "--recipe", "{dir}/deep.toml"], 2, "too deep"),
        (["curate", "{file}", "--out", "{dir}/out", "--recipe", "{dir}/feed.toml"], 2, r"a\nb"),
        (["curate", "{dir}/pipe", "--out", "{dir}/out"], 2, "neither a file nor a folder"),
        (["curate", "{dir}/odd", "--out", "{dir}/out"], 2, r"\xff.warc: its name is not UTF-8"),
        (["curate", "{file}", "--out", "{dir}/\udcff"], 2, r"\xff: not UTF-8"),
        (["curate", "{file}", "--out", "{file}"], 2, "is a file"),
        (["curate", "{file}", "--out", "{dir}/strange"], 2, "holds other files"),
        (["curate", "{file}", "--out", "{dir}/run/records/new"], 2, "lies inside the run"),
        (["curate", "{file}"], 2, ""),
        (["curat", "x"], 2, "curate"),
        (["report", "{dir}/absent"], 2, "is not a run"),
        (["report", "{dir}/strange"], 2, "is not a run"),
        (["why", "{dir}/strange", "http://a.test/"], 2, "is not a run"),
        (["rules", "{dir}/strange", "--set", "language.min_score=0.1"], 2, "is not a run"),
        (["dups", "{dir}/strange"], 2, "is not a run"),
        (["export", "{dir}/strange", "--reason", "near"], 2, "is not a run"),
        (["sample", "{dir}/s", "--pages", "0"], 2, "pages"),
        (["sample", "{file}/s"], 1, "some.warc.gz"),
    ],
)  # fmt: skip
def test_one_line_and_a_status(
    arguments: list[str], status: int, says: str, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "strange").mkdir()
    (tmp_path / "strange" / "thesis.txt").write_text("mine")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")
    (tmp_path / "zero.warc.gz").touch()
    (tmp_path / "list.paths").touch()
    (tmp_path / "circle.toml").write_text(f'extends = "../{tmp_path.name}/circle.toml"')
    (tmp_path / "nul.toml").write_text('[url]\nhard_words = ["a\\u0000b"]')
    (tmp_path / "deep.toml").write_text("x = " + "[" * 5000)
    (tmp_path / "feed.toml").write_text('"a\\nb" = 1')
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "a\udcff.warc").touch()
    before = set(tmp_path.rglob("*"))
    assert main([a.format(dir=tmp_path, file=file) for a in arguments]) == status
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    lines = said.err.strip().splitlines()
    assert says in lines[-1]
    if "usage:" not in said.err:
        assert len(lines) == 1, said.err
    assert (tmp_path / "strange" / "thesis.txt").read_text() == "mine"
    assert set(tmp_path.rglob("*")) == before


def test_a_run_that_another_process_writes_is_refused(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    with Storage(str(out)).lock():
        assert main(["curate", str(file), "--out", str(out), "--recipe", "minimal"]) == 1
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1
    assert str(os.getpid()) in said[0]


@pytest.mark.usefixtures("spark")
def test_a_full_disk_or_a_read_only_folder_is_one_line(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], locked: Callable[[Path], Path]
) -> None:
    assert main(["curate", str(file), "--out", str(locked(tmp_path) / "out"), "--recipe", "minimal"]) == 1
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


@pytest.fixture
def locked() -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        if shutil.disk_usage("/proc").total == 0:
            return Path("/proc")  # nobody, not even root, can make a folder there
        path = folder / "locked"
        path.mkdir(mode=0o500)
        return path

    return make
