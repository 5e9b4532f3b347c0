"""Where a document's time goes: `annotate` on real pages in this process, each step under a clock."""

from __future__ import annotations

import io
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline import annotate, recipe
from pipeline.crawl import warc
from pipeline.datasets import RECORDS

#: label, owner, name of the function there; called by `annotate` through that name
STEPS: tuple[tuple[str, Any, str], ...] = (
    ("decode", annotate, "decode"),
    ("url filter", annotate.urls, "blocked"),
    ("extract", annotate, "extract"),
    ("language", annotate.Identifier, "identify"),
    ("line edits", annotate, "edit"),
    ("signals", annotate, "signals"),
    ("shingles, exact hash", annotate.shingles, "shingle"),
    ("signature", annotate, "signature"),
)


def profile(pages: Path, count: int, engine: str, overrides: tuple[str, ...]) -> None:
    """Print milliseconds per document by step for `count` response records under `pages`, after as many unmeasured."""
    wanted = recipe.load("fineweb", [f"extract.engine={engine}", *overrides])
    tools = annotate.Tools(wanted)
    tools.warm()
    source = annotate.Source("0" * 32, "bench", None)
    spent: dict[str, float] = defaultdict(float)
    source_of_records = records(pages, wanted, spent)
    for record in islice(source_of_records, count):  # first uses: stop lists, the words' language cache, memory
        annotate.annotate(record, source, tools)
    pq.write_table(pa.Table.from_pylist([{}], RECORDS), io.BytesIO(), compression="zstd")
    spent.clear()
    with ExitStack() as clocks:
        for label, owner, name in STEPS:
            clocks.enter_context(patch.object(owner, name, timed(spent, label, getattr(owner, name))))
        tools.__dict__["scorer"] = timed(spent, "quality score", tools.scorer)
        begin = time.process_time()
        rows = []
        for record in islice(source_of_records, count):
            rows.append(annotate.annotate(record, source, tools))
        whole = time.process_time() - begin
    with clock(spent, "Arrow and Parquet"):
        pq.write_table(pa.Table.from_pylist(rows, RECORDS), io.BytesIO(), compression="zstd")
    whole += spent["Arrow and Parquet"]
    spent["the rest"] = whole - sum(spent.values())
    with_text = sum(row.get("text") is not None for row in rows)
    print(f"\n{engine}: {len(rows)} documents, {with_text} with a text; CPU milliseconds per document")
    for label, seconds in sorted(spent.items(), key=lambda item: -item[1]):
        print(f"  {label:22}{1000 * seconds / len(rows):8.3f}{seconds / whole:8.1%}")
    besides = whole - spent["extract"]
    print(f"  {'all':22}{1000 * whole / len(rows):8.3f}   all but extraction {1000 * besides / len(rows):.3f}")


def records(pages: Path, wanted: recipe.Recipe, spent: dict[str, float]) -> Iterator[warc.Record]:
    files = sorted(pages.glob("*.warc.gz"))
    items = chain.from_iterable(warc.read(path.open("rb"), limits=wanted.limits) for path in files)
    while True:
        with clock(spent, "read WARC, inflate"):
            item = next(items, None)
        if item is None:
            return
        if isinstance(item, warc.Record) and item.warc_type == "response":
            yield item


@contextmanager
def clock(spent: dict[str, float], label: str) -> Iterator[None]:
    begin = time.process_time()
    try:
        yield
    finally:
        spent[label] += time.process_time() - begin


def timed(spent: dict[str, float], label: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **named: Any) -> Any:
        with clock(spent, label):
            return function(*args, **named)

    return run
