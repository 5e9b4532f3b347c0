"""Pages with what is known of their main text."""

from __future__ import annotations

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

    @property
    def blocks(self) -> Blocks:
        return scan(self.html)


@dataclass(frozen=True, slots=True)
class Collection:
    gold: list[Page]
    unmarked: list[Page]  #: the others in the crawl files
    missing: list[str]  #: addresses of gold rows without a page


def read(folder: Path) -> Collection:
    """The pages in `*.warc.gz`: those that `gold.parquet` (url, source, lang, page_type, text) names, in its order, and
    the others.

    Raises UsageError where there is nothing to learn.
    """
    try:
        rows = pq.read_table(folder / "gold.parquet").to_pylist()
        html = dict(_pages(folder))
        gold = [
            Page(r["url"], html[r["url"]], r["text"], r["source"], r["lang"] or "", r["page_type"] or "")
            for r in rows
            if r["url"] in html
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{folder}: no training pages ({type(error).__name__}: {error})") from None
    if not gold:
        raise UsageError(f"{folder}: none of the pages in gold.parquet is in a .warc.gz file there")
    marked = {row["url"] for row in rows}
    unmarked = [Page(url, page) for url, page in html.items() if url not in marked]
    return Collection(gold, unmarked, [row["url"] for row in rows if row["url"] not in html])


def inputs(folder: Path) -> list[Path]:
    """The files that `read` looks at, in order."""
    return [folder / "gold.parquet", *sorted(folder.glob("*.warc.gz"))]


def _pages(folder: Path) -> Iterator[tuple[str, bytes]]:
    seen: set[str] = set()
    for path in sorted(folder.glob("*.warc.gz")):
        with path.open("rb") as stream:
            for event in warc.read(stream):
                if not isinstance(event, warc.Record) or not event.url or event.url in seen:
                    continue
                try:
                    page = decode(event)
                except Rejected:
                    continue
                seen.add(event.url)
                yield event.url, page.html.encode()
