from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.extract.nesting import open_tags
from pipeline.extract.tidy import tidy, tidy_line


@pytest.mark.parametrize(
    ("raw", "plain"),
    [
        ("a\r\nb\rc\x0bd\x0ce\x85f\u2028g\u2029h", "a\nb\nc\nd\ne\nf\ng\nh"),
        ("a\0b\x08\x1f\x7f\x9fc\ufffe\uffffd", "abcd"),
        ("\ud800a\udfff", "\ufffda\ufffd"),
        ("a  \t\n \n\n\u00a0\n\n  b", "a\n\n  b"),
        ("\n\n a\tb \n", "a\tb"),
        ("a\r\n\r\nb", "a\n\nb"),
        ("\u200bé漢 \U0001f600", "\u200bé漢 \U0001f600"),
        (" \n\x00\n ", ""),
    ],
)
def test_the_stated_form(raw: str, plain: str) -> None:
    assert tidy(raw) == plain


@given(st.text(st.characters() | st.sampled_from("\r\n\t \x0b\x0c\x85\u2028\0\ud800"), max_size=40))
def test_twice_is_once_and_it_encodes(raw: str) -> None:
    once = tidy(raw)
    assert tidy(once) == once
    once.encode()
    assert not {"\r", "\0", "\n\n\n"} & {once[i : i + n] for n in (1, 3) for i in range(len(once))}
    assert "\n" not in tidy_line(raw)


@pytest.mark.parametrize(
    ("html", "most"),
    [
        (b"", 0),
        (b"<", 0),
        (b"<p>a</p><p>b</p>", 1),
        (b"<DIV><b>x</B></div><br><img src=x><li><li>", 2),
        (b"</b></b><i><i>1 < 2</i></i>", 2),
        (b"<!-- x --><!doctype html>", 0),
        (b"<div>" * 300 + b"</div>" * 300 + b"<div>" * 4, 300),
    ],
)
def test_open_tags(html: bytes, most: int) -> None:
    assert open_tags(html) == most
