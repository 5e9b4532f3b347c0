from __future__ import annotations

import pytest

from pipeline.report import numbers
from pipeline.report.charts import nice_ticks
from pipeline.report.lengths import bucket_name


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (0, 10, "0.0 %"),
        (1, 100_000, "<0.1 %"),
        (1, 8, "12.5 %"),
        (99_999, 100_000, ">99.9 %"),
        (10, 10, "100.0 %"),
        (0, 0, "–"),
        (None, 5, "–"),
    ],
)
def test_a_share_never_rounds_something_to_nothing_nor_less_to_all(part: int | None, whole: int, text: str) -> None:
    assert numbers.share(part, whole) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (1234567, "1,234,567"),
        (0.5, "0.5"),
        (0.123456, "0.1235"),
        (3.0, "3"),
        (0.00012, "0.00012"),
        (float("nan"), "nan"),
        (True, "yes"),
    ],
)
def test_values(value: object, text: str) -> None:
    assert numbers.value(value) == text


def test_tables_line_up_whatever_the_script() -> None:
    rows = [["word", "n"], ["日本語", "5"], ["e\u0301te\u0301", "1,000"], ["plain", "30"]]
    lines = numbers.table(rows, "<>").splitlines()
    assert lines == [
        "word        n",
        "──────  ─────",
        "日本語      5",
        "e\u0301te\u0301     1,000",
        "plain      30",
    ]
    assert {numbers.width(line) for line in lines} == {13}


def test_printable_leaves_letters_and_shows_what_hides() -> None:
    assert numbers.printable("naïve 日本 🙂") == "naïve 日本 🙂"
    assert numbers.printable("a\x1b[2J\x00\x7f\x9b") == "a␛[2J␀␡\ufffd"
    assert numbers.printable("a\u202eb\u2066c\ufeffd\u2028e") == "a\ufffdb\ufffdc\ufffdd\ufffde"
    assert numbers.printable("a\nb\tc") == "a b c"
    assert numbers.printable("a\nb", newlines=True) == "a\nb"


@pytest.mark.parametrize(
    ("bucket", "name"), [(None, "–"), (0, "0–1"), (1, "2–3"), (9, "512–1023"), (10, "1k–2k"), (20, "1M–2M")]
)
def test_bucket_names(bucket: int | None, name: str) -> None:
    assert bucket_name(bucket) == name


@pytest.mark.parametrize("largest", [1, 2, 3, 7, 10, 99, 1234, 86_400, 3e9])
def test_axis_ticks_are_few_and_round_and_cover(largest: float) -> None:
    ticks = nice_ticks(largest)
    assert ticks[0] == 0
    assert ticks[-1] >= largest
    assert ticks[-2] < largest
    assert 2 <= len(ticks) <= 6
