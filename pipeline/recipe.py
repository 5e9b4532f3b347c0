"""What the user wants: a TOML recipe, validated once, before anything is read.

A recipe file may begin with `extends = "fineweb"` and override single keys; `--set key=value` overrides any. Unknown
keys, rules and impossible ranges end with the nearest valid name.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from pipeline.errors import UsageError
from pipeline.signals import RULES_BY_NAME

PRESETS = ("fineweb", "gopher", "c4", "refinedweb", "minimal")


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Range(Section):
    """A closed interval: `min <= x <= max` keeps. At least one bound is set."""

    min: float | None = None
    max: float | None = None

    @model_validator(mode="after")
    def _possible(self) -> Range:
        bounds = [b for b in (self.min, self.max) if b is not None]
        if not bounds:
            raise ValueError("a rule needs min or max")
        if any(not math.isfinite(b) for b in bounds):
            raise ValueError("bounds must be finite numbers")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"no number is in the range: min {self.min:g} > max {self.max:g}")
        return self


class Input(Section):
    base: str = "https://data.commoncrawl.org/"  #: relative entries of a paths list without an origin of its own
    crawl: str | None = None  #: the crawl's name where the file's warcinfo has none
    split_mib: float = Field(256, gt=0)  #: larger files are split at record boundaries among tasks


class Limits(Section):
    body_mib: float = Field(64, gt=0)  #: decoded body; more is `too_large`
    inflation_ratio: float = Field(200, gt=1)  #: decoded / encoded, above `inflation_free_mib`
    inflation_free_mib: float = Field(1, ge=0)
    cpu_seconds: float = Field(10, gt=0)  #: one document's CPU time from bytes to signals
    memory_mib: float = Field(900, gt=0)  #: what one document may add to its process


class Url(Section):
    #: words and domains are files, one entry per line (may be .gz); `builtin:NAME` names a shipped list
    blocked_domains: tuple[str, ...] = ()
    strict_words: tuple[str, ...] = ()  #: substrings of the URL with `-` and `.` removed: one hit rejects
    hard_words: tuple[str, ...] = ()  #: whole words of the URL: one hit rejects
    soft_words: tuple[str, ...] = ()  #: whole words: `soft_limit` hits reject
    soft_limit: int = Field(2, ge=1)


class Extract(Section):
    engine: Literal["gristmill", "trafilatura", "resiliparse"] = "gristmill"
    favor: Literal["precision", "balanced", "recall"] = "balanced"  #: what to do in doubt; not with resiliparse
    comments: bool = True  #: keep reader comments where the engine can tell them
    tables: bool = True  #: keep tables; not with resiliparse


class Language(Section):
    model: str = "builtin:lid.176.ftz"  #: a fastText language model file
    allowed: tuple[str, ...] = ()  #: labels the model can return; empty = any
    min_score: float = Field(0.0, ge=0, le=1)  #: the score must be greater
    min_letters: int = Field(20, ge=0)  #: fewer letters (20 at least) have no language: `too_short_for_lang`

    @field_validator("allowed")
    @classmethod
    def _normal(cls, allowed: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(normal_label, allowed))


class C4Lines(Section):
    """Line rules of C4; shared/rules.md 3.3."""

    end_mark: bool = True  #: drop lines that do not end in one of `end_marks` (or do end in ...)
    end_marks: str = Field(".?!\"'", min_length=1)
    min_words: int = Field(3, ge=0)
    count_after_citations: bool = False  #: count a line's words once citations are out
    max_word_chars: int = Field(1000, ge=1)
    citations: bool = True  #: delete [1], [edit], [citation needed]
    javascript: bool = True  #: drop lines that hold "javascript"
    policy: bool = True  #: drop lines on cookies, terms of use, privacy


class RefinedWebLines(Section):
    """Line rules of RefinedWeb as dclm implements them; shared/rules.md 3.5."""

    max_uppercase: float = Field(0.5, ge=0, le=1)
    digits: bool = True
    counters: bool = True
    min_words: int = Field(2, ge=0)
    boilerplate: bool = True
    remove_urls: bool = True
    max_newlines: int = Field(2, ge=1)


class Edit(Section):
    """Line edits, in this order; an absent one is off."""

    c4: C4Lines | None = None
    refinedweb: RefinedWebLines | None = None

    @field_validator("c4", "refinedweb", mode="before")
    @classmethod
    def _off(cls, value: Any) -> Any:
        return None if value in ("off", False) else value


class Quality(Section):
    score_model: str | None = None  #: a fastText classifier file that replaces the built-in score
    score_label: str = "__label__hq"  #: the label of `score_model` whose probability is the score
    rules: dict[str, Range] = Field(default_factory=dict)  #: in recipe order: the first failing rule is the reason

    @field_validator("rules")
    @classmethod
    def _known(cls, rules: dict[str, Range]) -> dict[str, Range]:
        for name in rules:
            if name not in RULES_BY_NAME:
                raise ValueError(f"unknown rule {name!r}{nearest(name, RULES_BY_NAME)}")
        return rules


class Dedup(Section):
    exact: bool = True
    near: bool = True  #: needs `exact`: equal texts have Jaccard 1
    shingle: int = Field(5, ge=1, le=50)  #: words (characters for scripts without spaces) in a shingle
    permutations: int = Field(112, ge=1, le=9000)
    bands: int = Field(14, ge=1)
    rows: int = Field(8, ge=1)
    threshold: float = Field(0.8, gt=0, le=1)  #: exact Jaccard at which a document is a near-duplicate
    seed: int = Field(1, ge=0)
    fold_numbers: bool = False
    per_language: bool = False  #: compare only documents of one language
    priority: tuple[Literal["quality_score", "n_words", "n_chars"], ...] = Field(
        ("quality_score", "n_words"), min_length=1
    )
    keep_shingles: bool = False  #: store the kept documents' shingle hashes, for exact comparison by later runs

    @model_validator(mode="after")
    def _fits(self) -> Dedup:
        if self.near and not self.exact:
            raise ValueError("near = true finds exact copies as well: set exact = true, or both to false")
        if self.bands * self.rows > self.permutations:
            raise ValueError(
                f"bands x rows = {self.bands * self.rows} needs more than the {self.permutations} permutations"
            )
        return self


class Pii(Section):
    emails: bool = True
    ips: bool = True


class Publish(Section):
    shard_mib: float = Field(256, gt=0)  #: text bytes per shard, about
    row_group_mib: float = Field(8, gt=0)  #: text bytes per row group, at most (one larger document is alone)
    tokenizer: str | None = None  #: a tokenizer.json; sets n_tokens
    tokenize: bool = False  #: store the token ids
    eos_id: int | None = None
    pii: Pii | Literal[False] = Pii()

    @field_validator("pii", mode="before")
    @classmethod
    def _off(cls, value: Any) -> Any:
        return False if value == "off" else {} if value is True else value


class Recipe(Section):
    """One run's wishes. Field order is the order of the stages."""

    name: str = "custom"
    keep_text: Literal["all", "kept", "none"] = "all"  #: which texts `records/` keeps once shards are out
    input: Input = Input()
    limits: Limits = Limits()
    url: Url = Url()
    extract: Extract = Extract()
    language: Language = Language()
    edit: Edit = Edit()
    quality: Quality = Quality()
    dedup: Dedup = Dedup()
    publish: Publish = Publish()

    @model_validator(mode="after")
    def _tokens_need_a_tokenizer(self) -> Recipe:
        if self.publish.tokenize and not self.publish.tokenizer:
            raise ValueError("publish.tokenize needs publish.tokenizer")
        return self

    def digest(self, *paths: str) -> str:
        """Hash of the values at dotted `paths` (all of the recipe without any): what a stage's key is made of."""
        whole = self.model_dump(mode="json")
        # what a recipe is called and which texts and shingles stay stored change nothing that is published
        del whole["dedup"]["keep_shingles"]
        chosen = {p: _get(whole, p) for p in paths or sorted(whole.keys() - {"name", "keep_text"})}
        return hashlib.sha256(json.dumps(chosen, ensure_ascii=False).encode()).hexdigest()[:16]


def normal_label(label: str) -> str:
    """A language label as we write it: without fastText's prefix, the language in lower case, what follows as it is.

    `__label__EN` -> `en`, `eng_Latn` and `zh-Hans` stay.
    """
    language, *rest = re.split("([-_])", label.removeprefix("__label__"), maxsplit=1)
    return language.lower() + "".join(rest)


def nearest(word: str, known: Sequence[str] | Mapping[str, Any]) -> str:
    """' (nearest: x)' for an error message, empty where nothing is near."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f" (nearest: {close[0]})" if close else ""


def load(source: str, overrides: Sequence[str] = ()) -> Recipe:
    """The recipe `source` (a preset's name or a TOML file) with `key=value` overrides applied.

    Raises UsageError, in one line, for anything that is not a valid recipe.
    """
    return _apply(_read(source, ()), overrides, f"recipe {source}")


def override(recipe: Recipe, overrides: Sequence[str]) -> Recipe:
    """A run's own recipe with `key=value` overrides applied; raises UsageError as `load` does."""
    return _apply(recipe.model_dump(mode="json", exclude_none=True), overrides, "the run's recipe")


def _apply(tree: dict[str, Any], overrides: Sequence[str], what: str) -> Recipe:
    for item in overrides:
        key, equals, value = item.partition("=")
        if not equals:
            raise UsageError(f"--set {item}: write key=value, for example --set language.min_score=0.5")
        _put(tree, key.strip(), _parse_value(value.strip()), item)
    rules = tree.get("quality", {}).get("rules")
    if isinstance(rules, dict):
        off = [name for name, bounds in rules.items() if bounds == "off" or bounds is False]
        for name in off:
            if name not in RULES_BY_NAME:
                raise UsageError(f"{what}: unknown rule {name!r}{nearest(name, RULES_BY_NAME)}")
            del rules[name]
    try:
        return Recipe.model_validate(tree)
    except ValidationError as error:
        raise UsageError(f"{what}: {_first_problem(error)}") from None


def _read(source: str, seen: tuple[str, ...]) -> dict[str, Any]:
    if source in PRESETS:
        text = resources.files("pipeline.recipes").joinpath(f"{source}.toml").read_text("utf-8")
    elif source.endswith(".toml") or "/" in source:
        try:
            text = Path(source).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"recipe {source}: cannot be read ({error})") from None
    else:
        raise UsageError(f"unknown recipe {source!r}{nearest(source, PRESETS)}; a file's name ends in .toml")
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"recipe {source}: not TOML: {error}") from None
    base = tree.pop("extends", None)
    if base is None:
        return tree
    if base in seen or base == source or not isinstance(base, str):
        raise UsageError(f"recipe {source}: extends = {base!r} goes in a circle or is no name")
    if base not in PRESETS:
        base = str(Path(source).parent / base)
    return _merge(_read(base, (*seen, source)), tree)


def _merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        merged[key] = _merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def _parse_value(text: str) -> Any:
    """TOML where it parses (numbers, lists, quoted strings), else the bare word as a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _put(tree: dict[str, Any], key: str, value: Any, item: str) -> None:
    *path, last = key.split(".")
    for name in path:
        node = tree.setdefault(name, {})
        if not isinstance(node, dict):
            raise UsageError(f"--set {item}: {name} holds a value, not a table")
        tree = node
    tree[last] = value


def _get(tree: Any, path: str) -> Any:
    for name in path.split("."):
        tree = tree[name]
    return tree


def _first_problem(error: ValidationError) -> str:
    problem = error.errors()[0]
    path = [str(p) for p in problem["loc"]]
    where = ".".join(path)
    if problem["type"] == "extra_forbidden":
        return f"unknown key {where}{_nearest_key(path)}"
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "tuple_type":
        message = f'give a list, as in ["{problem["input"]}"]'
    elif problem["type"] in ("model_type", "dict_type"):
        message = f"has keys of its own; set one of them, as in --set {where}.KEY=VALUE"
    return f"{where}: {message}" if where else message


def _nearest_key(path: list[str]) -> str:
    model: Any = Recipe
    for name in path[:-1]:
        if path[: path.index(name)] == ["quality", "rules"]:
            return nearest(path[-1], list(Range.model_fields))
        annotation = model.model_fields[name].annotation if name in model.model_fields else None
        choices = [annotation, *getattr(annotation, "__args__", ())]
        model = next((c for c in choices if isinstance(c, type) and issubclass(c, BaseModel)), None)
        if model is None:
            return ""
    return nearest(path[-1], list(model.model_fields))
