"""`shards/manifest.json`: all that a reader needs to plan, without opening a footer.

`path` is relative to the manifest's folder. `sha256` is of the file; `footer_sha256` of its end: the Parquet metadata,
its length and the closing magic (the last `footer length + 8` bytes). Token numbers are null without a tokenizer.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from pipeline.datasets import SCHEMA_VERSION
from pipeline.errors import GristmillError
from pipeline.storage import Storage

PATH = "shards/manifest.json"


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Bucket(_Entry):
    rows: int
    tokens: int | None


class RowGroup(_Entry):
    rows: int
    text_bytes: int
    n_chars: int
    n_tokens: int | None


class ShardFile(_Entry):
    path: str
    lang: str
    rows: int
    file_bytes: int
    text_bytes: int
    sha256: str
    footer_sha256: str
    row_groups: tuple[RowGroup, ...]
    length_buckets: dict[str, Bucket]


class Totals(_Entry):
    rows: int
    text_bytes: int
    words: int
    tokens: int | None


class ShardsManifest(_Entry):
    schema_version: int = SCHEMA_VERSION
    run_id: str
    recipe_hash: str
    length_unit: Literal["tokens", "words"]
    tokenizer: str | None
    totals: Totals
    tokenizer_sha256: str | None
    eos_id: int | None
    files: tuple[ShardFile, ...]


def commit_shards(storage: Storage, manifest: ShardsManifest) -> None:
    """Makes the shards visible, in one put, and removes files that are no longer listed."""
    paths = [file.path for file in manifest.files]
    if len(set(paths)) != len(paths):
        raise GristmillError("shards: two shards have one name")
    storage.check_lock()
    storage.put_json(PATH, manifest.model_dump(mode="json"))
    storage.sweep("shards")


def read_shards_manifest(storage: Storage) -> ShardsManifest | None:
    """The committed manifest, or None. Raises GristmillError for one that is not of this form."""
    tree: Any = storage.read_json(PATH)
    if tree is None:
        return None
    try:
        return ShardsManifest.model_validate(tree)
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(str(part) for part in problem["loc"])
        raise GristmillError(f"{storage.uri}/{PATH}: {where}: {problem['msg']}; remove it and run again") from None
