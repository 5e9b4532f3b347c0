"""Character references against html.unescape, which is the standard's own description in Python."""

from __future__ import annotations

import html
from html.entities import html5

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.extract.entities import REMOVED, entity, names


def unescape(text: str) -> str:
    """By the kernel, one reference after the other."""
    data = np.frombuffer(text.encode() + b"\0", np.uint8)
    end, i, parts = len(data) - 1, 0, b""
    while i < end:
        first, second, size = entity(data, i, end, *names()) if data[i] == 38 else (0, 0, 0)
        if size == 0:
            parts += data[i : i + 1].tobytes()
            i += 1
            continue
        parts += b"".join(chr(code).encode() for code in (first, second) if code and code != REMOVED)
        i += size
    return parts.decode()


def test_every_name() -> None:
    for name in html5:
        for text in (f"&{name}", f"x&{name}y", f"&{name.removesuffix(';')} "):
            assert unescape(text) == html.unescape(text), text


@pytest.mark.parametrize("base", ["", "x", "X"])
@pytest.mark.parametrize("code", [*range(0x180), 0xD7FF, 0xD800, 0xDFFF, 0xFDD0, 0xFFFE, 0x1F600, 0x10FFFF, 0x110000])
def test_numbers(base: str, code: int) -> None:
    digits = f"{code:x}" if base else str(code)
    for text in (f"&#{base}{digits};", f"&#{base}{digits} z", f"&#{base}000{digits};g"):
        assert unescape(text) == html.unescape(text), text


@settings(max_examples=300)
@given(
    st.lists(
        st.sampled_from(["&", "#", "x", "X", "amp", "lt", "not", "in", ";", "9", "f", "é", "`", "Gg", " ", "8364"])
    )
)
def test_any_mixture(parts: list[str]) -> None:
    text = "".join(parts)
    assert unescape(text) == html.unescape(text)


def test_absurd_numbers() -> None:
    text = "&#" + "9" * 5000 + ";a"
    assert unescape(text) == "\ufffda"
