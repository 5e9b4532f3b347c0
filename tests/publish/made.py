"""A run's committed datasets, made by hand: what a test of publishing or of the accounts starts from."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import xxhash

from pipeline.datasets import DUPLICATES, INPUTS, RECORDS, VERDICTS, shards_schema
from pipeline.publish.manifest import ShardsManifest, Totals, commit_shards
from pipeline.publish.shards import ShardWriter
from pipeline.storage import Part, PartWriter, Storage
from pipeline.text import count_words

LANGUAGES = ("en", "de", "th", None)


def record_id(number: int) -> str:
    return xxhash.xxh3_128_hexdigest(str(number).encode())


def document(number: int) -> dict[str, Any]:
    """A row of records/: its text is a function of the number; every tenth holds an address to mask."""
    rng = random.Random(number)
    words = "".join(
        rng.choice(("stone ", "mill ", "Getreide ", "Korn\n", "ธัญพืช ", "naïve ")) for _ in range(rng.randint(5, 400))
    )
    text = words + (f"write to user{number}@mail.test.org or 8.8.{number % 256}.8" if number % 10 == 0 else "end.")
    edited = text.replace("stone ", "") if number % 3 == 0 else None
    return {
        "record_id": record_id(number),
        "input_id": f"{number % 4:032x}",
        "ordinal": number,
        "url": f"http://ex.test/{number}",
        "host": "ex.test",
        "warc_date": "2024-05-01T00:00:00Z",
        "warc_file": f"f{number % 4}.warc.gz",
        "warc_offset": number * 100,
        "crawl": "CC-TEST",
        "text": text,
        "edited": edited,
        "lang": LANGUAGES[number % 7 % 4],
        "lang_score": 0.9,
        "n_words": count_words(edited or text),
        "n_chars": len(edited or text),
        "quality_score": 0.5,
    }


def write(
    storage: Storage, dataset: str, schema: pa.Schema, files: Sequence[Sequence[dict[str, Any]]], **options: Any
) -> list[Part]:
    parts = []
    for index, rows in enumerate(files):
        with PartWriter(storage, dataset, f"part-{index:05d}", schema, **options) as writer:
            writer.write(rows)
            parts.append(writer.close())
    storage.commit(dataset, "test", parts)
    return parts


def records(
    storage: Storage, numbers: Sequence[int], files: int = 4, **options: Any
) -> tuple[list[Part], list[dict[str, Any]]]:
    """Writes records/ of `numbers`, dealt to `files` in order; returns its parts and the rows that `publish` takes."""
    dealt = [[document(n) for n in numbers[i::files]] for i in range(files)]
    parts = write(storage, "records", RECORDS, dealt, **options)
    kept = [
        {"record_id": row["record_id"], "lang": row["lang"], "part": part.path, "row": index, "cluster_size": 1}
        for part, rows in zip(parts, dealt, strict=True)
        for index, row in enumerate(rows)
    ]
    return parts, kept


KEPT_DDL = "record_id string, lang string, part string, row long, cluster_size long"


def balanced_run(storage: Storage) -> dict[str, list[list[dict[str, Any]]]]:
    """Rows per dataset and file of a small run that balances: 40 records of 4 inputs, 8 rejected, 4 duplicates."""
    files = [[document(n) for n in range(40) if n % 4 == i] for i in range(4)]
    gap = {"record_id": record_id(1000), "input_id": files[0][0]["input_id"], "ordinal": 99, "warc_type": None}
    files[0].append(gap | {"stage": "read", "reason": "damaged"})
    inputs = [
        {
            "input_id": rows[0]["input_id"],
            "uri": f"/crawl/f{index}.warc.gz",
            "size": 1000,
            "status": "damaged" if index == 0 else "ok",
            "records_by_type": {"response": 10},
            "skipped_by_type": {"request": 10},
            "gaps": [{"offset": 3, "length": 5, "cause": "x"}] if index == 0 else [],
            "bytes_covered": 1000,
        }
        for index, rows in enumerate(files)
    ]
    verdicts, duplicates = [], []
    for rows in files:
        judged = []
        for row in rows:
            number = row["ordinal"]
            verdict: dict[str, Any] = {"record_id": row["record_id"], "url": row.get("url"), "kept": True}
            if row.get("stage"):
                verdict |= {"kept": False, "stage": "read", "reason": "damaged"}
            elif number % 5 == 4:
                verdict |= {"kept": False, "stage": "quality", "reason": "gopher_short_doc"}
            elif number % 10 == 3:
                reason = "exact" if number % 20 == 3 else "near"
                verdict |= {"kept": False, "stage": "dedup", "reason": reason}
                duplicates.append(
                    {
                        "record_id": row["record_id"],
                        "kept_id": record_id(number - 1),
                        "kind": reason,
                        "similarity": 1.0,
                        "cluster_size": 2,
                    }
                )
            judged.append(verdict)
        verdicts.append(judged)
    return {"inputs": [inputs], "records": files, "verdicts": verdicts, "duplicates": [duplicates]}


SCHEMAS = {"inputs": INPUTS, "records": RECORDS, "verdicts": VERDICTS, "duplicates": DUPLICATES}


def write_run(storage: Storage, run: dict[str, list[list[dict[str, Any]]]], published: Sequence[str]) -> None:
    """Commits a run's datasets as they are given, and shards with the documents `published`."""
    for dataset, files in run.items():
        write(storage, dataset, SCHEMAS[dataset], files)
    schema = shards_schema(n_tokens=False, tokens=False)
    given = pa.schema([field for field in schema if field.name != "length_bucket"])
    rows = [{"record_id": i, "text": "x", "n_chars": 1, "n_words": 1, "lang": "en"} for i in published]
    with storage.scratch("shards") as target:
        writer = ShardWriter(target, schema, "en", 0, 1 << 20, None)
        writer.add(pa.RecordBatch.from_pylist(rows, given))
        file = writer.close(storage).file
    totals = Totals(rows=len(rows), text_bytes=len(rows), words=len(rows), tokens=None)
    named: dict[str, Any] = {"run_id": "r", "recipe_hash": "h", "length_unit": "words", "tokenizer": None}
    manifest = ShardsManifest(**named, totals=totals, tokenizer_sha256=None, eos_id=None, files=(file,))
    commit_shards(storage, manifest)
