"""Page to text: the engines that a recipe can name, behind one function.

An engine is a module here with `extract(html, settings) -> Found`. What it finds is put into one plain form (`tidy`),
and a page without text is a verdict. An engine's output depends on the page and the settings only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Literal, NamedTuple

from pipeline import recipe
from pipeline.errors import Rejected
from pipeline.extract import scan as blocks  # the module: its function of that name must not hide it
from pipeline.extract.tidy import encoded, tidy, tidy_line

TextSource = Literal["page", "json"]
#: A larger page has no visible_ratio with an engine that does not count itself: its memory is for the engine.
_MEASURED_CHARS = 8_000_000


class Found(NamedTuple):
    """What an engine makes of a page, before it is tidied."""

    title: str | None
    text: str | None
    confidence: float | None = None
    source: TextSource = "page"
    visible_chars: int | None = None


Engine = Callable[[str, recipe.Extract], Found]


@dataclass(frozen=True, slots=True)
class Extracted:
    title: str | None
    text: str
    confidence: float | None = None  #: the engine's own estimate of its F1 on this page, 0 to 1; None: it has none
    text_source: TextSource = "page"  #: "json": the text stands only in scripts of the page
    visible_ratio: float | None = None  #: characters of the text / of all that a browser would show, at most 1


def extract(html: str, url: str | None, settings: recipe.Extract) -> Extracted:
    """The main text of a page, `\\n` between lines, in the form that `tidy` describes.

    `url` is for engines that look at it; today's do not. Raises Rejected("extract", "no_text" | "too_deep").
    MemoryError and what a library raises otherwise pass through.
    """
    found = _engine(settings.engine)(html.removeprefix("\ufeff"), settings)
    text = tidy(found.text or "")
    if not text:
        raise Rejected("extract", "no_text")
    visible = found.visible_chars
    if visible is None and len(html) <= _MEASURED_CHARS:
        visible = blocks.visible_chars(blocks.scan(encoded(html)))
    ratio = min(1.0, len(text) / visible) if visible else None
    return Extracted(tidy_line(found.title or "") or None, text, found.confidence, found.source, ratio)


@cache
def _engine(name: str) -> Engine:
    """Imported when first used: trafilatura alone costs a process 0.4 s."""
    engine: Engine = import_module(f"pipeline.extract.{name}").extract
    return engine
