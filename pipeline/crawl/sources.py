"""Where crawl files come from: files, folders, globs, path lists, https:// and s3://, all through one door."""

from __future__ import annotations

import glob
import gzip
import os
import stat
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

import fsspec
import xxhash

from pipeline.crawl.remote import Known, RemoteFile, is_remote_file, tidy_etag
from pipeline.crawl.retry import patiently
from pipeline.crawl.supervise import SourceError
from pipeline.errors import UsageError
from pipeline.recipe import Input

#: What a crawl file is called; in folders and path lists by glob only these are taken, a file named by hand always is.
CRAWL_SUFFIXES = tuple(
    f".{kind}{packing}" for kind in ("warc", "arc", "wet", "warc.wet") for packing in ("", ".gz", ".zst")
)
_EDGE = 64 * 1024
_REMOTE_BLOCK = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class InputFile:
    """`input_id` is 32 hex digits of xxh3_128 over size, first and last 64 KiB; `etag` changes when the file does."""

    input_id: str
    uri: str
    size: int
    etag: str

    @property
    def name(self) -> str:
        return self.uri.rstrip("/").rpartition("/")[2]


def expand(inputs: Sequence[str], *, base: str, files: int | None = None, settings: Input | None = None) -> list[str]:
    """The crawl files that `inputs` name, sorted and unique; with `files`, that many of them, chosen by hash.

    `base` is for lists' relative entries; `settings` says how patient to be with servers. Raises UsageError naming an
    input that is missing or holds no crawl file.
    """
    if not inputs:
        raise UsageError(
            "no input: name WARC or WET files, folders, globs, s3:// or https:// addresses or *.paths lists"
        )
    settings = settings or Input()
    found: set[str] = set()
    for text in inputs:
        found.update(_expand_one(text, base, settings))
    chosen = sorted(found)
    for uri in chosen:
        try:
            uri.encode()
        except UnicodeEncodeError:
            raise UsageError(
                f"input {uri}: its name is not UTF-8, so no dataset can hold it; rename the file"
            ) from None
    if files is not None and files < len(chosen):
        if files < 1:
            raise UsageError(f"--files {files}: ask for one file at least")
        chosen = sorted(sorted(chosen, key=lambda uri: (xxhash.xxh3_64_intdigest(uri.encode()), uri))[:files])
    return chosen


def mark(uri: str, settings: Input | None = None) -> tuple[int, str]:
    """Size and change mark (etag) of one file, without reading it. Raises UsageError when it cannot."""
    try:
        if not _is_remote(uri):
            return _local_mark(os.stat(uri))
        if is_remote_file(uri):
            with RemoteFile(uri, settings or Input(), span=1, planning=True) as file:
                return file.known.size, file.known.etag
        system, path = _filesystem(uri)
        info = system.info(path)
        size = info.get("size")
        if size is None:
            raise UsageError(f"input {uri}: the server does not say how long it is, so it cannot be read in parts")
        etag = info.get("ETag") or info.get("etag") or f"{size}-{info.get('LastModified') or info.get('mtime') or ''}"
        return int(size), tidy_etag(str(etag))
    except UsageError:
        raise
    except SourceError as error:
        raise UsageError(f"input {error}") from None
    except Exception as error:
        raise UsageError(f"input {uri}: cannot be read ({_reason(error)})") from None


def identify(uri: str, settings: Input | None = None) -> InputFile:
    """Size, identity and change mark of one file; reads its first and last 64 KiB. Raises UsageError when it cannot."""
    try:
        if is_remote_file(uri):
            with RemoteFile(uri, settings or Input(), span=_EDGE, planning=True) as remote:
                known = remote.known
                return InputFile(_identity(cast(BinaryIO, remote), known.size), uri, known.size, known.etag)
        size, etag = mark(uri)
        if not _is_remote(uri):
            with open(uri, "rb") as file:
                return InputFile(_identity(file, size), uri, size, etag)
        system, path = _filesystem(uri)
        first = system.cat_file(path, start=0, end=min(size, _EDGE)) if size else b""
        last = first if size <= _EDGE else system.cat_file(path, start=size - _EDGE, end=size)
        return InputFile(_digest(size, first, last), uri, size, etag)
    except UsageError:
        raise
    except SourceError as error:
        raise UsageError(f"input {error}") from None
    except Exception as error:
        raise UsageError(f"input {uri}: cannot be read ({_reason(error)})") from None


def open_at(uri: str, offset: int = 0, *, file: InputFile | None = None, settings: Input | None = None) -> BinaryIO:
    """A seekable binary stream that stands at `offset`. Connections are made anew, so it may be called after a fork.

    With `file`, another size or change mark than its is a SourceError, for remote files whenever they are read on.
    """
    if not _is_remote(uri):
        stream = cast(BinaryIO, open(uri, "rb", buffering=0))  # noqa: SIM115 - the caller closes it
        if file is not None:
            require_unchanged(uri, file)
    elif is_remote_file(uri):
        known = None if file is None else Known(file.size, file.etag)
        stream = cast(BinaryIO, RemoteFile(uri, settings or Input(), known))
    else:
        system, path = _filesystem(uri)
        stream = system.open(path, "rb", block_size=_REMOTE_BLOCK, cache_type="readahead")
    if offset:
        stream.seek(offset)
    return stream


def require_unchanged(uri: str, file: InputFile) -> None:
    """Raises SourceError when the local file `uri` is not as it was when it became `file`."""
    if not _is_remote(uri) and _local_mark(os.stat(uri)) != (file.size, file.etag):
        raise SourceError(f"{uri}: the file changed after it was first looked at; run again")


def group_identical(files: Iterable[InputFile], settings: Input | None = None) -> list[list[InputFile]]:
    """Inputs with the same bytes, together; each group's first has the smallest name. Groups are sorted by (id, name).

    Files that share an `input_id` are read whole and hashed; those that differ get ids of their own.
    """
    by_id: dict[str, list[InputFile]] = defaultdict(list)
    for file in files:
        by_id[file.input_id].append(file)
    groups: list[list[InputFile]] = []
    for input_id, members in by_id.items():
        if len(members) == 1 or members[0].size <= 2 * _EDGE:
            groups.append(members)
            continue
        by_hash: dict[str, list[InputFile]] = defaultdict(list)
        for member in members:
            by_hash[_full_hash(member, settings)].append(member)
        if len(by_hash) == 1:
            groups.append(members)
            continue
        for full, same in by_hash.items():
            own = xxhash.xxh3_128_hexdigest(f"{input_id} {full}".encode())
            groups.append([InputFile(own, f.uri, f.size, f.etag) for f in same])
    for group in groups:
        group.sort(key=lambda f: (f.name, f.uri))
    return sorted(groups, key=lambda group: (group[0].input_id, group[0].name, group[0].uri))


def _expand_one(text: str, base: str, settings: Input) -> list[str]:
    if _is_path_list(text):
        return _read_list(text, base, settings)
    if _is_remote(text):
        return _expand_remote(text, settings)
    text = text.removeprefix("file://")
    if os.path.isdir(text):
        found = list(_crawl_files(text))
        if not found:
            raise UsageError(f"input {text}: no crawl files in this folder (*.warc, *.warc.gz, *.wet.gz, *.arc.gz ...)")
        return [os.path.abspath(f) for f in found]
    if os.path.isfile(text):
        if os.path.getsize(text) == 0:
            raise UsageError(f"input {text}: the file is empty")
        return [os.path.abspath(text)]
    if glob.has_magic(text):
        found = []
        for path in glob.glob(text, recursive=True):
            found += _expand_one(path, base, settings) if not os.path.isdir(path) or _holds_crawl_files(path) else []
        if not found:
            raise UsageError(f"input {text}: nothing matches this pattern")
        return found
    if os.path.exists(text):
        raise UsageError(f"input {text}: neither a file nor a folder; what comes out of a pipe must be saved first")
    raise UsageError(f"input {text}: no such file or folder")


def is_crawl_file(name: str) -> bool:
    """Whether a file's name is that of a crawl file."""
    return name.lower().endswith(CRAWL_SUFFIXES)


def _holds_crawl_files(folder: str) -> bool:
    return next(_crawl_files(folder), None) is not None


def _crawl_files(root: str) -> Iterator[str]:
    """The crawl files in a folder and those below it; links are followed, and each folder is entered once."""

    def refuse(error: OSError) -> None:
        raise UsageError(f"input {root}: {error.filename} cannot be read ({error.strerror})")

    entered: set[tuple[int, int]] = set()
    for folder, folders, names in os.walk(root, followlinks=True, onerror=refuse):
        status = os.stat(folder)
        if (status.st_dev, status.st_ino) in entered:  # a link that leads back, or a second way to it
            folders.clear()
            continue
        entered.add((status.st_dev, status.st_ino))
        folders.sort()
        yield from (os.path.join(folder, name) for name in names if is_crawl_file(name))


def _expand_remote(uri: str, settings: Input) -> list[str]:
    if uri.startswith(("http://", "https://")):
        return [uri]  # identify() says whether it is there
    try:
        return patiently(uri, settings, lambda: _list_remote(uri))
    except SourceError as error:
        raise UsageError(f"input {error}") from None


def _list_remote(uri: str) -> list[str]:
    system, path = _filesystem(uri)
    scheme = uri.partition("://")[0]
    if glob.has_magic(path):
        found = [p for p in system.glob(path) if not p.endswith("/")]
        if not found:
            raise UsageError(f"input {uri}: nothing matches this pattern")
        return [f"{scheme}://{p}" for p in found]
    try:
        kind = system.info(path)["type"]  # isfile() and exists() take a server that is busy for one that holds nothing
    except FileNotFoundError:
        raise UsageError(f"input {uri}: no such object or prefix") from None
    if kind == "file" and not uri.endswith("/"):
        return [f"{scheme}://{path}"]
    found = [p for p in system.find(path) if is_crawl_file(p)]
    if not found:
        raise UsageError(f"input {uri}: no crawl files under this prefix (*.warc.gz, *.wet.gz ...)")
    return [f"{scheme}://{p}" for p in found]


def _is_path_list(text: str) -> bool:
    return text.endswith((".paths", ".paths.gz"))


def _read_list(text: str, base: str, settings: Input) -> list[str]:
    try:
        if is_remote_file(text):
            with RemoteFile(text, settings, planning=True) as remote:
                data = remote.read()
        elif _is_remote(text):
            system, path = _filesystem(text)
            data = system.cat_file(path)
        else:
            with open(text, "rb") as file:
                data = file.read()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        entries = [line.strip() for line in data.decode("utf-8-sig").split("\n")]
    except FileNotFoundError:
        raise UsageError(f"input {text}: no such list") from None
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise UsageError(f"input {text}: not a list of paths ({_reason(error)})") from None
    except SourceError as error:
        raise UsageError(f"input {error}") from None
    except Exception as error:
        raise UsageError(f"input {text}: cannot be read ({_reason(error)})") from None
    entries = [entry for entry in entries if entry and not entry.startswith("#")]
    if not entries:
        raise UsageError(f"input {text}: the list is empty")
    return [_resolve(entry, text, base) for entry in entries]


def _resolve(entry: str, origin: str, base: str) -> str:
    """An entry of the list `origin`: absolute, or of the list's host, bucket or folder, else of `base`."""
    if _is_remote(entry):
        return entry
    if _is_remote(origin):
        scheme, _, rest = origin.partition("://")
        return f"{scheme}://{rest.partition('/')[0]}/{entry.lstrip('/')}"
    if os.path.isabs(entry):
        return entry
    near = os.path.join(os.path.dirname(os.path.abspath(origin)), entry)
    if os.path.exists(near):
        return near
    whole = f"{base.rstrip('/')}/{entry}"
    return whole if _is_remote(whole) else os.path.abspath(whole)


def _is_remote(uri: str) -> bool:
    return "://" in uri and not uri.startswith("file://")


def _filesystem(uri: str) -> tuple[Any, str]:
    """A file system with connections of its own, in this process, and the path in it."""
    system, path = fsspec.core.url_to_fs(uri, skip_instance_cache=True, use_listings_cache=False)
    return system, path


def _local_mark(status: os.stat_result) -> tuple[int, str]:
    if not stat.S_ISREG(status.st_mode):  # to open a pipe would be to wait for ever
        raise OSError("a folder, not a file" if stat.S_ISDIR(status.st_mode) else "a pipe or device, not a file")
    return status.st_size, f"{status.st_size}-{status.st_mtime_ns}"


def _identity(file: BinaryIO, size: int) -> str:
    first = _exactly(file, min(size, _EDGE))
    if size <= _EDGE:
        return _digest(size, first, first)
    file.seek(size - _EDGE)
    return _digest(size, first, _exactly(file, _EDGE))


def _exactly(file: BinaryIO, size: int) -> bytes:
    """`size` bytes, fewer at the end of the file only: a remote file may give less at a time."""
    data = file.read(size)
    while len(data) < size and (more := file.read(size - len(data))):
        data += more
    return data


def _digest(size: int, first: bytes, last: bytes) -> str:
    hasher = xxhash.xxh3_128(size.to_bytes(8, "little"))
    hasher.update(first)
    hasher.update(last)
    return hasher.hexdigest()


def _full_hash(file: InputFile, settings: Input | None) -> str:
    hasher = xxhash.xxh3_128()
    with open_at(file.uri, file=file, settings=settings) as stream:
        while chunk := stream.read(_REMOTE_BLOCK):
            hasher.update(chunk)
    return hasher.hexdigest()


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__
