"""Which files a run reads, under which ids: byte-identical files are one input, known files are not read again."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pyarrow.parquet as pq

from pipeline.crawl import sources
from pipeline.crawl.sources import InputFile
from pipeline.errors import GristmillError, UsageError
from pipeline.recipe import Input
from pipeline.storage import Storage

_THREADS = 16


@dataclass(frozen=True, slots=True)
class PlannedInput:
    """One distinct input; `warc_file` is its base name, the smallest where several files are byte-identical."""

    input_id: str
    uri: str
    size: int
    etag: str
    warc_file: str

    @property
    def file(self) -> InputFile:
        """As it was when the run was planned."""
        return InputFile(self.input_id, self.uri, self.size, self.etag)


@dataclass
class Plan:
    inputs: list[PlannedInput]
    copies: dict[str, str] = field(default_factory=dict)  #: uri of a byte-identical copy -> uri that is read
    failed: dict[str, str] = field(default_factory=dict)  #: uri -> why it could not even be opened

    def failed_lines(self) -> list[str]:
        return [
            f"{uri}: {why}; everything else is done, run the same command again" for uri, why in self.failed.items()
        ]


def make_plan(storage: Storage, uris: Sequence[str], settings: Input) -> Plan:
    """Sizes and ids of the files `uris`. Raises UsageError where none can be read."""
    known = _known(storage)
    failed: dict[str, str] = {}
    found: list[InputFile] = []

    def identify(uri: str) -> InputFile | str:
        try:
            old = known.get(uri)
            if old is not None and (old.size, old.etag) == sources.mark(uri, settings):
                return old
            return sources.identify(uri, settings)
        except (OSError, GristmillError) as error:
            return (str(error) or type(error).__name__).removeprefix(f"input {uri}: ")

    with ThreadPoolExecutor(_THREADS) as pool:
        for uri, result in zip(uris, pool.map(identify, uris), strict=True):
            if isinstance(result, InputFile):
                found.append(result)
            else:
                failed[uri] = result
    if not found:
        uri, why = next(iter(failed.items()))
        raise UsageError(f"no input could be read; first: {uri}: {why}")
    planned, copies = [], {}
    for first, *others in sources.group_identical(found, settings):
        planned.append(PlannedInput(first.input_id, first.uri, first.size, first.etag, first.name))
        copies.update({other.uri: first.uri for other in others})
    planned.sort(key=lambda p: p.input_id)
    return Plan(planned, copies, failed)


def _known(storage: Storage) -> dict[str, InputFile]:
    """uri -> the file as the last commit knew it."""
    manifest = storage.read_manifest("inputs")
    known: dict[str, InputFile] = {}
    for part in manifest.parts if manifest else ():
        with storage.open_input(part.path) as stream:
            table = pq.read_table(stream, columns=["input_id", "uri", "size", "etag", "status"])
        for row in table.to_pylist():
            if row["status"] != "failed":
                known[row["uri"]] = InputFile(row["input_id"], row["uri"], row["size"], row["etag"])
    return known
