"""The plain form of every text that comes out of extraction.

- A line ends in `\\n`: `\\r\\n`, `\\r`, U+000B, U+000C, U+0085, U+2028 and U+2029 become `\\n`.
- The other C0 and C1 controls (tab excepted), DEL, U+FFFE and U+FFFF are removed; what stood around them stays.
- A lone surrogate becomes U+FFFD, so the text always encodes.
- No white space at a line's end, at most one blank line between lines, none at the start or end of the text.
  Indentation and white space inside a line stay.
"""

from __future__ import annotations

import re

_LINE_ENDS = "\r\x0b\x0c\x85\u2028\u2029"
_REMOVED = {*range(0x20), *range(0x7F, 0xA0), 0xFFFE, 0xFFFF} - {ord(c) for c in "\t\n" + _LINE_ENDS}
_ODD = re.compile("[" + "".join(map(re.escape, map(chr, sorted(_REMOVED)))) + _LINE_ENDS + "\ud800-\udfff]")
_TABLE: dict[int, str | None] = dict.fromkeys(_REMOVED) | {ord(c): "\n" for c in _LINE_ENDS}
_SURROGATES = re.compile("[\ud800-\udfff]")
_BLANK_LINES = re.compile("\n{3,}")


def tidy(text: str) -> str:
    """`text` in the plain form; applying it twice changes nothing."""
    text = "\n".join(map(str.rstrip, _plain(text).split("\n")))
    if "\n\n\n" in text:
        text = _BLANK_LINES.sub("\n\n", text)
    return text.strip()


def tidy_line(text: str) -> str:
    """`text` as one line, runs of white space made one space."""
    return " ".join(_plain(text).split())


def without_surrogates(text: str) -> str:
    """`text` itself where it encodes as UTF-8, else a copy with U+FFFD for each lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return _SURROGATES.sub("\ufffd", text)
    return text


def encoded(text: str) -> bytes:
    """`text` in UTF-8, a lone surrogate as U+FFFD."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return _SURROGATES.sub("\ufffd", text).encode()


def _plain(text: str) -> str:
    if _ODD.search(text) is None:  # nearly always
        return text
    return _SURROGATES.sub("\ufffd", text.replace("\r\n", "\n").translate(_TABLE))
