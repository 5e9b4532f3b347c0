"""Line edits: what is taken out of a text before it is published. Order: C4, then RefinedWeb.

Repeated lines go after these, once it is known which are repeated: pipeline/repeated_lines.py."""

from __future__ import annotations

from pipeline.quality import c4, refinedweb
from pipeline.recipe import Edit


def edit(text: str, settings: Edit) -> str:
    """`text` without the lines and pieces that the recipe's edits remove; the same object where none is set."""
    if settings.c4 is not None:
        text = "\n".join(c4.clean(text, settings.c4).kept).strip()
    if settings.refinedweb is not None:
        text = refinedweb.clean(refinedweb.prepare(text, settings.refinedweb), settings.refinedweb)
    return text
