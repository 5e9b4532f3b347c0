"""Made-up pages whose main text is known, in the layout of the real ones: WARC files and gold.parquet."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.extractor.pages import Page
from jobs.sampling import layout, warc
from jobs.sampling.writer import article

_LANGS = ("en", "de", "fr", "es", "pl", "ru", "zh", "ja")


def made(count: int, seed: int = 1) -> list[Page]:
    """Articles in the boilerplate of the sample's sites, each on a site of its own; sources a and b."""
    rng, pages = Random(seed), []
    for i in range(count):
        written = article(_LANGS[i % len(_LANGS)], rng)
        site = rng.choice(layout.sites(written.lang))
        html = layout.page(written, site, rng, charset="utf-8")
        titles = [written.title, *written.headings, ""]
        paragraphs = [written.text(n) for n in range(len(written.paragraphs))]
        gold = "\n".join([*titles, *paragraphs])
        if written.headings:
            rest = (line for pair in zip(written.headings, paragraphs[1:], strict=True) for line in pair)
            gold = "\n".join([written.title, paragraphs[0], *rest])
        url = f"https://{i}.{site.host.removesuffix('.example')}-{seed}-{i}.example/page"
        pages.append(Page(url, html.encode(), gold, "ab"[i % 2], written.lang, "article" if i % 3 else "forum"))
    return pages


def write(pages: list[Page], folder: Path, unmarked: Sequence[Page] = ()) -> None:
    """The pages in a crawl file, the texts of all but the unmarked ones beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    space = uuid.UUID(int=0)
    with (folder / "pages.warc.gz").open("wb") as sink:
        for number, page in enumerate([*pages, *unmarked]):
            for record in warc.records(warc.Capture("article", page.url, page.html), number, space):
                sink.write(record)
    rows = [{"url": p.url, "source": p.source, "lang": p.lang, "page_type": p.page_type, "text": p.gold} for p in pages]
    pq.write_table(pa.Table.from_pylist(rows), folder / "gold.parquet")
