"""One crawl record through everything that is done to a single document, in order. The page to read first.

    record -> decode -> url filter -> extract -> language -> line edits -> signals -> shingles, signature

The result is one row of `records/`. Nothing is judged here: a row either holds a text and every measurement of it, or
the (stage, reason) that ended it before there was a text. Judging (cheap, any time) is pipeline/quality/judge.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

import xxhash

from pipeline import repeated_lines, shingles
from pipeline.crawl import urls
from pipeline.crawl.decode import Page, PageRejected, decode
from pipeline.crawl.warc import Gap, Record
from pipeline.dedup.signature import signature
from pipeline.errors import GristmillError, Rejected
from pipeline.extract import extract
from pipeline.extract.tidy import tidy
from pipeline.language import Identifier
from pipeline.memory import HUGE, give_back
from pipeline.quality import signals
from pipeline.quality.edits import edit
from pipeline.quality.score import load_scorer
from pipeline.recipe import Recipe
from pipeline.signals import SIGNALS

Row = dict[str, Any]


@dataclass(frozen=True)
class Source:
    """The input file that a record came from."""

    input_id: str
    warc_file: str
    crawl: str | None


class Tools:
    """What a process loads once for one recipe: word lists, models, compiled patterns."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe

    @cached_property
    def url_rules(self) -> urls.UrlRules:
        return urls.compile_rules(self.recipe.url)

    @cached_property
    def identifier(self) -> Identifier:
        return Identifier(self.recipe.language)

    @cached_property
    def scorer(self) -> Callable[[str, dict[str, Any]], float]:
        return load_scorer(self.recipe.quality)

    def load(self) -> None:
        """Load everything now, so that a missing file is said before anything is read."""
        _ = self.url_rules, self.identifier, self.scorer

    def warm(self) -> None:
        """Load everything and run every measurement once, so that nothing is compiled on a document's time."""
        self.load()
        text = "The quick brown fox jumps over the lazy dog, and then it has a rest with the other foxes.\n" * 8
        row = measure({"text": text}, self)
        if row.get("reason") == "error":
            raise GristmillError(f"measuring a plain text fails here: {row['detail']}")
        extract(f"<html><body><article><p>{text}</p></article></body></html>", None, self.recipe.extract)


def annotate(record: Record, source: Source, tools: Tools) -> Row:
    """The finished row of one record. Never raises for what the document holds; MemoryError passes through."""
    row = describe(record, source)
    try:
        _page_to_text(record, row, tools)
    except Rejected as rejected:
        row.update(stage=rejected.stage, reason=rejected.reason, detail=rejected.detail)
        return row
    return measure(row, tools)


def describe(record: Record, source: Source) -> Row:
    """The row of a record before its block is looked at: where it is and what its WARC header says."""
    return _place(record, source) | {
        "url": record.url,
        "host": _host(record.url),
        "warc_type": record.warc_type,
        "warc_record_id": record.warc_record_id,
        "warc_date": record.warc_date,
        "warc_truncated": record.truncated,
    }


def describe_gap(gap: Gap, source: Source) -> Row:
    """The row of a stretch of bytes that holds no readable record."""
    return _place(gap, source) | {"stage": "read", "reason": gap.reason, "detail": gap.cause}


def _place(event: Record | Gap, source: Source) -> Row:
    return {
        "record_id": record_id(source.input_id, event.ordinal),
        "input_id": source.input_id,
        "ordinal": event.ordinal,
        "warc_file": source.warc_file,
        "warc_offset": event.offset,
        "warc_length": event.length,
        "crawl": source.crawl,
    }


def measure(row: Row, tools: Tools, repeated: repeated_lines.Table = repeated_lines.NOTHING) -> Row:
    """Add to a row that holds `text` all that is measured on it.

    A function of (text, recipe) and, where the recipe asks, of which of its lines stand in `repeated`: nobody knows
    before all files are read, so rows that hold some are measured once more (pipeline/run/lines.py).
    """
    text: str = row["text"]
    recipe = tools.recipe
    stage = "language"
    try:
        row["lang"], row["lang_score"] = tools.identifier.identify(text)
        stage = "quality"
        ruled = edited = edit(text, recipe.edit)
        lines: Row = {"repeated_line_ratio": None, "repeated_line_chars": None}
        if recipe.edit.repeated_lines is not None:
            cut = repeated_lines.cut(ruled, repeated, row.get("record_id") or "", recipe.edit.repeated_lines)
            edited = cut.text
            lines = {"repeated_line_ratio": cut.ratio, "repeated_line_chars": cut.chars}
        row["edited"] = None if edited == text else edited
        measured = signals(text, edited, row["lang"], recipe.edit, ruled=ruled) | lines
        measured["quality_score"] = tools.scorer(edited, measured)
        row.update(measured)
        stage = "dedup"
        shingled = shingles.shingle(edited, recipe.dedup)
        row["exact_hash"] = shingled.exact_hash
        row["signature"] = signature(shingled.hashes, recipe.dedup)
    except Rejected as rejected:
        row.update(stage=rejected.stage, reason=rejected.reason, detail=rejected.detail)
    except MemoryError:
        raise
    except Exception as error:  # a fault of ours: this row says so, its neighbours go on
        row.update(stage=stage, reason="error", detail=f"{type(error).__name__}: {error}"[:500])
    return row


def clear_measured(row: Row) -> Row:
    """The row as it was before `measure`: what a changed recipe measures again."""
    signals = (s.name for s in SIGNALS if s.basis != "page")
    for name in ("lang", "lang_score", "edited", *signals, "exact_hash", "signature"):
        row[name] = None
    if row["text"] is not None:
        row.update(stage=None, reason=None, detail=None)
    return row


def record_id(input_id: str, ordinal: int) -> str:
    return xxhash.xxh3_128_hexdigest(f"{input_id}:{ordinal}".encode())


def warm() -> None:
    """Compile and load what the first document would otherwise wait for; called once per node by the preflight."""
    Tools(Recipe()).warm()


def _page_to_text(record: Record, row: Row, tools: Tools) -> None:
    recipe = tools.recipe
    stage = "decode"
    try:
        try:
            page = decode(record, recipe.limits)
        except PageRejected as rejected:
            row.update(_seen(rejected.page))
            raise
        row.update(_seen(page))
        stage = "url"
        hit = urls.blocked(record.url, tools.url_rules)
        if hit is not None:
            raise hit
        stage = "extract"
        if page.is_text:
            text = tidy(page.html)
            if not text:
                raise Rejected("extract", "no_text")
            row.update(extractor="none", title=None, text=text)
        else:
            extracted = extract(page.html, record.url, recipe.extract)
            if len(page.html) > HUGE:
                give_back()
            row.update(
                extractor=recipe.extract.engine,
                text_source=extracted.text_source,
                title=extracted.title,
                text=extracted.text,
                extract_confidence=extracted.confidence,
                visible_ratio=extracted.visible_ratio,
            )
    except (Rejected, MemoryError):
        raise
    except Exception as error:
        raise Rejected(stage, "error", f"{type(error).__name__}: {error}"[:500]) from error


def _seen(page: Page) -> Row:
    return {
        "http_status": page.http_status,
        "mime": page.mime,
        "charset": page.charset,
        "charset_source": page.charset_source,
        "html_bytes": page.html_bytes,
    }


def _host(url: str | None) -> str | None:
    if not url:
        return None
    try:
        return urlsplit(url).hostname
    except ValueError:  # an odd IPv6 literal, say
        return None
