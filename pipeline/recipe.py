"""What the user wants: a TOML recipe, validated once, before anything is read.

A recipe file may begin with `extends = "fineweb"` and override single keys; `--set key=value` overrides any. Unknown
keys, rules and impossible ranges end with the nearest valid name.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from pipeline.errors import UsageError
from pipeline.signals import RULES_BY_NAME

PRESETS = ("fineweb", "gopher", "c4", "refinedweb", "minimal")
_MOST_MIB = 1 << 20  #: a tebibyte: sizes beyond it are slips, and overflow what the system takes


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Range(Section):
    """A closed interval: `min <= x <= max` keeps. At least one bound is set."""

    min: float | None = None
    max: float | None = None

    @model_validator(mode="after")
    def _possible(self) -> Range:
        bounds = [b for b in (self.min, self.max) if b is not None]
        if not bounds:
            raise ValueError("a rule needs min or max")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"no number is in the range: min {self.min:g} > max {self.max:g}")
        return self


class Input(Section):
    base: str = "https://data.commoncrawl.org/"  #: relative entries of a paths list without an origin of its own
    crawl: str | None = None  #: the crawl's name where the file's warcinfo has none
    split_mib: float = Field(256, gt=0, le=_MOST_MIB)  #: larger files are split at record boundaries among tasks
    #: https:// and s3:// only
    requests: int = Field(8, ge=1)  #: in flight at once to one server, from all processes of a machine
    tries: int = Field(8, ge=1)  #: failed requests in a row before a file is given up
    wait_seconds: float = Field(1, gt=0, le=60)  #: before the second try; doubled for each further one, up to a minute
    stall_seconds: float = Field(30, gt=0, le=86_400)  #: without a byte, or below 4 KiB/s: the request has failed


class Limits(Section):
    body_mib: float = Field(64, gt=0, le=_MOST_MIB)  #: decoded body; more is `too_large`
    inflation_ratio: float = Field(200, gt=1, le=1e9)  #: decoded / encoded, above `inflation_free_mib`
    inflation_free_mib: float = Field(1, ge=0, le=_MOST_MIB)
    cpu_seconds: float = Field(10, gt=0, le=86_400)  #: one document's CPU time from bytes to signals
    memory_mib: float = Field(900, gt=0, le=_MOST_MIB)  #: what one document may add to its process


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


class RepeatedLines(Section):
    """Lines that several documents of the run hold; pipeline/repeated_lines.py."""

    unit: Literal["line", "sentences"] = "line"  #: whole lines, or spans of three sentences
    min_documents: int = Field(2, ge=2, le=10**12)  #: so many documents make a line a repeated one
    remove: bool = True  #: take repeated lines out; else only count them (`repeated_line_ratio`)
    keep_first: bool = True  #: leave one copy, in the document with the smallest record_id (C4); else none (CCNet)
    normalise: Literal["c4", "ccnet"] = "c4"  #: lower case, stripped; `ccnet`: digits as 0, without punctuation too


class Edit(Section):
    """Line edits, in this order; an absent one is off."""

    c4: C4Lines | None = None
    refinedweb: RefinedWebLines | None = None
    repeated_lines: RepeatedLines | None = None

    @field_validator("c4", "refinedweb", "repeated_lines", mode="before")
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


class Benchmark(Section):
    path: tuple[str, ...] = Field(min_length=1)  #: one file or several: JSON lines, CSV, Parquet
    fields: tuple[str, ...] = Field(min_length=1)  #: whose texts documents must not hold; a.b is b inside a

    @field_validator("path", "fields", mode="before")
    @classmethod
    def _one(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @field_validator("path", "fields")
    @classmethod
    def _once(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(values)) != len(values):
            raise ValueError(f"{next(v for v in values if values.count(v) > 1)} is named twice")
        return values

    @property
    def labels(self) -> tuple[str, ...]:
        """What each file is called in results: its base name, with as much before it as tells the files apart."""
        parts = [Path(path).parts for path in self.path]
        for depth in range(1, max(map(len, parts)) + 1):
            labels = tuple("/".join(p[-depth:]) for p in parts)
            if len(set(labels)) == len(labels):
                return labels
        return self.path


class Decontaminate(Section):
    ngram: int = Field(13, ge=5, le=100)  #: so many words in a row in common with an entry reject a document
    benchmarks: dict[str, Benchmark] = Field(default_factory=dict)  #: in recipe order: the first that matches is named

    @field_validator("benchmarks", mode="before")
    @classmethod
    def _off(cls, value: Any) -> Any:
        return {n: b for n, b in value.items() if b not in ("off", False)} if isinstance(value, dict) else value

    @field_validator("benchmarks")
    @classmethod
    def _named(cls, benchmarks: dict[str, Benchmark]) -> dict[str, Benchmark]:
        from pipeline.datasets import ERROR, REASONS  # which loads pyarrow

        taken = {ERROR, "kept", *REASONS, *(reason for reasons in REASONS.values() for reason in reasons)}
        for name in benchmarks:
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", name):
                raise ValueError(f"benchmark {name!r}: a name is a word of letters, digits, _ and -; it is the reason")
            if name in taken:
                raise ValueError(f"benchmark {name!r} has the name of another stage or reason: call it otherwise")
        return benchmarks


class Dedup(Section):
    exact: bool = True
    near: bool = True  #: needs `exact`: equal texts have Jaccard 1
    shingle: int = Field(5, ge=1, le=50)  #: words (characters for scripts without spaces) in a shingle
    permutations: int = Field(112, ge=1, le=9000)
    bands: int = Field(14, ge=1)
    rows: int = Field(8, ge=1)
    threshold: float = Field(0.8, gt=0, le=1)  #: exact Jaccard at which a document is a near-duplicate
    seed: int = Field(1, ge=0, lt=2**32)
    fold_numbers: bool = False
    per_language: bool = False  #: compare only documents of one language
    per_crawl: bool = False  #: compare only documents of one crawl (`crawl` in records/; all without one are one)
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
    shard_mib: float = Field(256, ge=1e-4, le=_MOST_MIB)  #: text bytes per shard, about
    row_group_mib: float = Field(8, gt=0, le=_MOST_MIB)  #: text bytes per row group, at most; a larger text is alone
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
    decontaminate: Decontaminate = Decontaminate()
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
        silent = {"name", "keep_text"} if self.decontaminate.benchmarks else {"name", "keep_text", "decontaminate"}
        chosen = {p: _get(whole, p) for p in paths or sorted(whole.keys() - silent)}
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
    if any("\0" in text for text in _strings(tree)):
        raise UsageError(f"{what}: a key or value holds a NUL character, which no name can")
    quality = tree.get("quality")
    rules = quality.get("rules") if isinstance(quality, dict) else None
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
            text = Path(source).read_text("utf-8-sig")  # some editors put a byte order mark first
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise UsageError(f"recipe {source}: cannot be read ({why})") from None
    else:
        raise UsageError(f"unknown recipe {source!r}{nearest(source, PRESETS)}; a file's name ends in .toml")
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"recipe {source}: not TOML: {error}") from None
    except RecursionError:
        raise UsageError(f"recipe {source}: nested too deep to be a recipe") from None
    base = tree.pop("extends", None)
    if base is None:
        return tree
    if not isinstance(base, str) or not base:
        raise UsageError(f"recipe {source}: extends = {base!r} is no name of a preset or file")
    seen = (*seen, os.path.realpath(source))  # one file has many spellings
    if base not in PRESETS:
        base = os.path.join(os.path.dirname(source) or ".", base)
        if os.path.realpath(base) in seen:
            raise UsageError(f"recipe {source}: extends goes in a circle, back to {base}")
    return _merge(_read(base, seen), tree)


def _merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        merged[key] = _merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def _parse_value(text: str) -> Any:
    """TOML where it parses (numbers, lists, quoted strings), else the bare word as a string."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (tomllib.TOMLDecodeError, RecursionError):
        return text
    return parsed["value"] if len(parsed) == 1 else text  # else a line feed in it would begin another key


def _strings(tree: Any) -> Iterator[str]:
    """All keys and texts in it, however deep."""
    left = [tree]
    while left:
        one = left.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            left += [*one.keys(), *one.values()]
        elif isinstance(one, list):
            left += one


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
    problems = error.errors()
    # a misspelt key may leave another one missing: the key itself tells more
    problem = next((p for p in problems if p["type"] == "extra_forbidden"), problems[0])
    path = [str(p) for p in problem["loc"] if p not in ("Pii", "literal[False]")]  # which pydantic adds to tell a union
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
        if path[: path.index(name)] == ["decontaminate", "benchmarks"]:
            return nearest(path[-1], list(Benchmark.model_fields))
        annotation = model.model_fields[name].annotation if name in model.model_fields else None
        choices = [annotation, *getattr(annotation, "__args__", ())]
        model = next((c for c in choices if isinstance(c, type) and issubclass(c, BaseModel)), None)
        if model is None:
            return ""
    return nearest(path[-1], list(model.model_fields))
