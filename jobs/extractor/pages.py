"""Pages with what is known of their main text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from pipeline.crawl import warc
from pipeline.crawl.decode import decode
from pipeline.errors import Rejected, UsageError
from pipeline.extract.scan import Blocks, scan


@dataclass(frozen=True, slots=True)
class Page:
    url: str
    html: bytes  #: UTF-8
    gold: str | None = None  #: the main text, by hand
    source: str = ""  #: the collection that it is from
    lang: str = ""
    page_type: str = ""
    wanted: tuple[str, ...] = ()  #: snippets that the main text holds
    unwanted: tuple[str, ...] = ()  #: snippets of the page that it does not hold

    @property
    def blocks(self) -> Blocks:
        return scan(self.html)


@dataclass(frozen=True, slots=True)
class Collection:
    gold: list[Page]
    snippets: list[Page]  #: pages with `wanted` and `unwanted` instead of a main text
    missing: list[str]  #: addresses of gold rows without a page


def read(folder: Path) -> Collection:
    """The pages in `*.warc.gz` that `gold.parquet` (url, source, lang, page_type, text) or `segments.jsonl` (url, lang,
    with, without; may be absent) names, in the order of these two. Raises UsageError where there is nothing to learn.
    """
    try:
        rows = pq.read_table(folder / "gold.parquet").to_pylist()
        snippets = folder / "segments.jsonl"
        lines = [json.loads(line) for line in snippets.read_text("utf-8").splitlines()] if snippets.is_file() else []
        html = dict(_pages(folder, {row["url"] for row in rows} | {line["url"] for line in lines}))
        gold = [
            Page(r["url"], html[r["url"]], r["text"], r["source"], r["lang"] or "", r["page_type"] or "")
            for r in rows
            if r["url"] in html
        ]
        weak = [
            Page(line["url"], html[line["url"]], None, "snippets", line["lang"] or "", "",
                 tuple(line["with"]), tuple(line["without"]))
            for line in lines
            if line["url"] in html
        ]  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{folder}: no training pages ({type(error).__name__}: {error})") from None
    if not gold:
        raise UsageError(f"{folder}: none of the pages in gold.parquet is in a .warc.gz file there")
    return Collection(gold, weak, [row["url"] for row in rows if row["url"] not in html])


def inputs(folder: Path) -> list[Path]:
    """The files that `read` looks at, in order."""
    return [p for p in (folder / "gold.parquet", folder / "segments.jsonl", *sorted(folder.glob("*.warc.gz"))) if
            p.is_file()]  # fmt: skip


def _pages(folder: Path, wanted: set[str]) -> Iterator[tuple[str, bytes]]:
    seen: set[str] = set()
    for path in sorted(folder.glob("*.warc.gz")):
        with path.open("rb") as stream:
            for event in warc.read(stream):
                if not isinstance(event, warc.Record) or event.url not in wanted or event.url in seen:
                    continue
                try:
                    page = decode(event)
                except Rejected:
                    continue
                seen.add(event.url)
                yield event.url, page.html.encode()
