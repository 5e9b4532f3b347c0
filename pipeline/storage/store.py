"""A run's folder: committed datasets, receipts of single tasks, and what may be deleted.

A dataset is the files that its manifest lists and nothing else. A task's files become visible to a resumed run by the
task's receipt, to everyone by the manifest; both are one put. Nothing relies on renames or on listings being fresh.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.datasets import SCHEMA_VERSION
from pipeline.errors import GristmillError, UsageError
from pipeline.storage.files import Files
from pipeline.storage.lock import LOCK, Lock
from pipeline.storage.parquet import Part

RUN = "run.json"
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=-]{0,190}")
_RECEIPTS = "_receipts"


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a dataset consists of. `key` says what it was made from; equal keys, equal content."""

    dataset: str
    key: str
    schema_version: int
    parts: tuple[Part, ...]
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)


@dataclass(frozen=True, slots=True)
class Receipt:
    """One finished task: its parts and whatever it wants to tell a resumed run."""

    parts: tuple[Part, ...]
    info: dict[str, Any] = field(default_factory=dict)


class Storage(Files):
    """Files plus the rules of committed datasets. Picklable: executors get a copy, the driver commits."""

    _lock: Lock | None = None

    def lock(self) -> AbstractContextManager[Lock]:
        """Keeps other live runs out while inside; raises GristmillError naming the one that is in."""
        return _Held(self)

    # -- receipts ---------------------------------------------------------------------------------------------------

    def put_receipt(
        self, dataset: str, key: str, parts: Sequence[Part], info: Mapping[str, Any] | None = None
    ) -> Receipt:
        """Says that the task `key` (a safe file name) is done. Call it after the parts are closed."""
        if not _KEY.fullmatch(key):
            raise ValueError(f"not a safe file name: {key!r}")
        receipt = Receipt(tuple(parts), dict(info or {}))
        tree = {"parts": [part.to_json() for part in receipt.parts], "info": receipt.info}
        self.put_bytes(f"{dataset}/{_RECEIPTS}/{key}.json", json.dumps(tree, ensure_ascii=False).encode())
        return receipt

    def receipts(self, dataset: str) -> dict[str, Receipt]:
        """Task key -> receipt, of tasks that finished since the last commit."""
        found = {}
        for path in self.list(f"{dataset}/{_RECEIPTS}"):
            tree = self.read_json(path)
            key = path.rsplit("/", 1)[-1].removesuffix(".json")
            found[key] = Receipt(tuple(Part.from_json(part) for part in tree["parts"]), tree["info"])
        return found

    # -- manifests --------------------------------------------------------------------------------------------------

    def commit(self, dataset: str, key: str, parts: Sequence[Part], extra: Mapping[str, Any] | None = None) -> Manifest:
        """Makes `parts`, in this order, the dataset: one put; then removes receipts and unlisted files.

        Raises GristmillError where two parts share a name or a part lies outside the dataset.
        """
        paths = [part.path for part in parts]
        if len(set(paths)) != len(paths):
            twice = next(path for path in paths if paths.count(path) > 1)
            raise GristmillError(f"{dataset}: two tasks wrote one file name, {twice}")
        for path in paths:
            name = path.removeprefix(f"{dataset}/")
            if name == path or name.startswith(("_", ".")) or "/" in name:
                raise GristmillError(f"{dataset}: {path!r} is no data file of this dataset")
        manifest = Manifest(dataset, key, SCHEMA_VERSION, tuple(parts), dict(extra or {}))
        tree = {
            "schema_version": manifest.schema_version,
            "dataset": dataset,
            "key": key,
            "extra": manifest.extra,
            "parts": [part.to_json() for part in parts],
        }
        self.check_lock()
        self.put_json(_manifest_path(dataset), tree)
        self.sweep(dataset)
        return manifest

    def read_manifest(self, dataset: str) -> Manifest | None:
        """The committed dataset, or None where nothing was committed.

        For `shards` the key is the manifest's run_id and the parts' meta holds the rest of each file's entry.
        """
        path = _manifest_path(dataset)
        tree = self.read_json(path)
        if tree is None:
            return None
        try:
            version = tree["schema_version"]
            if version != SCHEMA_VERSION:
                raise GristmillError(
                    f"{self.uri}/{path}: schema version {version}, this program writes {SCHEMA_VERSION}; "
                    "use another output folder"
                )
            if dataset == "shards":
                files = [Part(f"{dataset}/{f['path']}", f["rows"], f["file_bytes"], f) for f in tree["files"]]
                return Manifest(dataset, tree["run_id"], version, tuple(files), {"totals": tree["totals"]})
            parts = tuple(Part.from_json(part) for part in tree["parts"])
            return Manifest(dataset, tree["key"], version, parts, tree.get("extra", {}))
        except (KeyError, TypeError) as error:
            raise GristmillError(f"{self.uri}/{path} is not a manifest ({error}); remove it and run again") from None

    def sweep(self, dataset: str, *, keep_receipts: bool = False) -> list[str]:
        """Deletes the dataset's files that nothing lists, and says which.

        At a start that resumes, `keep_receipts=True` spares receipts and what they list; else both go.
        """
        self.check_lock()
        listed = {_manifest_path(dataset)}
        manifest = self.read_manifest(dataset)
        if manifest is not None:
            listed.update(part.path for part in manifest.parts)
        if keep_receipts:
            for key, receipt in self.receipts(dataset).items():
                listed.add(f"{dataset}/{_RECEIPTS}/{key}.json")
                listed.update(part.path for part in receipt.parts)
        gone = [path for path in self.list(dataset) if path not in listed]
        # receipts first: one whose file is gone already would promise what is not there
        gone.sort(key=lambda path: f"/{_RECEIPTS}/" not in path)
        self.delete(gone)
        self.delete_leftovers(dataset)
        self.delete_leftovers(f"{dataset}/{_RECEIPTS}")
        return sorted(gone)

    def drop(self, dataset: str) -> None:
        """Removes a dataset, its manifest first."""
        self.check_lock()
        self.delete([_manifest_path(dataset)])
        self.sweep(dataset)

    def check_lock(self) -> None:
        """Raises GristmillError where this process held the run and lost it to another."""
        if self._lock is not None:
            self._lock.check()


class _Held(AbstractContextManager[Lock]):
    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def __enter__(self) -> Lock:
        lock = Lock(self._storage)
        lock.acquire()
        self._storage._lock = lock
        return lock

    def __exit__(self, *_: object) -> None:
        lock, self._storage._lock = self._storage._lock, None
        if lock is not None:
            lock.release()


def open_run(uri: str, must_exist: bool = False) -> Storage:
    """The run's folder. `must_exist`: for commands that look at a run; else for the one that makes or resumes it.

    Raises UsageError for a folder that is no run (must_exist) or holds other things than a run (else).
    """
    if not uri.strip():
        raise UsageError("the output folder's name is empty")
    storage = Storage(uri)
    if storage.exists(RUN):
        return storage
    if must_exist:
        raise UsageError(f"{uri} is not a run: it has no {RUN}; name a folder that `gristmill curate --out` wrote")
    if storage.local and storage.fs.isfile(storage.path("")):
        raise UsageError(f"{uri} is a file; --out takes a folder")
    if storage.local and (outer := _run_around(storage.uri)):
        raise UsageError(f"{uri} lies inside the run {outer}, which removes what is not its own; name another folder")
    if not storage.exists(LOCK) and (stranger := next(iter(storage.list()), None)):
        raise UsageError(f"{uri} holds other files ({stranger}) and is no run; name a new or an empty folder")
    return storage


def _run_around(folder: str) -> Path | None:
    """The run that the local path `folder` is inside of."""
    return next((outer for outer in Path(folder).parents if (outer / RUN).is_file()), None)


def _manifest_path(dataset: str) -> str:
    return f"{dataset}/manifest.json" if dataset == "shards" else f"{dataset}/_manifest.json"
