"""RefinedWeb (Penedo et al. 2023) as dclm's dclm_baseline_refinedweb.yaml measures it; shared/rules.md 3.5.

Departures from that reference:
- Page signals are measured on the extracted text, before web addresses are taken out of it.
- Web addresses are what begins with a scheme or "www."; the reference matches bare domains by a list of endings, but
  its guard looks only at the start of the text, so that it seldom does anything.
- Words for 50 to 100,000 are ours without punctuation (there: uniseg's).
- Repetition rules are Gopher's signals as datatrove measures them; dclm counts first occurrences as well and the union
  of word positions, so equal bounds reject more there.
- Stop words are those of the document's language; null without a list.
- No words, no lines: the signal is null (there: the page is dropped); refinedweb_words ends such a text.
"""

from __future__ import annotations

import re
from typing import Any

from pipeline import line_kernels as lk
from pipeline import text_kernels as tk
from pipeline.quality.gopher import ratio
from pipeline.recipe import RefinedWebLines
from pipeline.text import Units, count_words

_ADDRESS = re.compile(r"\s{0,10}\b(?:(?:https?|ftp)://|www\.)\S+", re.ASCII | re.IGNORECASE)
_COUNTER = re.compile(
    r"^\W*\d(?:,|\.|\d)*[kmb]?\s+"
    r"(?:likes|shares|comments|retweets|reposts|quotes|bookmarks|upvotes|downvotes|downloads|views|followers)\W*$"
)
#: Cut out of lines of at most BOILERPLATE_WORDS words.
_BOILERPLATE = (
    re.compile(r"\s?items in cart", re.IGNORECASE),
    re.compile(r"\s?Read more\.\.\.$", re.IGNORECASE),
    re.compile(r"^Sign-in\s?", re.IGNORECASE),
)
BOILERPLATE_WORDS = 10


def prepare(text: str, settings: RefinedWebLines) -> str:
    """Web addresses out, and no more line feeds in a row than the recipe says: before words are counted."""
    if settings.remove_urls and ("://" in text or "www." in text.lower()):
        text = _ADDRESS.sub("", text)
    if "\n" * (settings.max_newlines + 1) in text:
        text = re.sub(f"\n{{{settings.max_newlines + 1},}}", "\n" * settings.max_newlines, text)
    return text


def clean(text: str, settings: RefinedWebLines) -> str:
    """The line rules on prepared text, in order: upper case, digits, counters, words per line, boilerplate.

    Empty lines stay.
    """
    kept = []
    for line in text.split("\n"):
        if line:
            n_upper = 0 if line.islower() else sum(map(str.isupper, line))
            if n_upper > settings.max_uppercase * len(line):
                continue
            if settings.digits and line.isdigit():
                continue
            if settings.counters and _is_counter(line):
                continue
            n_words = len(line.split())
            if n_words < settings.min_words:
                continue
            if settings.boilerplate and n_words <= BOILERPLATE_WORDS:
                cut = line
                for pattern in _BOILERPLATE:
                    cut = pattern.sub("", cut)
                if not cut or cut.isspace():
                    continue
                line = cut
        kept.append(line)
    return "\n".join(kept).strip()


def _is_counter(line: str) -> bool:
    """Numbers with a unit of attention: `3 likes`. Only short lines are asked: the pattern's ends are greedy."""
    return len(line) <= 100 and _COUNTER.match(line.lower()) is not None


def words(units: Units) -> int:
    """Words with a character that is not punctuation."""
    return units.n_words


def mean_word_length(units: Units) -> float | None:
    """Characters per word as white space divides them; null where most letters are of a script without spaces."""
    return None if units.spaceless else ratio(units.count(tk.CHUNK_CHARS), units.count(tk.N_CHUNKS))


def symbol_ratio(units: Units) -> float | None:
    """'#', '...', '. . .' and '…' in the text / words as white space divides them; null as above."""
    if units.spaceless:
        return None
    return ratio(sum(units.text.count(s) for s in ("#", "...", ". . .", "…")), units.count(tk.N_CHUNKS))


def bullet_lines_frac(units: Units) -> float | None:
    """Lines that begin with ● • * or - / lines with a visible character."""
    return ratio(units.line_count(lk.REFINEDWEB_BULLET_LINES), units.line_count(lk.N_VISIBLE_LINES))


def ellipsis_lines_frac(units: Units) -> float | None:
    """Lines that end in ... or . . . or … / lines with a visible character."""
    ends = units.line_count(lk.ELLIPSIS_LINES) + units.line_count(lk.SPACED_ELLIPSIS_LINES)
    return ratio(ends, units.line_count(lk.N_VISIBLE_LINES))


def non_alpha_words_frac(units: Units) -> float | None:
    """Words without a letter / words as white space divides them."""
    n = units.count(tk.N_CHUNKS)
    return ratio(n - units.count(tk.N_ALPHA_CHUNKS), n)


def removed_words_frac(text: str, ruled: Units, settings: RefinedWebLines | None) -> float | None:
    """Words lost from prepared text to line rules / words of prepared text; null where no such rules are in force."""
    if settings is None:
        return None
    before = count_words(prepare(text, settings))
    return ratio(max(before - ruled.n_words, 0), before)


def signals(
    units: Units, ruled: Units, stop_words: tuple[int, int] | None, settings: RefinedWebLines | None
) -> dict[str, Any]:
    return {
        "refinedweb_words": words(units),
        "refinedweb_mean_word_length": mean_word_length(units),
        "refinedweb_symbol_ratio": symbol_ratio(units),
        "refinedweb_bullet_lines_frac": bullet_lines_frac(units),
        "refinedweb_ellipsis_lines_frac": ellipsis_lines_frac(units),
        "refinedweb_non_alpha_words_frac": non_alpha_words_frac(units),
        "refinedweb_stop_words": None if stop_words is None else stop_words[1],
        "refinedweb_removed_words_frac": removed_words_frac(units.text, ruled, settings),
    }
