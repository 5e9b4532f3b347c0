"""Rejected or kept rows as JSON lines, to standard output or a file."""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

from pipeline.errors import GristmillError, UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dir", metavar="DIR", help="a run's folder (may be s3://)")
    parser.add_argument("--reason", metavar="R", help="rejected for this reason, for example no_text or dedup/near")
    parser.add_argument("--stage", metavar="S", help="rejected at this stage")
    parser.add_argument("--kept", action="store_true", help="the published rows")
    parser.add_argument("--out", metavar="FILE", help="instead of standard output; .gz compresses")
    parser.add_argument("--limit", type=int, metavar="N", help="at most N rows")


def run(args: argparse.Namespace) -> int:
    from pipeline.report import exporting, reading

    if args.kept == bool(args.reason or args.stage):
        raise UsageError("name what to export: --reason R, --stage S or --kept")
    if args.limit is not None and args.limit < 0:
        raise UsageError(f"--limit {args.limit}: a number of rows, 0 or more")
    opened = reading.open_finished(args.dir)
    if args.kept:
        rows: Iterator[dict[str, Any]] = exporting.kept(opened)
    else:
        rows = exporting.rejected(opened, *exporting.check_names(opened, args.stage, args.reason))
    with _output(args.out) as file:
        written = _write(file, itertools.islice(rows, args.limit))
    if args.out:
        print(f"{written:,} rows in {args.out}", file=sys.stderr)
    return 0


def _write(file: BinaryIO, rows: Iterable[dict[str, Any]]) -> int:
    written = 0
    for row in rows:
        file.write(json.dumps(row, ensure_ascii=False, allow_nan=False).encode() + b"\n")
        written += 1
    return written


@contextmanager
def _output(path: str | None) -> Iterator[BinaryIO]:
    """A file that appears under its name only when it is whole; standard output without a name.

    What is there and no plain file (/dev/stdout, a pipe) is written to as it is: it must not be replaced by a file.
    """
    if path is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    target = Path(path)
    if not target.name or os.path.isdir(target):
        raise UsageError(f"--out {path}: a folder; name the file to write")
    straight = os.path.exists(target) and not os.path.isfile(target)
    temporary = target if straight else target.with_name(f".{target.name}.part")
    try:
        with open(temporary, "wb") as plain:
            if target.suffix == ".gz":
                # No name and no time inside: equal rows, equal bytes.
                with gzip.GzipFile(filename="", mode="wb", fileobj=plain, mtime=0) as packed:
                    yield cast(BinaryIO, packed)
            else:
                yield plain
        if not straight:
            os.replace(temporary, target)
    except OSError as error:
        raise GristmillError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        if not straight:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
