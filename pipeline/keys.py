"""What each stage's output depends on, as a short hash: equal key, nothing to do.

A key holds the stage's VERSION, the recipe keys it reads, its libraries' and models' versions and its inputs' keys
(shared/design.md, "What is redone when something changes"). A golden-hash test fails when a stage's output changes
without a bump of its VERSION.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from pipeline.recipe import Recipe

#: Bump when the stage's output changes for the same input and recipe.
VERSIONS = {"extract": 1, "measure": 1, "judge": 1, "dedup": 1, "publish": 1}

RECIPE_KEYS: dict[str, tuple[str, ...]] = {
    "extract": ("limits", "url", "extract"),
    "measure": (
        "language.model",
        "edit",
        "dedup.shingle",
        "dedup.permutations",
        "dedup.seed",
        "dedup.fold_numbers",
        "quality.score_model",
        "quality.score_label",
    ),
    "judge": ("language.allowed", "language.min_score", "language.min_letters", "quality.rules"),
    "dedup": ("dedup",),
    "publish": ("publish",),
}

LIBRARIES: dict[str, tuple[str, ...]] = {
    "extract": ("fastwarc", "resiliparse", "trafilatura", "lxml", "brotli", "zstandard"),
    "measure": ("fasttext-predict", "numpy", "xxhash"),
    "judge": (),
    "dedup": (),
    "publish": ("pyarrow", "tokenizers"),
}


def digest(*parts: Any) -> str:
    """16 hex digits over JSON-able parts."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:16]


def stage_key(stage: str, recipe: Recipe, *inputs: Any) -> str:
    """Key of `stage` under `recipe`; `inputs` are the keys of what it reads."""
    return digest(
        stage,
        VERSIONS[stage],
        recipe.digest(*RECIPE_KEYS[stage]),
        {name: version(name) for name in LIBRARIES[stage]},
        {name: file_hash(name) for name in _files(stage, recipe)},
        inputs,
    )


@cache
def version(library: str) -> str:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return "absent"


def versions() -> dict[str, str]:
    """Versions of every library that any stage's output depends on; written to run.json and compared by the preflight."""
    return {name: version(name) for names in LIBRARIES.values() for name in names}


def file_hash(path: str) -> str:
    """sha256 (16 hex digits) of a file that the recipe names; its content counts, not its place."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16]
    except OSError:
        return "absent"


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
