"""Bytes in a folder on any fsspec file system: whole files in one put, seekable reads, streamed writes."""

from __future__ import annotations

import json
import os
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import fsspec
import pyarrow as pa

from pipeline.errors import GristmillError

#: Prefix of files in the making on the local file system; readers and `list` never see them.
TEMPORARY = ".tmp-"


@contextmanager
def plain_errors(action: str) -> Iterator[None]:
    """Whatever a file system raises becomes one line: `cannot <action>: <cause>`."""
    try:
        yield
    except GristmillError:
        raise
    except Exception as error:  # botocore, OSError, fsspec: every back end has its own family
        cause = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise GristmillError(f"cannot {action}: {' '.join(str(cause).split())}") from error


class Files:
    """The files below `uri` (a local path, `s3://bucket/prefix`, `memory://...`), named by paths relative to it.

    Picklable; file-system objects are made anew in each process. S3 follows the usual AWS variables
    (AWS_ENDPOINT_URL, AWS_PROFILE, ...).
    """

    def __init__(self, uri: str) -> None:
        protocol = uri.split("://", 1)[0] if "://" in uri else "file"
        self.protocol = "file" if protocol in ("file", "local") else protocol
        if self.local:
            self.uri = os.path.abspath(os.path.expanduser(uri.split("://", 1)[-1]))
        else:
            self.uri = uri.rstrip("/")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.uri,)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.uri!r})"

    @property
    def local(self) -> bool:
        return self.protocol == "file"

    @property
    def fs(self) -> Any:
        # fsspec caches instances per process and thread; listings must be those of now, other processes write too
        options = {} if self.local or self.protocol == "memory" else {"use_listings_cache": False}
        return fsspec.filesystem(self.protocol, **options)

    def path(self, rel: str) -> str:
        """The file system's own name of a file; raises ValueError for a path that leaves the folder."""
        if rel.startswith("/") or ".." in rel.split("/"):
            raise ValueError(f"not a path inside the run: {rel!r}")
        base: str = self.uri if self.local else self.fs._strip_protocol(self.uri)
        return f"{base}/{rel}" if rel else base

    def read_bytes(self, rel: str) -> bytes:
        with plain_errors(f"read {self.uri}/{rel}"):
            data: bytes = self.fs.cat_file(self.path(rel))
            return data

    def put_bytes(self, rel: str, data: bytes) -> None:
        """The whole file or nothing of it, in one put."""
        with plain_errors(f"write {self.uri}/{rel}"):
            if not self.local:
                self.fs.pipe_file(self.path(rel), data)
                return
            with self.scratch(os.path.dirname(rel)) as temporary:
                temporary.write_bytes(data)
                self.put_file(rel, temporary)

    @contextmanager
    def scratch(self, folder: str) -> Iterator[Path]:
        """The name of a local file that is gone afterwards, unless `put_file` made it a file of `folder`."""
        with plain_errors(f"write {self.uri}/{folder}"):
            if self.local:  # on the same disk, where it becomes the file itself
                where = Path(self.path(folder))
                where.mkdir(parents=True, exist_ok=True)
            else:
                where = Path(tempfile.gettempdir())
        name = where / f"{TEMPORARY}{uuid.uuid4().hex}"
        try:
            yield name
        finally:
            name.unlink(missing_ok=True)

    def put_file(self, rel: str, scratch: Path) -> None:
        """Makes a finished `scratch` file the file `rel`: the whole of it or nothing."""
        with plain_errors(f"write {self.uri}/{rel}"):
            if self.local:
                _to_disk(scratch)
                os.replace(scratch, self.path(rel))
            else:
                self.fs.put_file(str(scratch), self.path(rel))

    def read_json(self, rel: str) -> Any:
        """The file's JSON, or None where there is no such file."""
        if not self.exists(rel):
            return None
        data = self.read_bytes(rel)
        try:
            return json.loads(data)
        except (ValueError, RecursionError) as error:
            raise GristmillError(f"{self.uri}/{rel} is not JSON ({error}); remove it and run again") from None

    def put_json(self, rel: str, value: Any) -> None:
        self.put_bytes(rel, (json.dumps(value, ensure_ascii=False, indent=1) + "\n").encode())

    def exists(self, rel: str) -> bool:
        with plain_errors(f"read {self.uri}/{rel}"):
            return bool(self.fs.exists(self.path(rel)))

    def list(self, rel: str = "") -> list[str]:
        """Paths of all files below the folder `rel`, sorted; none where there is no such folder."""
        return sorted(self.sizes(rel))

    def sizes(self, rel: str = "") -> dict[str, int]:
        """Path -> bytes of all files below the folder `rel`."""
        base = self.path("")
        found: dict[str, int] = {}
        with plain_errors(f"list {self.uri}/{rel}"):
            for name, info in self.fs.find(self.path(rel), detail=True).items():
                path = name[len(base) :].lstrip("/")
                if path and not path.rsplit("/", 1)[-1].startswith(TEMPORARY):
                    found[path] = int(info["size"] or 0)
        return found

    def delete(self, rels: Iterable[str]) -> None:
        """Removes files; those that are gone already are no error."""
        for rel in rels:
            with plain_errors(f"delete {self.uri}/{rel}"), suppress(FileNotFoundError):
                self.fs.rm_file(self.path(rel))

    def delete_leftovers(self, rel: str) -> None:
        """Removes the halves of `put_bytes` and `put_file` that a killed process left in folder `rel`."""
        if self.local and os.path.isdir(self.path(rel)):
            for entry in os.scandir(self.path(rel)):
                if entry.name.startswith(TEMPORARY):
                    with suppress(FileNotFoundError):
                        os.unlink(entry.path)
            with suppress(OSError):  # it stays where it holds anything
                os.rmdir(self.path(rel))

    def open_input(self, rel: str) -> Any:
        """A seekable pyarrow.NativeFile; close it, or use it in a `with`."""
        with plain_errors(f"read {self.uri}/{rel}"):
            if self.local:
                return pa.OSFile(self.path(rel), "rb")
            return pa.PythonFile(self.fs.open(self.path(rel), "rb", block_size=4 << 20, cache_type="readahead"), "r")

    def open_output(self, rel: str) -> BinaryIO:
        """A binary file to write from start to end. On object stores it appears when closed, whole."""
        with plain_errors(f"write {self.uri}/{rel}"):
            if self.local:
                target = Path(self.path(rel))
                target.parent.mkdir(parents=True, exist_ok=True)
                return open(target, "wb")
            file: BinaryIO = self.fs.open(self.path(rel), "wb", block_size=16 << 20)
            return file

    def finish(self, file: BinaryIO) -> None:
        """Closes what `open_output` opened, when all of it is safe."""
        if self.local:
            file.flush()
            os.fsync(file.fileno())
        file.close()

    def discard(self, file: Any) -> None:
        """Drops what `open_output` opened; on object stores nothing of it ever appears."""
        if self.local:
            file.close()
        elif hasattr(file, "discard"):
            file.discard()
            file.closed = True  # else its end would upload the rest


def _to_disk(path: Path) -> None:
    with open(path, "rb+") as file:
        os.fsync(file.fileno())
