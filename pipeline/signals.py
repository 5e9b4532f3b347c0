"""Every number that is measured on a document, and every rule that can judge it.

A *signal* is a column of `records/`; a *rule* is a named range over one signal, and its name is the rejection reason.
Bounds are not here: they come from the recipe. `basis` says which text the signal is measured on: what extraction gave
(`text`) or what line edits left (`edited`); shared/design.md, "Datasets".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Basis = Literal["text", "edited", "page"]


@dataclass(frozen=True, slots=True)
class Signal:
    name: str
    kind: Literal["int", "float"]
    basis: Basis
    meaning: str


@dataclass(frozen=True, slots=True)
class Rule:
    """Keeps a document whose `signal` lies in the recipe's closed range; where it is null the rule does not apply."""

    name: str
    signal: str
    meaning: str


SIGNALS: tuple[Signal, ...] = (
    Signal("n_chars", "int", "edited", "characters"),
    Signal("n_words", "int", "edited", "words"),
    Signal("quality_score", "float", "edited", "0 to 1, see pipeline/quality/score.py"),
)

RULES: tuple[Rule, ...] = (Rule("quality_score", "quality_score", "the document's quality score"),)

SIGNAL_NAMES = frozenset(s.name for s in SIGNALS)
RULES_BY_NAME = {r.name: r for r in RULES}
