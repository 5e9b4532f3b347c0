"""What each stage's output depends on, as a short hash: equal key, nothing to do.

A key holds the stage's VERSION, the recipe keys it reads, its libraries' and models' versions and its inputs' keys
(shared/design.md, "What is redone when something changes"). A golden-hash test fails when a stage's output changes
without a bump of its VERSION.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from pipeline.dedup.signature import scheme
from pipeline.recipe import Dedup, Recipe

#: Bump when the stage's output changes for the same input and recipe.
VERSIONS = {
    "extract": 4,
    "measure": 3,
    "lines": 1,
    "judge": 1,
    "decontaminate": 1,
    "dedup": 1,
    "shingles": 1,
    "publish": 1,
}

RECIPE_KEYS: dict[str, tuple[str, ...]] = {
    "extract": ("limits", "url", "extract"),
    "measure": (
        "language.model",
        "edit.c4",
        "edit.refinedweb",
        "dedup.shingle",
        "dedup.permutations",
        "dedup.seed",
        "dedup.fold_numbers",
        "quality.score_model",
        "quality.score_label",
    ),
    "lines": ("edit.repeated_lines",),
    "judge": ("language.allowed", "language.min_score", "language.min_letters", "quality.rules"),
    "decontaminate": ("decontaminate.ngram",),  # and the benchmarks, by content
    "dedup": tuple(f"dedup.{name}" for name in Dedup.model_fields if name != "keep_shingles"),
    "shingles": ("dedup.keep_shingles", "dedup.shingle", "dedup.fold_numbers"),
    "publish": ("publish",),
}

LIBRARIES: dict[str, tuple[str, ...]] = {
    "extract": ("fastwarc", "resiliparse", "trafilatura", "justext", "lxml", "zlib-ng", "brotli", "zstandard"),
    "measure": ("fasttext-predict", "numpy", "xxhash"),
    "lines": ("xxhash",),
    "judge": (),
    "decontaminate": (),
    "dedup": (),
    "shingles": (),
    "publish": ("pyarrow", "tokenizers", "xxhash"),
}


def digest(*parts: Any) -> str:
    """16 hex digits over JSON-able parts."""
    return _hash(json.dumps(parts, sort_keys=True, ensure_ascii=False).encode())


def stage_key(stage: str, recipe: Recipe, *inputs: Any) -> str:
    """Key of `stage` under `recipe`; `inputs` are the keys of what it reads."""
    return digest(stage, ingredients(stage, recipe), inputs)


def ingredients(stage: str, recipe: Recipe) -> dict[str, str]:
    """Name -> value of all that `stage` depends on besides its inputs: kept with its output to say what changed."""
    whole = recipe.model_dump(mode="json")
    found = {"version": str(VERSIONS[stage])}
    found |= {path: json.dumps(_at(whole, path)) for path in RECIPE_KEYS[stage]}
    found |= {name: version(name) for name in LIBRARIES[stage]}
    found |= {name: file_hash(name) for name in _files(stage, recipe)}
    if stage == "measure":
        found["the scheme of signatures"] = scheme(recipe.dedup)
    if stage == "extract" and recipe.extract.engine == "gristmill":
        found["the extraction model"] = _extraction_model()
    if stage == "decontaminate":
        found |= _benchmarks(recipe)
    return found


def part_keys(input_id: str, warc_file: str, recipe: Recipe) -> tuple[str, str]:
    """(extract key, measure key) of every part of an input's records."""
    extract = stage_key("extract", recipe, input_id, warc_file, recipe.input.crawl)
    return extract, stage_key("measure", recipe, extract)


def lines_key(recipe: Recipe, measure_keys: Iterable[str]) -> str | None:
    """Of `lines/`, counted over the inputs with these measure keys; None where the recipe does not ask for it."""
    if recipe.edit.repeated_lines is None:
        return None
    return stage_key("lines", recipe, sorted(set(measure_keys)))


def contaminated_key(recipe: Recipe, measure_keys: Iterable[str]) -> str:
    """Of `contaminated/`, made of the inputs with these measure keys."""
    return stage_key("decontaminate", recipe, _texts(recipe, measure_keys))


def _texts(recipe: Recipe, measure_keys: Iterable[str]) -> list[str]:
    """What the texts that are compared and kept depend on."""
    measured = sorted(set(measure_keys))
    lines = lines_key(recipe, measured)
    return measured if lines is None else [*measured, lines]


def duplicates_key(recipe: Recipe, measure_keys: Iterable[str], against: Sequence[str] = ()) -> str:
    """Of `duplicates/`, made of the inputs with these measure keys; `against`: identities of the earlier runs."""
    judged = stage_key("judge", recipe, _texts(recipe, measure_keys))
    if recipe.decontaminate.benchmarks:
        return stage_key("dedup", recipe, judged, stage_key("decontaminate", recipe), *against)
    return stage_key("dedup", recipe, judged, *against)


def verdicts_key(recipe: Recipe, duplicates: str) -> str:
    return stage_key("judge", recipe, duplicates)


def shingles_key(recipe: Recipe, verdicts: str) -> str:
    return stage_key("shingles", recipe, verdicts)


def shards_key(recipe: Recipe, verdicts: str) -> str:
    """Names the published state; it is the `run_id`."""
    return stage_key("publish", recipe, verdicts)


def changes(stage: str, recipe: Recipe, old: dict[str, str] | None) -> str:
    """What of `stage`'s ingredients differs from `old`, for people; empty where nothing does."""
    if not old:
        return ""
    now = ingredients(stage, recipe)
    return ", ".join(name for name in sorted({*now, *old}) if now.get(name) != old.get(name))


@cache
def _extraction_model() -> str:
    return _hash(resources.files("pipeline.extract").joinpath("model.npz").read_bytes())


@cache
def version(library: str) -> str:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return "absent"


def versions() -> dict[str, str]:
    """Versions of the libraries that any stage depends on; in run.json, and compared by the preflight."""
    return {name: version(name) for names in LIBRARIES.values() for name in names}


def _benchmarks(recipe: Recipe) -> dict[str, str]:
    """Each benchmark by what is read of it, and their order; where the files lie does not count."""
    benchmarks = recipe.decontaminate.benchmarks
    found = {
        f"decontaminate.benchmarks.{name}": json.dumps([one.fields, one.labels, list(map(known_hash, one.path))])
        for name, one in benchmarks.items()
    }
    return found | {"decontaminate.benchmarks": json.dumps(list(benchmarks))}


def known_hash(path: str) -> str:
    """`file_hash`, computed once while the file stays as it is: benchmarks may be large."""
    try:
        stat = Path(path).stat()
    except OSError:
        return "absent"
    return _hash_of(path, stat.st_size, stat.st_mtime_ns)


@cache
def _hash_of(path: str, size: int, mtime_ns: int) -> str:
    return file_hash(path)


def file_hash(path: str) -> str:
    """sha256 (16 hex digits) of a file that the recipe names; its content counts, not its place."""
    try:
        return _hash(Path(path).read_bytes())
    except OSError:
        return "absent"


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _at(tree: Any, path: str) -> Any:
    for name in path.split("."):
        tree = tree[name]
    return tree


def _files(stage: str, recipe: Recipe) -> list[str]:
    """Files named in the recipe that `stage` reads (`builtin:` ones change with the stage's VERSION)."""
    named: tuple[str | None, ...] = ()
    if stage == "extract":
        url = recipe.url
        named = (*url.blocked_domains, *url.strict_words, *url.hard_words, *url.soft_words)
    elif stage == "measure":
        named = (recipe.language.model, recipe.quality.score_model)
    elif stage == "publish":
        named = (recipe.publish.tokenizer,)
    return [name for name in named if name and not name.startswith("builtin:")]


def model_files(recipe: Recipe) -> list[str]:
    """Files that every executor needs: the preflight compares them."""
    named = [recipe.language.model, *(_files("extract", recipe)), *(_files("measure", recipe))]
    return sorted(set(named))
