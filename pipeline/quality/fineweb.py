"""FineWeb's own rules (Penedo et al. 2024) as datatrove's fineweb_quality_filter.py measures them; rules.md 3.4.

Measured on the edited text. Departures: a text without a visible line has null signals and fails fineweb_empty; equal
lines are found by a 64-bit hash.
"""

from __future__ import annotations

from typing import Any

from pipeline import line_kernels as lk
from pipeline import text_kernels as tk
from pipeline.quality.gopher import ratio
from pipeline.text import Units


def lines(units: Units) -> int:
    """Lines, divided by line feeds, with a visible character."""
    return units.feed_count(lk.N_FULL_LINES)


def line_punct_ratio(units: Units) -> float | None:
    """Lines whose very last character is terminal punctuation / lines. Quotes and … are none, '...' ends in one."""
    return ratio(units.feed_count(lk.TERMINAL_LINES), lines(units))


def short_line_ratio(units: Units) -> float | None:
    """Lines of at most 30 characters / lines."""
    return ratio(units.feed_count(lk.SHORT_LINES), lines(units))


def char_dup_ratio(units: Units) -> float | None:
    """Characters of lines equal to an earlier one / characters that are not line feeds."""
    return ratio(units.feed_count(lk.DUPLICATE_LINE_CHARS), units.n_chars - units.text.count("\n"))


def list_ratio(units: Units) -> float | None:
    """Line feeds / words, punctuation counted as words."""
    return ratio(units.text.count("\n"), units.count(tk.N_WORDS))


def signals(units: Units) -> dict[str, Any]:
    return {
        "fineweb_lines": lines(units),
        "fineweb_line_punct_ratio": line_punct_ratio(units),
        "fineweb_short_line_ratio": short_line_ratio(units),
        "fineweb_char_dup_ratio": char_dup_ratio(units),
        "fineweb_list_ratio": list_ratio(units),
    }
