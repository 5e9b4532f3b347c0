"""`shards/manifest.json` as the trainer reads it: what there is to read, without opening a file of it.

Positions number a run's rows: files in order of (lang, path), whatever order the manifest lists them in, then row
groups, then rows. Filters, exclusions and quarantine never renumber.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from types import NoneType
from typing import Any

import fsspec
import numpy as np
import numpy.typing as npt

from trainer.stream.errors import StreamError, StreamUsageError, is_missing, one_line

Ints = npt.NDArray[np.int64]
SCHEMA_VERSION = 1
#: Numbers per row group, as the manifest names them; a token count may be null.
GROUP_FIELDS = ("rows", "text_bytes", "n_chars", "n_tokens")


@dataclass(frozen=True, slots=True)
class ShardFile:
    path: str
    lang: str
    rows: int
    file_bytes: int
    text_bytes: int
    sha256: str
    footer_sha256: str


@dataclass(frozen=True, slots=True)
class RowGroups:
    """int64 arrays, one entry per row group that has rows, in order of position; `n_tokens` is -1 where unknown."""

    rows: Ints
    text_bytes: Ints
    n_chars: Ints
    n_tokens: Ints
    file: Ints
    index: Ints  # within its file
    first: Ints  # position of its first row


@dataclass(frozen=True, slots=True)
class Manifest:
    """A published run. `digest` is of the content: equal for equal shards, wherever they lie and however listed."""

    folder: str
    run_id: str
    tokenizer: str | None
    tokenizer_sha256: str | None
    eos_id: int | None
    files: tuple[ShardFile, ...]
    groups: RowGroups
    digest: str

    @property
    def rows(self) -> int:
        return int(self.groups.rows.sum())

    @property
    def tokens(self) -> int | None:
        """Stored tokens, end-of-document ids not counted; None where the run has no tokenizer."""
        return int(self.groups.n_tokens.sum()) if self.tokenizer_sha256 else None

    def group_of(self, position: int) -> int:
        return int(np.searchsorted(self.groups.first, position, side="right")) - 1

    def place(self, position: int) -> tuple[ShardFile, int]:
        """The file that holds a position, and the row in it."""
        group = self.group_of(position)
        file = int(self.groups.file[group])
        return self.files[file], position - int(self.groups.first[np.searchsorted(self.groups.file, file)])


def read_manifest(uri: str) -> Manifest:
    """A run's folder, its `shards/`, or the manifest itself; local, s3:// or https://.

    Raises StreamUsageError where there is none, StreamError for one that is damaged or of another schema.
    """
    where = uri.rstrip("/")
    tries = [where] if where.endswith(".json") else [f"{where}/shards/manifest.json", f"{where}/manifest.json"]
    for path in tries:
        try:
            with fsspec.open(path, "rb") as file:
                data: bytes = file.read()
        except Exception as error:
            if is_missing(error):
                continue
            raise StreamError(f"{path}: cannot be read ({one_line(error)}); check the address and try again") from None
        return parse_manifest(data, path.rpartition("/")[0], path)
    raise StreamUsageError(f"{uri}: no finished run here (no {tries[0]}); give the folder that `curate --out` made")


def parse_manifest(data: bytes, folder: str, name: str) -> Manifest:
    """The manifest in `data`; `folder` is where its files lie."""
    try:
        tree = json.loads(data)
        version = tree["schema_version"]
        if version != SCHEMA_VERSION:
            raise StreamError(f"{name}: schema version {version}, this loader reads {SCHEMA_VERSION}; curate again")
        entries = sorted(tree["files"], key=lambda entry: (entry["lang"], entry["path"]))
        files = tuple(ShardFile(**{field: entry[field] for field in ShardFile.__slots__}) for entry in entries)
        groups = _groups(entries)
        _check(name, tree, files, entries)
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise StreamError(f"{name}: not a shard manifest ({one_line(error)}); curate the run again") from None
    digest = hashlib.sha256(str(tree["tokenizer_sha256"]).encode())
    for file in files:
        digest.update(f"{file.path} {file.lang} {file.rows} {file.file_bytes} {file.sha256}\n".encode())
    for column in (groups.rows, groups.n_chars, groups.text_bytes):
        digest.update(column.astype("<i8").tobytes())
    return Manifest(
        folder=folder,
        run_id=tree["run_id"],
        tokenizer=tree["tokenizer"],
        tokenizer_sha256=tree["tokenizer_sha256"],
        eos_id=tree["eos_id"],
        files=files,
        groups=groups,
        digest=digest.hexdigest(),
    )


def _has(tree: dict[str, Any], kind: Any, *fields: str) -> None:
    """Raises KeyError, TypeError or ValueError for a field that is not there, of another kind, or below 0."""
    for field in fields:
        value = tree[field]
        if not isinstance(value, kind) or isinstance(value, bool):
            raise TypeError(f"{field}: {value!r}"[:100])
        if isinstance(value, int) and value < 0:
            raise ValueError(f"{field}: {value}")


def _groups(entries: list[dict[str, Any]]) -> RowGroups:
    numbers = [
        [-1 if group[field] is None else group[field] for field in GROUP_FIELDS] + [file, index]
        for file, entry in enumerate(entries)
        for index, group in enumerate(entry["row_groups"])
        if group["rows"]
    ]
    columns = np.array(numbers, dtype=np.int64).reshape(-1, len(GROUP_FIELDS) + 2).T.copy()
    rows, text_bytes, n_chars, n_tokens, file, index = columns
    return RowGroups(rows, text_bytes, n_chars, n_tokens, file, index, np.cumsum(rows) - rows)


def _check(name: str, tree: dict[str, Any], files: tuple[ShardFile, ...], entries: list[dict[str, Any]]) -> None:
    _has(tree, str, "run_id")
    for field in ("tokenizer", "tokenizer_sha256"):
        _has(tree, (str, NoneType), field)
    _has(tree, (int, NoneType), "eos_id")
    for file, entry in zip(files, entries, strict=True):
        _has(entry, str, "path", "lang", "sha256", "footer_sha256")
        _has(entry, int, "rows", "file_bytes", "text_bytes")
        if "/" in file.path or "\\" in file.path or file.path in ("", ".", ".."):
            raise StreamError(f"{name}: {file.path!r} is no file beside it; curate the run again")
        for group in entry["row_groups"]:
            _has(group, int, "rows", "text_bytes", "n_chars")
            _has(group, (int, NoneType), "n_tokens")
    if len({file.path for file in files}) != len(files):
        raise StreamError(f"{name}: lists a file twice; curate the run again")
    for file, entry in zip(files, entries, strict=True):
        if file.rows != sum(group["rows"] for group in entry["row_groups"]):
            raise StreamError(f"{name}: {file.path}: its row groups do not add up to its rows; curate the run again")
    if sum(file.rows for file in files) != tree["totals"]["rows"]:
        raise StreamError(f"{name}: files of {tree['totals']['rows']} rows are not all listed; curate the run again")
