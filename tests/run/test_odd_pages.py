"""Odd pages through the whole command: each costs itself only (shared cases 1, 9, 11, 13, 21, 30, 45, 50)."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from pipeline.datasets import RECORDS
from tests.run import runs

pytestmark = pytest.mark.usefixtures("spark")

WORDS = np.array(
    ["mill", "stone", "water", "grain", "wheel", "river", "flour", "baker", "bread", "oven", "field", "cart"]
)


def article(number: int) -> bytes:
    """A page of 60 paragraphs that no other has."""
    random = np.random.default_rng(number)
    sentences = [f"The {' '.join(random.choice(WORDS, 9))} of number {number}." for _ in range(60)]
    paragraphs = "".join(f"<p>{sentence}</p>" for sentence in sentences)
    return f"<html><head><title>No {number}</title></head><body><article>{paragraphs}</article></body></html>".encode()


def page(inside: str, title: str = "odd") -> bytes:
    body = f"<html><head><title>{title}</title></head><body><article>{inside}</article></body></html>"
    return body.encode("utf-8", "surrogatepass")


def write(path: Path, records: list[bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(gzip.compress(record, 6, mtime=0) for record in records))
    return path


PROSE = "<p>The wheel turns and the stone grinds the grain that the carts brought from the fields.</p>" * 8
ODD = {
    "http://odd.test/entity-surrogate": page(f"{PROSE}<p>before &#xD800; after &#xDFFF; ENDMARK</p>", "a &#xD800; b"),
    "http://odd.test/raw-surrogate": page(f"{PROSE}<p>before \ud800 after ENDMARK</p>"),
    "http://odd.test/nul": page(f"{PROSE}<p>be\x00fore &#0; \x0b after ENDMARK</p>"),
    "http://odd.test/empty": page(""),
    "http://odd.test/blank": page(" \u200b "),
    "http://odd.test/mark": page("<p>!</p>"),
    "http://odd.test/digits": page("<p>12345</p>"),
    "http://odd.test/one-word": page(f"<p>{'x' * 2_000_000}</p>"),
    "http://odd.test/separators": page(f"{PROSE}<p>line\u2028line\u0085line\r\nline ENDMARK</p>"),
    "http://odd.test/deep": page("<div>" * 20_000 + "DEEPMARK" + "</div>" * 20_000 + PROSE),
    "http://odd.test/colspan": page(f"{PROSE}<table><tr><td colspan='9007199254740991'>x</td></tr></table>ENDMARK"),
    "http://odd.test/\x08\udcff\udcc3": page(PROSE),
}


@pytest.fixture(scope="module")
def bystanders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bystanders")
    return write(folder / "sound.warc.gz", [runs.response(f"http://sound.test/{n}", article(n)) for n in range(10)])


def sound_rows(run: Path) -> list[tuple[object, ...]]:
    found = [row for row in runs.rows(run, "records", RECORDS.names) if row["warc_file"] == "sound.warc.gz"]
    return sorted(tuple(map(repr, row.values())) for row in found)


@pytest.mark.parametrize("engine", ["resiliparse", "trafilatura"])
def test_each_odd_page_costs_itself_only(engine: str, bystanders: Path, tmp_path: Path) -> None:
    odd = write(tmp_path / "odd.warc.gz", [runs.response(url, body) for url, body in ODD.items()])
    choice = ["--set", f"extract.engine={engine}"]
    assert runs.curate([bystanders], tmp_path / "without", *choice) == 0
    assert runs.curate([bystanders, odd], tmp_path / "with", *choice) == 0
    assert len(sound_rows(tmp_path / "with")) == 10
    assert sound_rows(tmp_path / "with") == sound_rows(tmp_path / "without")
    rows = {row["url"]: row for row in runs.rows(tmp_path / "with", "records") if row["warc_file"] == odd.name}
    assert len(rows) == len(ODD)
    assert not [row["detail"] for row in rows.values() if row["reason"] == "error"]
    for name in ("entity-surrogate", "raw-surrogate", "nul", "separators"):
        assert rows[f"http://odd.test/{name}"]["text"].endswith("ENDMARK"), name
    assert rows["http://odd.test/empty"]["reason"] == "no_text"
    assert rows["http://odd.test/deep"]["reason"] == "too_deep"
    (odd_address,) = [row for url, row in rows.items() if "%FF" in url.upper()]
    assert (odd_address["stage"], odd_address["reason"]) == ("read", "bad_header")
    short = {v["url"]: v["reason"] for v in runs.rows(tmp_path / "with", "verdicts")}
    assert short["http://odd.test/digits"] in ("too_short_for_lang", "no_text")


def test_a_page_that_takes_for_ever_is_a_timeout(bystanders: Path, tmp_path: Path) -> None:
    endless = page("<table>" + "<tr><td><a href='x'>a cell with a link</a></td></tr>" * 60_000 + "</table>")
    slow = write(tmp_path / "slow.warc.gz", [runs.response("http://slow.test/", endless)])
    choice = ["--set", "extract.engine=trafilatura", "--set", "limits.cpu_seconds=1"]
    assert runs.curate([bystanders], tmp_path / "without", *choice) == 0
    assert runs.curate([bystanders, slow], tmp_path / "with", *choice) == 0
    (row,) = [row for row in runs.rows(tmp_path / "with", "records") if row["url"] == "http://slow.test/"]
    assert (row["stage"], row["reason"], row["text"]) == ("extract", "timeout", None)
    assert sound_rows(tmp_path / "with") == sound_rows(tmp_path / "without")


def test_files_of_one_name_in_two_folders_are_two_inputs(tmp_path: Path) -> None:
    one = write(tmp_path / "a" / "x.warc.gz", [runs.response("http://a.test/", article(1))])
    two = write(tmp_path / "b" / "x.warc.gz", [runs.response("http://b.test/", article(2))])
    assert runs.curate([one, two], tmp_path / "run") == 0
    assert sorted(row["url"] for row in runs.rows(tmp_path / "run", "shards")) == ["http://a.test/", "http://b.test/"]


def test_every_cut_of_a_file_loses_the_cut_record_only(tmp_path: Path) -> None:
    whole = [gzip.compress(runs.response(f"http://cut.test/{n}", article(n)), 6, mtime=0) for n in range(4)]
    inputs = []
    for number, share in enumerate((0.01, 0.3, 0.7, 0.99)):
        path = tmp_path / f"cut-{number}.warc.gz"
        path.write_bytes(b"".join(whole[:3]) + whole[3][: int(len(whole[3]) * share)])
        inputs.append(path)
    assert runs.curate(inputs, tmp_path / "run") == 0
    rows = runs.rows(tmp_path / "run", "records", ["warc_file", "url", "stage", "reason"])
    for path in inputs:
        mine = [row for row in rows if row["warc_file"] == path.name]
        assert [row["reason"] for row in mine[:3]] == [None] * 3
        assert len(mine) == 4
        assert mine[3]["stage"] == "read"
    assert {row["status"] for row in runs.rows(tmp_path / "run", "inputs")} == {"damaged"}
