"""C4 (Raffel et al. 2020): line rules as an edit, page rules as signals; shared/rules.md 3.3.

Line rules follow datatrove's c4_filters.py in their order; the recipe can set the values of the older reference
(tensorflow_datasets). Departures:
- Sentences are counted by the sentencizer's rule on our words, line by line (the older reference uses punkt).
- Bad words: datatrove's C4BadWordsFilter (escaped, at word boundaries, on the whole text), of the document's
  language. Hits may share the character between them. The signal counts distinct words; there is no random share.
- Corpus-wide line deduplication is not a page rule and not here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline import line_kernels as lk
from pipeline import text_kernels as tk
from pipeline.compiled import njit
from pipeline.quality.word_lists import bad_words
from pipeline.recipe import C4Lines
from pipeline.text import Units, code_points
from pipeline.text_kernels import flag, lookup, string_hash
from pipeline.text_tables import WORD_CHAR, character_flags

CITATION = re.compile(r"\[\d*]|\[edit]|\[citation needed]")
POLICY = (
    "terms of use",
    "privacy policy",
    "cookie policy",
    "uses cookies",
    "use of cookies",
    "use cookies",
)


@dataclass(frozen=True, slots=True)
class Lines:
    """What the line rules leave, and how many surviving lines broke a page rule when their turn came."""

    kept: list[str]
    lorem_ipsum: int
    curly_bracket: int


def clean(text: str, settings: C4Lines) -> Lines:
    """The line rules, in order: long word, citations, end mark, words per line, [lorem ipsum], javascript, [{], policy.

    Lines are those of str.splitlines, stripped. Words are counted before citations go, unless the recipe says after.
    """
    kept: list[str] = []
    lorem = curly = 0
    lowered = text.lower()
    script = settings.javascript and "javascript" in lowered
    policy = settings.policy and any(phrase in lowered for phrase in POLICY)
    latin = "lorem ipsum" in lowered
    citations = settings.citations and "[" in text
    marks = tuple(settings.end_marks)
    for line in text.splitlines():
        line = line.strip()
        words = line.split()
        if len(line) > settings.max_word_chars and any(len(word) > settings.max_word_chars for word in words):
            continue
        if citations and "[" in line:
            line = CITATION.sub("", line)
            if settings.count_after_citations:
                words = line.split()
        if settings.end_mark and (not line.endswith(marks) or line.endswith("...")):
            continue
        if len(words) < settings.min_words:
            continue
        lower = line.lower() if script or policy or latin else ""
        if latin and "lorem ipsum" in lower:
            lorem += 1
        if script and "javascript" in lower:
            continue
        if "{" in line:
            curly += 1
        if policy and any(phrase in lower for phrase in POLICY):
            continue
        kept.append(line)
    return Lines(kept, lorem, curly)


def count_bad_words(lowered: str, lang: str) -> int | None:
    """Distinct bad words of `lang` in the text, which is in lower case; null without a list."""
    listed = bad_words(lang)
    if listed is None:
        return None
    found = sum(word in lowered for word in listed.anywhere)
    begun = np.zeros(len(listed.entries), np.uint8)
    _find_runs(code_points(lowered), character_flags(), listed.keys, listed.ids, begun)
    for i in np.flatnonzero(begun):
        for word, pattern in listed.entries[i]:
            found += pattern is None or (word in lowered and pattern.search(lowered) is not None)
    return found


def signals(text: str, edited: Units, lang: str, settings: C4Lines | None) -> dict[str, Any]:
    """`settings`: the line rules that made `edited` of `text`, if any did; page rules ask lines in their order."""
    lowered = edited.text.lower()
    lorem = curly = 0
    if settings is None:
        lorem, curly = _lines_with("lorem ipsum", lowered), _lines_with("{", edited.text)
    elif "{" in text or "lorem ipsum" in (lowered if edited.text == text else text.lower()):
        lines = clean(text, settings)
        lorem, curly = lines.lorem_ipsum, lines.curly_bracket
    return {
        "c4_page_chars": len(text),
        "c4_lorem_ipsum": lorem,
        "c4_curly_bracket": curly,
        "c4_sentences": edited.count(tk.N_SENTENCES),
        "c4_long_lines": edited.feed_count(lk.LONG_LINES),
        "c4_bad_words": count_bad_words(lowered, lang),
    }


def _lines_with(phrase: str, text: str) -> int:
    return sum(phrase in line for line in text.splitlines()) if phrase in text else 0


@njit
def _find_runs(codes: Any, table: Any, keys: Any, ids: Any, begun: Any) -> None:
    """Mark which runs of word characters of the table occur in the text."""
    n, i = len(codes), 0
    while i < n:
        if not flag(codes[i], table) & WORD_CHAR:
            i += 1
            continue
        start = i
        while i < n and flag(codes[i], table) & WORD_CHAR:
            i += 1
        slot = lookup(string_hash(codes, start, i), keys)
        if slot >= 0:
            begun[ids[slot]] = 1
