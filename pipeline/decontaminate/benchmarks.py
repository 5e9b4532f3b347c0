"""Benchmark files to entries: JSON lines, CSV or Parquet, the text ones plain or gzipped; whatever is odd is said."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.decontaminate.ngrams import split
from pipeline.errors import UsageError
from pipeline.recipe import Benchmark, Decontaminate, nearest

KINDS = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")
_TEXT_KINDS = KINDS[:-1]
_CSV_FIELD_LIMIT = 1 << 30


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of a benchmark file, which is called by its label. `number` counts from 0; `texts`: one per field of the
    recipe, empty for null.
    """

    file: str
    number: int
    texts: tuple[str, ...]


def check(settings: Decontaminate) -> None:
    """Every benchmark can be read and can match. Raises UsageError, in one line, for the first that cannot."""
    for name, benchmark in settings.benchmarks.items():
        found = 0
        able = False
        for _, entries in read(name, benchmark):
            for entry in entries:
                found += 1
                able = able or any(len(split(text)) >= settings.ngram for text in entry.texts)
        if not found:
            raise UsageError(f"benchmark {name}: no entries in {', '.join(benchmark.path)}")
        if not able:
            raise UsageError(
                f"benchmark {name}: none of its {found:,} entries has {settings.ngram} words, so nothing would match; "
                "are decontaminate.ngram and the fields right?"
            )


def read(name: str, benchmark: Benchmark) -> Iterator[tuple[str, Iterator[Entry]]]:
    """(sha256 of the file, its entries) per file of a benchmark, in the recipe's order."""
    for path, label in zip(benchmark.path, benchmark.labels, strict=True):
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            raise UsageError(f"benchmark {name}: {path} cannot be read ({error.strerror or error})") from None
        yield hashlib.sha256(data).hexdigest(), _entries(name, path, label, data, benchmark.fields)


def _entries(name: str, path: str, label: str, data: bytes, fields: Sequence[str]) -> Iterator[Entry]:
    try:
        for number, (where, row) in enumerate(_rows(path, data, fields)):
            yield Entry(label, number, tuple(_text(row, field, where) for field in fields))
    except RecursionError:
        raise UsageError(f"benchmark {name}: {path}: lists too deep to read; take a flatter field") from None
    except _OddError as odd:
        raise UsageError(f"benchmark {name}: {path}: {odd}") from None


class _OddError(Exception):
    """What is wrong with a file, in words."""


def _rows(path: str, data: bytes, fields: Sequence[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(where it stands, for people; the row) of each row."""
    lower = path.lower()
    kind = Path(lower.removesuffix(".gz")).suffix
    if kind not in KINDS or (lower.endswith(".gz") and kind not in _TEXT_KINDS):
        raise _OddError(f"a benchmark's name ends in {', '.join(KINDS)}, the text ones also with .gz")
    if kind == ".parquet":
        return _parquet(data, fields)
    source: Any = io.BytesIO(data)
    if lower.endswith(".gz"):
        source = gzip.GzipFile(fileobj=source)
    text = io.TextIOWrapper(source, "utf-8-sig", newline="")
    return _readable(_csv(text, "\t" if kind == ".tsv" else ",") if "sv" in kind else _json_lines(text))


def _readable(rows: Iterator[tuple[str, Mapping[str, Any]]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        yield from rows
    except UnicodeDecodeError as error:
        raise _OddError(f"not UTF-8 ({error.reason})") from None
    except (OSError, EOFError, zlib.error) as error:  # gzip's own
        raise _OddError(f"cannot be decompressed ({error})") from None


def _json_lines(text: io.TextIOWrapper) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, line in enumerate(text, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise _OddError(f"line {number} is not JSON ({error})") from None
        if not isinstance(row, dict):
            raise _OddError(f"line {number} holds no object: one {{…}} a line is read")
        yield f"line {number}", row


def _csv(text: io.TextIOWrapper, delimiter: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    csv.field_size_limit(_CSV_FIELD_LIMIT)
    reader = csv.DictReader(text, delimiter=delimiter, strict=True)
    try:
        _once(reader.fieldnames or ())
        for row in reader:
            where = f"line {reader.line_num}"
            if None in row or None in row.values():
                raise _OddError(f"{where}: another number of columns than the first line, which names them")
            yield where, row
    except csv.Error as error:
        raise _OddError(f"line {reader.line_num}: {error}") from None


def _parquet(data: bytes, fields: Sequence[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        file = pq.ParquetFile(io.BytesIO(data), page_checksum_verification=True)
        names = file.schema_arrow.names
        _once(names)
        columns = [name for name in names if any(f == name or f.startswith(f"{name}.") for f in fields)]
        for field in fields:
            if not any(field == name or field.startswith(f"{name}.") for name in columns):
                raise _unknown(field, names)
        number = 0
        for batch in file.iter_batches(batch_size=4096, columns=columns):
            for row in batch.to_pylist():
                yield f"row {number}", row
                number += 1
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _OddError(f"not a sound Parquet file ({' '.join(str(error).split())})") from None


def _once(names: Sequence[str]) -> None:
    """Of two columns of one name only one would be read, and nobody told."""
    if twice := next((name for i, name in enumerate(names) if name and name in names[:i]), None):
        raise _OddError(f"column {twice!r} stands there twice; name them apart")


def _unknown(field: str, known: Sequence[str]) -> _OddError:
    return _OddError(f"no field {field!r}" + (nearest(field, known) or f" (fields: {', '.join(known)})"))


def _text(row: Mapping[str, Any], field: str, where: str) -> str:
    """The value as text: lists item by item, a line each, as a page would show them."""
    if field not in row:
        head, dot, rest = field.partition(".")
        if not dot or head not in row:
            raise _OddError(f"{where}: {_unknown(field, list(row))}")
        values = row[head] if isinstance(row[head], list) else [row[head]]
        return "\n".join(_text(value, rest, where) for value in values if isinstance(value, Mapping))
    value = row[field]
    if isinstance(value, Mapping):
        inside = ", ".join(f"{field}.{name}" for name in value)
        raise _OddError(f"{where}: {field} is a table; name what is in it: {inside}")
    if isinstance(value, list):
        return "\n".join(_text({field: item}, field, where) for item in value)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise _OddError(f"{where}: {field} is not UTF-8 ({error.reason})") from None
    return "" if value is None else str(value)
