"""The recipe: from labelled pages to a model, or to predictions for each page by a model that has not seen its site.

What a model is fitted on was never made with the help of the page itself: a page's token scores, and the first stage's
answers that the second stage is fitted on, come from the other folds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from jobs.extractor import tokens
from jobs.extractor.boosting import Boosting, fit
from jobs.extractor.folds import folds_of, sites_of
from pipeline.extract import block_features
from pipeline.extract.container_features import Layout, layout
from pipeline.extract.context_features import context
from pipeline.extract.features import NAMED_CLASSES, NAMED_SCORES, NAMED_TAGS, TokenScores, columns, token_scores
from pipeline.extract.model import Model, predict, probabilities
from pipeline.extract.scan import Blocks
from pipeline.extract.trees import Trees, evaluate

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]
Held = frozenset[int]  #: folds that a model has not seen

FIRST = Boosting(120, 31, 0.09, stops=(15, 40, 80))
SECOND = Boosting(60, 15, 0.1, stops=(10, 25, 50))

_NEVER = 99.0
_NO_TOKENS = token_scores(np.empty(0, np.uint32), np.empty(0, np.float32))


@dataclass(frozen=True, slots=True)
class Settings:
    first: Boosting = FIRST
    second: Boosting = SECOND
    n_folds: int = 5
    min_sites: int = tokens.MIN_SITES
    augmented: float = 0.6  #: share of pages that are learnt from twice, the second time without telling names
    blanked: float = 0.65  #: chance of each kind of names to be taken from the second copy


@dataclass(frozen=True)
class Labelled:
    """A page to learn from: n blocks."""

    url: str
    blocks: Blocks
    share: Floats  #: [n] of each block's words, how much is main text
    weight: Floats  #: [n] 0 where nothing is known
    words: Ints  #: [n] as the scorer counts them
    names: bool = True  #: whether class and id tokens may be learnt from it

    @cached_property
    def layout(self) -> Layout:
        return layout(self.blocks)

    @cached_property
    def columns(self) -> Floats:
        """The features, with all token scores 0."""
        return columns(self.blocks, self.layout, _NO_TOKENS)

    @cached_property
    def shares(self) -> tokens.Shares:
        return tokens.shares_of(self.blocks, self.share, self.words)


@dataclass
class Learner:
    """Pages in folds, and what has been fitted on them so far, by the folds held back."""

    pages: list[Labelled]
    settings: Settings
    fold: list[int] = field(init=False)
    _tables: dict[Held, TokenScores] = field(default_factory=dict)
    _first: dict[Held, Trees] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._site = sites_of([page.url for page in self.pages], [page.blocks for page in self.pages])
        self.fold = folds_of(self._site, self.settings.n_folds)

    def table(self, held: Held) -> TokenScores:
        if held not in self._tables:
            chosen = [i for i, page in enumerate(self.pages) if self.fold[i] not in held and page.names]
            shares, sites = [self.pages[i].shares for i in chosen], [self._site[i] for i in chosen]
            self._tables[held] = tokens.learn(shares, sites, self.settings.min_sites)
        return self._tables[held]

    def first(self, held: Held) -> Trees:
        if held not in self._first:
            chosen = [i for i in range(len(self.pages)) if self.fold[i] not in held]
            rows, target, weight = [], [], []
            for i in chosen:
                page = self.pages[i]
                known = page.weight > 0
                if not known.any():
                    continue
                made = with_scores(page, self.table(held | {self.fold[i]})).T[known]
                for copy in (made, *blanked(made, page.url, self.settings)):
                    rows.append(copy)
                    target.append(page.share[known])
                    weight.append(page.weight[known])
            self._first[held] = fit(np.concatenate(rows), np.concatenate(target), np.concatenate(weight),
                                    self.settings.first)  # fmt: skip
        return self._first[held]

    def first_answers(self, i: int, held: Held) -> Floats:
        """The first stage's probabilities for page `i` from a model that was fitted without the folds `held`."""
        return probabilities(evaluate(self.first(held), with_scores(self.pages[i], self.table(held))))

    def model(self, held: Held = frozenset()) -> Model:
        """The two stages, fitted on all folds but those held back."""
        rows, target, weight = [], [], []
        for i, page in enumerate(self.pages):
            known = page.weight > 0
            if self.fold[i] not in held and known.any():
                answers = self.first_answers(i, held | {self.fold[i]})
                rows.append(context(page.blocks, page.layout, answers).T[known])
                target.append(page.share[known])
                weight.append(page.weight[known])
        second = fit(np.concatenate(rows), np.concatenate(target), np.concatenate(weight), self.settings.second)
        return Model(self.table(held), self.first(held), second, {})

    def held_out(self) -> list[Floats]:
        """For each page the probabilities of a model that has seen no page of its fold."""
        found: list[Floats] = [np.empty(0, np.float32)] * len(self.pages)
        for fold in range(self.settings.n_folds):
            model = self.model(frozenset({fold}))
            for i, page in enumerate(self.pages):
                if self.fold[i] == fold:
                    found[i] = predict(model, page.blocks)
        return found


def with_scores(page: Labelled, table: TokenScores) -> Floats:
    """The page's features, float32[F, n], its token scores from `table`."""
    blocks, made = page.blocks, page.columns.copy()
    m = len(blocks.parent)
    own = np.zeros(m, np.float32)
    block_features.add_scores(blocks.token_element, blocks.token_hash, table.keys, table.values, own)
    room = np.empty((2, m), np.float32)
    block_features.scores(blocks.parent, blocks.owner, own, room[0], room[1], made[NAMED_SCORES])
    return made


def blanked(rows: Floats, url: str, settings: Settings) -> Iterable[Floats]:
    """No copy or one of a page's rows, float32[n, F], with the distances to class and tag names, or both, wiped out."""
    draw = np.random.default_rng(int.from_bytes(hashlib.sha256(url.encode()).digest()[:8], "big"))
    chosen, classes, tags = draw.random(3)
    if chosen >= settings.augmented:
        return
    copy = rows.copy()
    neither = classes >= settings.blanked and tags >= settings.blanked
    if tags < settings.blanked or neither:
        copy[:, NAMED_TAGS] = _NEVER
    if classes < settings.blanked or neither:
        copy[:, NAMED_CLASSES] = _NEVER
        copy[:, NAMED_SCORES] = 0
    yield copy
