"""Benchmark files of every kind give the same entries; whatever is wrong with one is said in one line, at start-up."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.cli import main
from pipeline.decontaminate import build, check
from pipeline.errors import UsageError
from pipeline.recipe import Benchmark, Decontaminate
from tests.decontaminate import made

ODD_VALUES = [*made.ENTRIES, {"question": 'Two\nlines, "quoted", with a comma\tand a tab', "answer": "ñ"}]


def as_csv(delimiter: str) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, ["question", "answer"], delimiter=delimiter)
    writer.writeheader()
    writer.writerows(ODD_VALUES)
    return text.getvalue().encode()


def as_parquet(question: str = "question") -> bytes:
    data = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(ODD_VALUES).rename_columns([question, "answer"]), data)
    return data.getvalue()


LINES = "\n".join(map(json.dumps, ODD_VALUES)).encode()
KINDS: dict[str, Callable[[], bytes]] = {
    "b.jsonl": lambda: LINES,
    "b.jsonl.gz": lambda: gzip.compress(LINES),
    "b.JSON": lambda: b"\xef\xbb\xbf" + LINES.replace(b"\n", b"\r\n\r\n"),
    "b.csv": lambda: as_csv(","),
    "b.csv.gz": lambda: gzip.compress(as_csv(",")),
    "b.tsv": lambda: as_csv("\t"),
    "b.parquet": as_parquet,
}


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_file_gives_the_same_entries(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(KINDS[name]())
    plain = made.write(tmp_path / "plain.jsonl", ODD_VALUES)
    one, other = (build(made.settings(path)) for path in (tmp_path / name, plain))
    assert one.counts["b"] == other.counts["plain"] == {"entries": 4, "too_short": 2, "ngrams": len(other.keys)}
    assert one.keys.tolist() == other.keys.tolist()
    assert one.text_entry.tolist() == other.text_entry.tolist() == [1, 1, 2]


def test_several_files_nested_fields_lists_and_nulls(tmp_path: Path) -> None:
    rows = [{"q": {"stem": made.QUESTION, "n": 3}, "choices": [{"text": "one"}, {"text": made.ANSWER}], "alt": None}]
    one = tmp_path / "one.jsonl"
    one.write_text(json.dumps(rows[0]))
    two = tmp_path / "two.parquet"
    pq.write_table(pa.Table.from_pylist([{**rows[0], "alt": ["first", made.ANSWER]}]), two)
    wanted = Benchmark(path=(str(one), str(two)), fields=("q.stem", "choices.text", "alt"))
    index = build(Decontaminate(benchmarks={"nested": wanted}))
    assert index.counts["nested"]["entries"] == 2
    texts = [(index.files[f], index.fields[c]) for f, c in zip(index.text_file, index.text_field, strict=True)]
    assert texts == [
        ("one.jsonl", "q.stem"),
        ("one.jsonl", "choices.text"),
        ("two.parquet", "q.stem"),
        ("two.parquet", "choices.text"),
        ("two.parquet", "alt"),
    ]


def test_files_of_one_name_are_told_apart_and_none_is_named_twice(tmp_path: Path) -> None:
    paths = [str(tmp_path / folder / "x" / "set.jsonl") for folder in ("dev", "test")]
    wanted = Benchmark(path=tuple(paths), fields=("q",))
    assert wanted.labels == ("dev/x/set.jsonl", "test/x/set.jsonl")
    assert Benchmark(path=tuple(paths[:1]), fields=("q",)).labels == ("set.jsonl",)
    with pytest.raises(ValueError, match=r"set.jsonl is named twice"):
        Benchmark(path=(paths[0], paths[0]), fields=("q",))


def damaged(parquet: bytes) -> bytes:
    return parquet[:30] + bytes([parquet[30] ^ 255]) + parquet[31:]


BAD: dict[str, tuple[str, bytes, str]] = {
    "an unknown field": ("b.jsonl", b'{"question": "x", "answer": "y"}\n{"quesion": "x"}', "line 2.*nearest: quesion"),
    "a column that is not there": ("b.csv", b"questions,answer\nx,y\n", "line 2.*'question'.*nearest: questions"),
    "not in the Parquet": ("b.parquet", as_parquet("questian"), "'question'.*questian"),
    "no entries": ("b.jsonl", b"\n\n", "no entries"),
    "a header only": ("b.csv", b"question,answer\n", "no entries"),
    "only short entries": ("b.jsonl", b'{"question": "how many?", "answer": "two"}', "none of its 1 entries has 13"),
    "not JSON": ("b.jsonl", b'{"question": "x", "answer": "y"}\n{"question": ', "line 2 is not JSON"),
    "a list": ("b.json", b'[{"question": "x"}]', "line 1 holds no object"),
    "a table": ("b.jsonl", b'{"question": {"stem": "x"}, "answer": ""}', "question is a table.*question.stem"),
    "ragged": ("b.csv", b"question,answer\nx,y,z\n", "line 2: another number of columns"),
    "not UTF-8": ("b.jsonl", b'{"question": "\xff", "answer": ""}', "not UTF-8"),
    "cut gzip": ("b.jsonl.gz", gzip.compress(LINES)[:-9], "cannot be decompressed"),
    "no gzip": ("b.jsonl.gz", LINES, "cannot be decompressed"),
    "no Parquet": ("b.parquet", b"PAR1", "not a sound Parquet file"),
    "damaged Parquet": ("b.parquet", damaged(as_parquet("question")), "not a sound Parquet file"),
    "a column twice": ("b.csv", b"question,answer,question\nx,y,z\n", "column 'question' stands there twice"),
    "very deep": ("b.jsonl", b'{"question": ' + b"[" * 900 + b"]" * 900 + b', "answer": ""}', "too deep"),
    "another kind": ("b.txt", LINES, "name ends in .jsonl"),
    "gzipped Parquet": ("b.parquet.gz", b"", "name ends in .jsonl"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_said_in_one_line(name: str, tmp_path: Path) -> None:
    file, data, says = BAD[name]
    (tmp_path / file).write_bytes(data)
    with pytest.raises(UsageError, match=f"^benchmark b: .*{says}") as caught:
        check(made.settings(tmp_path / file))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ('gsm8k={path="{dir}/no.jsonl", fields=["q"]}', "benchmark gsm8k: {dir}/no.jsonl cannot be read"),
        ('gsm8k={path="{dir}/b.jsonl", fields=["qestion"]}', "nearest: question"),
        ('gsm8k={path="{dir}/b.jsonl"}', "decontaminate.benchmarks.gsm8k.fields"),
        ('gsm8k={path="{dir}/b.jsonl", fields=[]}', "decontaminate.benchmarks.gsm8k.fields"),
        ('gsm8k={pth="{dir}/b.jsonl", fields=["question"]}', "nearest: path"),
        ('near={path="{dir}/b.jsonl", fields=["question"]}', "has the name of another stage or reason"),
        ('c4_sentences={path="{dir}/b.jsonl", fields=["question"]}', "has the name of another stage or reason"),
        ('"gsm 8k"={path="{dir}/b.jsonl", fields=["question"]}', "a name is a word"),
    ],
)
def test_the_command_refuses_before_anything_is_read(
    override: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made.write(tmp_path / "b.jsonl")
    crawl = tmp_path / "x.warc.gz"
    crawl.write_bytes(b"never read")
    table = override.replace("{dir}", str(tmp_path))
    recipe = tmp_path / "mine.toml"
    recipe.write_text(f'extends = "minimal"\n[decontaminate.benchmarks]\n{table.replace("=", " = ", 1)}\n')
    assert main(["curate", str(crawl), "--out", str(tmp_path / "out"), "--recipe", str(recipe)]) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert says.replace("{dir}", str(tmp_path)) in said[-1]
    assert len(said) == 1
    assert not (tmp_path / "out").exists()


def test_a_benchmark_of_a_preset_can_be_switched_off() -> None:
    both = {"a": {"path": "x.jsonl", "fields": "q"}, "b": "off"}
    assert list(Decontaminate.model_validate({"benchmarks": both}).benchmarks) == ["a"]
