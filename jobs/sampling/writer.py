"""Made-up articles: sentences of `texts/LANG.toml` with their slots filled, each sentence at most once per article."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from random import Random
from typing import Any

_SLOT = re.compile(r"\{(\w+)\}|\[([^\[\]|]*(?:\|[^\[\]|]*)+)\]")
UNSPACED = ("zh", "ja")


@dataclass(frozen=True, slots=True)
class Article:
    lang: str
    title: str
    paragraphs: tuple[tuple[str, ...], ...]  #: sentences of each paragraph
    headings: tuple[str, ...]  #: one before each paragraph but the first, or none

    def text(self, paragraph: int) -> str:
        return ("" if self.lang in UNSPACED else " ").join(self.paragraphs[paragraph])


@cache
def words(lang: str) -> dict[str, Any]:
    """What is known of `lang`: site texts, slots and topics."""
    return tomllib.loads(resources.files("jobs.sampling.texts").joinpath(f"{lang}.toml").read_text("utf-8"))


def article(lang: str, rng: Random, topic: str | None = None) -> Article:
    """A new article; most are short, a few as long as the language has sentences."""
    known = words(lang)
    chosen = known["topics"][topic or rng.choice(sorted(known["topics"]))]
    constants = {name: rng.choice(values) for name, values in known["slots"].items() if name.isupper()}
    count = min(len(chosen["sentences"]), 9 + int(rng.expovariate(1 / 8)))
    sentences = [fill(s, known["slots"], constants, rng) for s in rng.sample(chosen["sentences"], count)]
    paragraphs = []
    while sentences:
        size = rng.randint(3, 5)
        paragraphs.append(tuple(sentences[:size]))
        sentences = sentences[size:]
    headings: tuple[str, ...] = ()
    if len(paragraphs) > 3 and len(paragraphs) - 1 <= len(chosen["headings"]) and rng.random() < 0.6:
        headings = tuple(rng.sample(chosen["headings"], len(paragraphs) - 1))
    return Article(
        lang, fill(rng.choice(chosen["titles"]), known["slots"], constants, rng), tuple(paragraphs), headings
    )


def fill(template: str, slots: dict[str, list[str]], constants: dict[str, str], rng: Random) -> str:
    """`template` with {SLOTS} and [alternatives] replaced and its first letter a capital."""

    def choose(match: re.Match[str]) -> str:
        name, alternatives = match.groups()
        if name is None:
            return rng.choice(str(alternatives).split("|"))
        return constants[name] if name in constants else rng.choice(slots[name])

    text: str = _SLOT.sub(choose, template)
    return text[0].upper() + text[1:]


def syndicated(original: Article, rng: Random) -> Article:
    """The article as another site printed it: one sentence gone; every fifth time so changed that it is a new one."""
    paragraphs = [list(p) for p in original.paragraphs]
    for _ in range(6 if rng.random() < 0.2 else 1):
        paragraph = rng.choice(paragraphs)
        if len(paragraph) > 1:
            paragraph.pop(rng.randrange(len(paragraph)))
    return Article(original.lang, original.title, tuple(tuple(p) for p in paragraphs), ())
