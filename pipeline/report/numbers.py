"""How numbers, shares and texts from a crawl are written for people, on a terminal and on a page."""

from __future__ import annotations

import math
import unicodedata

#: Written where a figure does not exist, so that an empty cell never reads as zero.
NONE = "–"

#: Invisible characters that can hide or reorder what follows them: bidi controls, zero-width signs, line separators.
_INVISIBLE = frozenset(
    "\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e"
    "\u2060\u2066\u2067\u2068\u2069\u3164\ufeff\uffa0"
)


def count(number: float | None) -> str:
    """1234567 -> '1,234,567'."""
    return NONE if number is None else f"{round(number):,}"


def share(part: float | None, whole: float | None) -> str:
    """A percentage that never rounds something to 0 % nor less than all to 100 %."""
    if part is None or not whole:
        return NONE
    percent = 100 * part / whole
    if 0 < percent < 0.05:
        return "<0.1 %"
    if 99.95 <= percent < 100:
        return ">99.9 %"
    return f"{percent:.1f} %"


def value(number: object) -> str:
    """A signal's value: integers with separators, floats with four significant digits at most after the point."""
    if number is None:
        return NONE
    if isinstance(number, bool):
        return "yes" if number else "no"
    if isinstance(number, int):
        return f"{number:,}"
    if isinstance(number, float):
        if not math.isfinite(number):
            return str(number)
        if number == int(number) and abs(number) < 1e15:
            return f"{int(number):,}"
        return f"{number:,.4f}".rstrip("0") if abs(number) >= 0.001 else f"{number:.3g}"
    return str(number)


def compact(number: float) -> str:
    """Axis labels: 1200 -> '1.2k', 3000000 -> '3M'."""
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:.3g}"


def duration(seconds: float) -> str:
    """75.2 -> '1 min 15 s'."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def size(n_bytes: float) -> str:
    """Bytes in binary units: 1536 -> '1.5 KiB'."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n_bytes < 1024:
            return f"{n_bytes:.0f} {unit}" if unit == "B" else f"{n_bytes:.1f} {unit}"
        n_bytes /= 1024
    return f"{n_bytes:.1f} TiB"


def printable(text: str, *, newlines: bool = False) -> str:
    """Crawl text that can do nothing to a terminal or a page: control and direction characters become visible signs.

    A C0 control becomes its Unicode picture, any other such character U+FFFD; with `newlines` a line feed stays.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_visible(c, newlines) for c in text)


def _visible(char: str, newlines: bool) -> str:
    if char == "\n" and newlines:
        return char
    code = ord(char)
    if code < 0x20:
        return chr(0x2400 + code) if char not in "\t\n\r" else " "
    if code == 0x7F:
        return "\u2421"
    if char in _INVISIBLE or unicodedata.category(char) in ("Cc", "Cs") or 0xE0000 <= code <= 0xE0FFF:
        return "\ufffd"
    return char


def excerpt(text: str, length: int) -> str:
    """At most `length` characters from the start, with an ellipsis where something is left out."""
    if len(text) <= length:
        return text
    return text[: length - 1].rstrip() + "…"


def width(text: str) -> int:
    """Columns that `text` takes on a terminal."""
    if text.isascii():
        return len(text)
    columns = 0
    for char in text:
        if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me", "Cf"):
            continue
        columns += 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1
    return columns


def table(rows: list[list[str]], align: str, *, header: bool = True, indent: str = "") -> str:
    """Rows as aligned columns; `align` has one of `<` or `>` per column. The first row is the header."""
    widths = [max(width(row[i]) for row in rows) for i in range(len(align))]
    lines = [indent + _line(row, widths, align) for row in rows]
    if header:
        lines.insert(1, indent + "  ".join("─" * w for w in widths))
    return "\n".join(lines)


def _line(row: list[str], widths: list[int], align: str) -> str:
    cells = []
    for text, columns, side in zip(row, widths, align, strict=True):
        blank = " " * (columns - width(text))
        cells.append(blank + text if side == ">" else text + blank)
    return "  ".join(cells).rstrip()
