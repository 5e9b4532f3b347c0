"""Lines, or spans of three sentences, that many documents of a run hold: their hashes, who keeps them, the edit.

C4 (Raffel et al. 2020) keeps one copy of each three-sentence span in its text, of each line in its code
(tensorflow_datasets/text/c4_utils.py: stripped, lower-cased); CCNet (Wenzek et al. 2020; cc_net/dedup.py,
text_normalizer.py) removes every copy of a repeated line, digits and punctuation aside. Departures from both: a line
must stand in several *documents* (copies within one are what the repetition rules judge), blank ones never count, and
the copy that stays is that of the smallest record_id (there: the smallest hash of the URL).

Lines are told apart by xxh3_64 of their normal form. Of n distinct lines about n^2 / 2^65 pairs share a hash by
chance: 0.03 pairs of a billion lines; such a pair counts as one line.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import xxhash

from pipeline.recipe import RepeatedLines
from pipeline.text_tables import SENTENCE_ENDS

SPAN = 3  #: sentences in a span

Hashes = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]

_DIGIT = re.compile(r"\d")
#: cc_net/text_normalizer.py, PUNCT_OR_NON_PRINTING_CHARS_RE (the full-width 1 is in its list)
_CCNET_GONE = re.compile("[，。、„”“«»１」「《》´∶：？！（）；–—．～’…━〈〉【】％►\x00-\x1f\x7f-\x9f]")

_WIDE_ENDS = "".join(sorted(c for c in SENTENCE_ENDS if c in "。！？｡．"))
_ENDS = re.escape("".join(sorted(SENTENCE_ENDS)))
_CLOSING = re.escape("\"'”’»)]}）」』】")
#: A sentence ends behind its end marks and closing quotes, where white space follows, or anywhere behind a wide mark.
_SENTENCE = re.compile(rf"(?<![{_ENDS}])[{_ENDS}]++[{_CLOSING}]*+(?:\s++|$)|[{_WIDE_ENDS}]++[{_CLOSING}]*+\s*+")


def _c4(line: str) -> str:
    return line.strip().lower()


def _ccnet(line: str) -> str:
    return _CCNET_GONE.sub("", _DIGIT.sub("0", line.strip().lower()))


_NORMAL: dict[str, Callable[[str], str]] = {"c4": _c4, "ccnet": _ccnet}


@dataclass(frozen=True, slots=True)
class Pieces:
    """A text's lines or sentences: `text[start:end]`, each with the number of its line, and the hashes of its spans.

    Span i begins at piece i and is `width` pieces long; a text shorter than one span is one span.
    """

    starts: list[int]
    ends: list[int]
    lines: list[int]
    hashes: Hashes
    width: int


@dataclass(frozen=True, slots=True)
class Table:
    """The repeated spans that some documents hold. `hashes` is sorted; `first`: `rank` of who keeps it, 0: not here."""

    hashes: Hashes
    first: Hashes


@dataclass(frozen=True, slots=True)
class Cut:
    """`ratio`: characters in repeated lines / characters in lines; `chars`: how many characters the text lost."""

    text: str
    ratio: float
    chars: int


@dataclass(frozen=True, slots=True)
class Repeat:
    """A repeated line or sentence of one document, and the hashes of the repeated spans that it lies in."""

    text: str
    hashes: list[int]
    removed: bool


NOTHING = Table(np.zeros(0, np.uint64), np.zeros(0, np.uint64))


def rank(record_id: str) -> int:
    """The first 64 bits of an id: the smallest of those who hold a line keeps it."""
    return int(record_id[:16], 16)


def pieces(text: str, settings: RepeatedLines) -> Pieces:
    """Divide and hash, in linear time. Lines are what line feeds divide; sentences end where their line does."""
    normal_form = _NORMAL[settings.normalise]
    divide = settings.unit == "sentences"
    starts: list[int] = []
    ends: list[int] = []
    numbers: list[int] = []
    normal: list[bytes] = []
    at = 0
    for number, line in enumerate(text.split("\n")):
        for start, end in _sentences(line) if divide else ((0, len(line)),):
            form = normal_form(line[start:end])
            if form:
                starts.append(at + start)
                ends.append(at + end)
                numbers.append(number)
                normal.append(form.encode("utf-8", "surrogatepass"))
        at += len(line) + 1
    width = SPAN if divide else 1
    if divide:
        normal = [b"\n".join(normal[i : i + SPAN]) for i in range(max(min(len(normal), 1), len(normal) - SPAN + 1))]
    hashes = np.fromiter(map(xxhash.xxh3_64_intdigest, normal), np.uint64, len(normal))
    return Pieces(starts, ends, numbers, hashes, width)


def decide(found: Pieces, table: Table, record_id: str, settings: RepeatedLines) -> tuple[Mask, Mask]:
    """(repeated, gone) of each piece: it is in a repeated span; it is in one that is removed from this document."""
    if not len(table.hashes) or not len(found.hashes):
        none = np.zeros(len(found.starts), bool)
        return none, none
    slots = np.minimum(np.searchsorted(table.hashes, found.hashes), len(table.hashes) - 1)
    repeated = table.hashes[slots] == found.hashes
    gone = repeated if settings.remove else np.zeros(len(repeated), bool)
    if settings.remove and settings.keep_first:
        once = np.zeros(len(repeated), bool)
        once[np.unique(found.hashes, return_index=True)[1]] = True
        gone = repeated & ~(once & (table.first[slots] == np.uint64(rank(record_id))))
    return _covered(repeated, found), _covered(gone, found)


def cut(text: str, table: Table, record_id: str, settings: RepeatedLines) -> Cut:
    """`text` without what the recipe removes from this document; the same object where nothing is."""
    if not len(table.hashes):
        return Cut(text, 0.0, 0)
    found = pieces(text, settings)
    repeated, gone = decide(found, table, record_id, settings)
    if not repeated.any():
        return Cut(text, 0.0, 0)
    sizes = np.array(found.ends) - np.array(found.starts)
    ratio = float(sizes[repeated].sum() / sizes.sum())
    left = _without(text, found, gone) if gone.any() else text
    return Cut(left, ratio, len(text) - len(left))


def repeats(text: str, table: Table, record_id: str, settings: RepeatedLines) -> list[Repeat]:
    """What `cut` sees, for people: the repeated lines or sentences in the text's order."""
    found = pieces(text, settings)
    repeated, gone = decide(found, table, record_id, settings)
    known = np.isin(found.hashes, table.hashes)
    result = []
    for i in np.flatnonzero(repeated).tolist():
        spans = range(max(0, i - found.width + 1), min(i + 1, len(known)))
        hashes = [int(found.hashes[span]) for span in spans if known[span]]
        result.append(Repeat(text[found.starts[i] : found.ends[i]], hashes, bool(gone[i])))
    return result


def _sentences(line: str) -> list[tuple[int, int]]:
    """(start, end) of the line's sentences, white space behind them included."""
    found = []
    start = 0
    for match in _SENTENCE.finditer(line):
        found.append((start, match.end()))
        start = match.end()
    if start < len(line):
        found.append((start, len(line)))
    return found


def _covered(spans: Mask, found: Pieces) -> Mask:
    """Which pieces lie in one of the marked spans."""
    if found.width == 1:
        return spans
    marked = np.zeros(len(found.starts), bool)
    for i in range(found.width):
        here = marked[i : i + len(spans)]
        here |= spans[: len(here)]
    return marked


def _without(text: str, found: Pieces, gone: Mask) -> str:
    """Lines that lose all their pieces go with their line feed, and with the blank lines that would then meet."""
    going: dict[int, list[int]] = {}
    for i in np.flatnonzero(gone).tolist():
        going.setdefault(found.lines[i], []).append(i)
    staying: dict[int, list[int]] = {}
    for i in np.flatnonzero(~gone).tolist():
        if found.lines[i] in going:
            staying.setdefault(found.lines[i], []).append(i)
    kept: list[str] = []
    dropped = False
    for number, line in enumerate(text.split("\n")):
        if number in going:
            rest = "".join(text[found.starts[i] : found.ends[i]] for i in staying.get(number, ())).strip()
            dropped = not rest
            if rest:
                kept.append(rest)
            continue
        if dropped and not line.strip() and (not kept or not kept[-1].strip()):
            continue
        dropped = False
        kept.append(line)
    return "\n".join(kept).strip()
