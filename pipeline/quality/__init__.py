"""Text -> signals -> verdict. Signals are numbers, measured once; rules are ranges over them, judged any time."""

from __future__ import annotations

from pipeline.quality import c4, fineweb, gopher, gopher_repetition, mojibake, refinedweb, shape
from pipeline.quality.word_lists import stop_words
from pipeline.recipe import Edit
from pipeline.text import measure

_NO_EDITS = Edit()


def signals(
    text: str, edited: str, lang: str | None, edits: Edit = _NO_EDITS, *, ruled: str | None = None
) -> dict[str, float | int | None]:
    """Every signal of pipeline/signals.py but `quality_score`, those of the page and those of repeated lines.

    `text` is what extraction gave, `ruled` what `edits.edit` left of it, `edited` what then stayed of repeated lines
    (equal strings where nothing was removed; `ruled` None: as `edited`), `edits` the recipe's, which say what a
    surviving line is. Values are finite numbers or null. Linear time.
    """
    lang = lang or ""
    listed = stop_words(lang)
    units = measure(text)
    found = gopher.count_stop_words(units, lang, listed)
    left, found_left = units, found
    if edited != text:
        left = measure(edited)
        found_left = gopher.count_stop_words(left, lang, listed)
    left_by_rules = left
    if edits.refinedweb is not None and ruled is not None and ruled != edited:
        left_by_rules = measure(ruled)
    return {
        **shape.signals(left, found_left),
        "mojibake_score": mojibake.score(units),
        "n_letters": units.n_letters,
        **gopher.signals(units, found),
        **gopher_repetition.signals(units),
        **c4.signals(text, left, lang, edits.c4),
        **fineweb.signals(left),
        **refinedweb.signals(units, left_by_rules, found, edits.refinedweb),
    }
