"""Curated runs made by hand: shards with the publisher's own writer, a manifest of its form, texts known in advance."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.datasets import shards_schema
from pipeline.publish.lengths import length_buckets
from pipeline.publish.manifest import RowGroup, ShardFile, ShardsManifest, Totals
from pipeline.publish.shards import _hashes
from pipeline.storage import file_options

Document = str | tuple[str, list[int]]


def run(
    folder: Path,
    files: Sequence[Sequence[Sequence[Any]]],
    *,
    lang: Sequence[str] = ("en",),
    tokens: bool = False,
    name: str = "r",
    eos_id: int | None = None,
    tokenizer_sha256: str | None = None,
) -> Path:
    """Writes `files` as a run: per file its row groups, per row group its documents (texts, or with `tokens` ids).

    File number i is of language `lang[i % len(lang)]`.
    """
    shards = folder / "shards"
    shards.mkdir(parents=True)
    schema = shards_schema(n_tokens=tokens, tokens=tokens)
    entries = []
    serial = 0
    for number, groups in enumerate(files):
        language = lang[number % len(lang)]
        path = shards / "part.parquet"
        described: list[RowGroup] = []
        with pq.ParquetWriter(str(path), schema, **file_options(schema)) as writer:
            for documents in groups:
                rows = [row(serial + i, document, language, tokens) for i, document in enumerate(documents)]
                serial += len(rows)
                table = pa.Table.from_pylist(rows, schema)
                writer.write_table(table, row_group_size=max(1, len(rows)))
                described.append(
                    RowGroup(
                        rows=len(rows),
                        text_bytes=sum(len(r["text"].encode()) for r in rows),
                        n_chars=sum(r["n_chars"] for r in rows),
                        n_tokens=sum(r["n_tokens"] for r in rows) if tokens else None,
                    )
                )
        sha256, footer_sha256 = _hashes(path)
        final = f"{language}-{number:05d}-{sha256[:16]}.parquet"
        path.rename(shards / final)
        entries.append(
            ShardFile(
                path=final,
                lang=language,
                rows=sum(group.rows for group in described),
                file_bytes=(shards / final).stat().st_size,
                text_bytes=sum(group.text_bytes for group in described),
                sha256=sha256,
                footer_sha256=footer_sha256,
                row_groups=tuple(described),
                length_buckets={},
            )
        )
    all_tokens = sum(g.n_tokens or 0 for e in entries for g in e.row_groups) if tokens else None
    manifest = ShardsManifest(
        run_id=name,
        recipe_hash="h",
        length_unit="tokens" if tokens else "words",
        tokenizer="made" if tokens else None,
        totals=Totals(
            rows=sum(e.rows for e in entries), text_bytes=sum(e.text_bytes for e in entries), words=0, tokens=all_tokens
        ),
        tokenizer_sha256=(tokenizer_sha256 or "made") if tokens else None,
        eos_id=(0 if eos_id is None else eos_id) if tokens else None,
        files=tuple(sorted(entries, key=lambda e: (e.lang, e.path))),
    )
    (shards / "manifest.json").write_text(json.dumps(manifest.model_dump(mode="json")))
    return folder


def row(serial: int, document: Any, language: str, tokens: bool) -> dict[str, Any]:
    text = "x" * len(document) if tokens else document
    made: dict[str, Any] = {"record_id": f"{serial:032x}", "url": f"http://made.test/{serial}", "host": "made.test"}
    made |= {"lang": language, "text": text, "n_chars": len(text), "n_words": 1, "cluster_size": 1}
    length = len(document) if tokens else 1
    import numpy as np

    made["length_bucket"] = int(length_buckets(np.array([length]))[0])
    if tokens:
        made |= {"n_tokens": len(document), "tokens": document}
    return made


def numbered(lengths: Sequence[int], group: int, groups_per_file: int) -> list[list[list[list[int]]]]:
    """Stored tokens that tell themselves apart: token j of document i is 1 + i * 16384 + j. Dealt in order."""
    documents = [[1 + i * 16384 + j for j in range(length)] for i, length in enumerate(lengths)]
    groups = [documents[i : i + group] for i in range(0, len(documents), group)]
    return [groups[i : i + groups_per_file] for i in range(0, len(groups), groups_per_file)] or [[]]
