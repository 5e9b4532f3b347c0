"""The schema of every dataset that a run writes, and the taxonomy of (stage, reason).

Column lists follow shared/design.md; the README describes each column for users.
"""

from __future__ import annotations

import pyarrow as pa

from pipeline.signals import RULES, SIGNALS

SCHEMA_VERSION = 1

#: In pipeline order. A record's verdict is the first (stage, reason) that applies, or kept.
REASONS: dict[str, tuple[str, ...]] = {
    "read": ("damaged", "truncated", "bad_header", "length_mismatch", "too_large"),
    "fetch": ("http_status", "not_html", "empty_body", "revisit"),
    "decode": ("content_encoding", "undecodable"),
    "url": ("blocked_domain", "blocked_word"),
    "extract": ("no_text", "timeout", "crash", "memory", "too_deep"),
    "language": ("too_short_for_lang", "other_language", "low_score"),
    "quality": tuple(rule.name for rule in RULES),
    "decontaminate": (),  # the benchmarks' names, from the recipe
    "dedup": ("exact", "near"),
}
#: Any stage may also end a record with this reason: a fault of ours or of a library, never the document's wish.
ERROR = "error"
STAGES: tuple[str, ...] = tuple(REASONS)

INPUTS = pa.schema(
    [
        ("input_id", pa.string()),
        ("uri", pa.string()),
        ("size", pa.int64()),
        ("etag", pa.string()),
        ("status", pa.string()),  # ok | damaged | skipped | failed
        ("detail", pa.string()),
        ("records_by_type", pa.map_(pa.string(), pa.int64())),
        ("skipped_by_type", pa.map_(pa.string(), pa.int64())),
        (
            "gaps",
            pa.list_(pa.struct([("offset", pa.int64()), ("length", pa.int64()), ("cause", pa.string())])),
        ),
        ("bytes_covered", pa.int64()),
    ]
)

_SIGNAL_TYPES = {"int": pa.int64(), "float": pa.float64()}

#: `stage`, `reason`, `detail`: what ended the record before there was a text to judge, else null.
RECORDS = pa.schema(
    [
        ("record_id", pa.string()),
        ("input_id", pa.string()),
        ("ordinal", pa.int64()),
        ("url", pa.string()),
        ("host", pa.string()),
        ("warc_type", pa.string()),
        ("warc_record_id", pa.string()),
        ("warc_date", pa.string()),
        ("warc_file", pa.string()),
        ("warc_offset", pa.int64()),
        ("warc_length", pa.int64()),
        ("warc_truncated", pa.string()),
        ("crawl", pa.string()),
        ("http_status", pa.int32()),
        ("mime", pa.string()),
        ("charset", pa.string()),
        ("charset_source", pa.string()),
        ("html_bytes", pa.int64()),
        ("extractor", pa.string()),
        ("text_source", pa.string()),
        ("stage", pa.string()),
        ("reason", pa.string()),
        ("detail", pa.string()),
        ("title", pa.string()),
        ("text", pa.string()),
        ("edited", pa.string()),
        ("lang", pa.string()),
        ("lang_score", pa.float64()),
        *((s.name, _SIGNAL_TYPES[s.kind]) for s in SIGNALS),
        ("exact_hash", pa.string()),
        ("signature", pa.list_(pa.uint32())),
    ]
)

VERDICTS = pa.schema(
    [
        ("record_id", pa.string()),
        ("url", pa.string()),
        ("kept", pa.bool_()),
        ("stage", pa.string()),
        ("reason", pa.string()),
        ("failed_rules", pa.list_(pa.string())),
    ]
)

DUPLICATES = pa.schema(
    [
        ("record_id", pa.string()),
        ("kept_id", pa.string()),
        ("kept_run", pa.string()),
        ("similarity", pa.float64()),
        ("kind", pa.string()),
        ("cluster_size", pa.int64()),
    ]
)


#: `hashes`: sorted and unique; where all shingles of a text are one, the words of its 128-bit hash.
SHINGLES = pa.schema([("record_id", pa.string()), ("hashes", pa.list_(pa.uint32()))])


def shards_schema(*, n_tokens: bool, tokens: bool) -> pa.Schema:
    """Columns of `shards/`; the token columns exist where the recipe names a tokenizer or asks for ids."""
    fields = [
        ("record_id", pa.string()),
        ("url", pa.string()),
        ("host", pa.string()),
        ("date", pa.string()),
        ("crawl", pa.string()),
        ("lang", pa.string()),
        ("lang_score", pa.float64()),
        ("text", pa.string()),
        ("n_chars", pa.int64()),
        ("n_words", pa.int64()),
        ("length_bucket", pa.int8()),
        ("quality_score", pa.float64()),
        ("cluster_size", pa.int64()),
        ("warc_file", pa.string()),
        ("warc_offset", pa.int64()),
    ]
    if n_tokens:
        fields.append(("n_tokens", pa.int64()))
    if tokens:
        fields.append(("tokens", pa.list_(pa.uint32())))
    return pa.schema(fields)
