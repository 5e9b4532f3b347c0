"""Page to text: the engines that a recipe can name, behind one function.

An engine is a module here with `extract(html, settings) -> (title, text)`. What it gives is put into one plain form
(`tidy`), and a page without text is a verdict. An engine's output depends on the page and the settings only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module

from pipeline import recipe
from pipeline.errors import Rejected
from pipeline.extract.tidy import tidy, tidy_line

Engine = Callable[[str, recipe.Extract], tuple[str | None, str | None]]


@dataclass(frozen=True, slots=True)
class Extracted:
    title: str | None
    text: str


def extract(html: str, url: str | None, settings: recipe.Extract) -> Extracted:
    """The main text of a page, `\\n` between lines, in the form that `tidy` describes.

    `url` is for engines that look at it; today's do not. Raises Rejected("extract", "no_text" | "too_deep").
    MemoryError and what a library raises otherwise pass through.
    """
    title, text = _engine(settings.engine)(html.removeprefix("\ufeff"), settings)
    text = tidy(text or "")
    if not text:
        raise Rejected("extract", "no_text")
    return Extracted(tidy_line(title or "") or None, text)


@cache
def _engine(name: str) -> Engine:
    """Imported when first used: trafilatura alone costs a process 0.4 s."""
    engine: Engine = import_module(f"pipeline.extract.{name}").extract
    return engine
