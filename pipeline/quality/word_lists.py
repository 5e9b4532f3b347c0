"""Stop words and bad words by language; origin and licences stand beside the files in lists/."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

import numpy as np
import numpy.typing as npt

from pipeline.text import hash_table, word_hash
from pipeline.text_kernels import Hashes

#: The eight words of Gopher, which its rule knows in English (shared/rules.md 3.1).
ENGLISH = ("the", "be", "to", "of", "and", "that", "have", "with")

#: Written without spaces: list entries are looked for as substrings, since words are single letters.
SPACELESS_LANGUAGES = frozenset({"zh", "ja", "th", "lo", "my", "km", "yue", "wuu"})

#: Language label -> list, where the two differ in code only.
_SAME_AS = {"tl": "fil", "nn": "no", "nb": "no"}

#: Words that are common parts of others in languages without spaces, as the reference leaves out.
_ALLOWED = {"ja": {"sm", "グロ", "女の子"}, "zh": {"性"}}


@dataclass(frozen=True)
class StopWords:
    """`keys` is a table for text_kernels.lookup of each word in lower, Title and UPPER case; `ids` is by slot.

    An id is 4 x word + variant, variant 0 being the word as the list has it.
    """

    words: tuple[str, ...]
    keys: Hashes
    ids: npt.NDArray[np.int64]


@cache
def stop_words(lang: str) -> StopWords | None:
    lists = _load("stop_words")
    words = ENGLISH if lang == "en" else tuple(lists.get(lang) or lists.get(_code(lang)) or ())
    if not words:
        return None
    ids: dict[int, int] = {}
    for i, word in enumerate(words):
        for variant, form in enumerate((word, word.title(), word.upper())):
            ids.setdefault(word_hash(form), 4 * i + variant)
    keys, index = hash_table(np.array(list(ids), np.uint64))
    return StopWords(words, keys, np.where(index >= 0, np.array(list(ids.values()), np.int64)[index], -1))


@dataclass(frozen=True)
class BadWords:
    """Of one language, in lower case. `keys`: a table of the runs of \\w that entries begin with, `ids` by slot.

    `entries[id]`: the entries that begin with that run, each with the pattern that finds it between word boundaries,
    None for the run itself.
    `anywhere`: entries that are looked for as substrings.
    """

    keys: Hashes
    ids: npt.NDArray[np.int64]
    entries: tuple[tuple[tuple[str, re.Pattern[str] | None], ...], ...]
    anywhere: tuple[str, ...]


@cache
def bad_words(lang: str) -> BadWords | None:
    words = {w.lower() for w in _load("bad_words").get(_code(lang), ())} - _ALLOWED.get(lang, set())
    if not words:
        return None
    by_first: dict[str, list[tuple[str, re.Pattern[str] | None]]] = {}
    anywhere = []
    for word in sorted(words):
        run = re.match(r"\w+", word)
        if run is None or lang in ("ja", "th", "zh"):
            anywhere.append(word)
        else:
            pattern = None if run.group() == word else re.compile(rf"(?<!\w){re.escape(word)}(?!\w)")
            by_first.setdefault(run.group(), []).append((word, pattern))
    keys, ids = hash_table(np.array([word_hash(first) for first in by_first], np.uint64))
    return BadWords(keys, ids, tuple(map(tuple, by_first.values())), tuple(anywhere))


def _code(lang: str) -> str:
    return _SAME_AS.get(lang, lang)


@cache
def _load(name: str) -> dict[str, list[str]]:
    packed = resources.files("pipeline.quality.lists").joinpath(f"{name}.json.gz").read_bytes()
    lists: dict[str, list[str]] = json.loads(gzip.decompress(packed))
    return lists
