"""Every file of a folder through `gristmill curate`, and a table of what was found beside fastwarc's own count.

    python -m tests.bench.odd_files FOLDER

Files are given by hand, so that those which are no archives are read too. Bars: exit 0, accounts balance (the command
checks them), no file failed, and where the counts differ the table says which records or gaps make the difference.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fastwarc.warc import ArchiveIterator, WarcRecordType

from jobs.cli import main as gristmill
from tests.run.runs import rows

TYPES = WarcRecordType.response | WarcRecordType.resource | WarcRecordType.revisit | WarcRecordType.conversion


def fastwarc_count(path: Path) -> tuple[int, str]:
    """Records that could hold a page, and how the iterator ended when not at the end of the file."""
    count = 0
    try:
        for record in ArchiveIterator(str(path), record_types=TYPES, parse_http=False):
            record.reader.read()
            count += 1
    except Exception as error:
        return count, f"fastwarc: {type(error).__name__}: {' '.join(str(error).split())[:60]}"
    return count, ""


def explain(found: list[dict[str, Any]], gaps: list[dict[str, Any]]) -> Iterator[str]:
    unsound = Counter(
        f"{row['reason']} ({row['detail']})" if row["detail"] else str(row["reason"])
        for row in found
        if row["stage"] == "read" and row["warc_type"]
    )
    yield from (f"{count} × {what}" for what, count in sorted(unsound.items()))
    for cause, count in sorted(Counter(gap["cause"] for gap in gaps).items()):
        first = min(gap["offset"] for gap in gaps if gap["cause"] == cause)
        yield f"{count} gap: {cause} at {first}"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args(argv).folder.resolve()
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    given = [path for path in paths if not path.name.endswith((".paths", ".paths.gz"))]
    with tempfile.TemporaryDirectory() as name:
        out = Path(name) / "run"
        begin = time.monotonic()
        inputs = [word for path in given if path.stat().st_size for word in [str(path)]]
        status = gristmill(["curate", *inputs, "--out", str(out), "--recipe", "minimal"])
        seconds = time.monotonic() - begin
        books = {row["uri"]: row for row in rows(out, "inputs")}
        found: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in rows(out, "records", ["input_id", "warc_type", "stage", "reason", "detail"]):
            found[row["input_id"]].append(row)
    print(f"| {'file':60} | status  | records | fastwarc | what differs or is damaged |\n|{'-' * 62}|---|---|---|---|")
    unexplained = 0
    states: Counter[str] = Counter()
    for path in paths:
        theirs, ended = fastwarc_count(path)
        book = books.get(str(path))
        if book is None:
            why = (
                "a list of paths, not given" if path not in given else "empty" if not path.stat().st_size else "a copy"
            )
            states[why] += 1
            print(f"| {_short(path, folder):60} | {'–':7} | {'–':>7} | {theirs:8} | {why} |")
            continue
        ours = sum(dict(book["records_by_type"] or {}).values())
        why = "; ".join(filter(None, [book["detail"], *explain(found[book["input_id"]], book["gaps"] or []), ended]))
        unexplained += ours != theirs and not why
        states[book["status"]] += 1
        print(f"| {_short(path, folder):60} | {book['status']:7} | {ours:7} | {theirs:8} | {why[:200]} |")
    print(f"\n{len(paths)} files: {dict(states)}; exit {status}, {seconds:.0f} s; {unexplained} unexplained")
    return int(bool(status or unexplained or states["failed"]))


def _short(path: Path, folder: Path) -> str:
    text = os.path.relpath(path, folder)
    return text if len(text) <= 60 else "…" + text[-59:]


if __name__ == "__main__":
    sys.exit(main())
