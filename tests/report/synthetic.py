"""A finished run made of numbers: the datasets that `curate` writes, with verdicts worked out here by hand.

It shares no code with what reads it but the storage layer and the schemas, so that it can serve as an oracle.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from pipeline import datasets
from pipeline.recipe import Recipe
from pipeline.signals import RULES_BY_NAME, SIGNALS
from pipeline.storage import PartWriter, Storage

Row = dict[str, Any]

RECIPE = {
    "name": "synthetic",
    "language": {"allowed": ["de", "en", "ja"], "min_score": 0.6},
    "quality": {
        "rules": {
            "gopher_short_doc": {"min": 50},
            "gopher_long_doc": {"max": 100_000},
            "gopher_enough_stop_words": {"min": 2},
            "gopher_rep_dup_line_frac": {"max": 0.3},
            "gopher_rep_top_2_gram_char_frac": {"max": 0.2},
            "c4_sentences": {"min": 3},
            "fineweb_line_punct_ratio": {"min": 0.12},
            "fineweb_short_line_ratio": {"max": 0.67},
        }
    },
}

#: Titles, addresses and texts that try to become markup, script, links or terminal commands.
HOSTILE = (
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "javascript:alert(1)",
    "<!-- --><svg onload=alert(1)>",
    "</title></style><b>bold</b>",
    "\x1b[31mred\x1b[0m \x07 \u202egnp.exe",
    "&lt;script&gt;&#x3c;script&#x3e; ]]> {{7*7}} ${7*7}",
)


@dataclass
class Truth:
    """What was written: record rows, their verdicts, duplicates; `run` is run.json."""

    records: list[Row]
    verdicts: list[Row]
    duplicates: list[Row]
    run: Row = field(default_factory=dict)

    def of(self, record_id: str) -> tuple[Row, Row]:
        index = next(i for i, row in enumerate(self.records) if row["record_id"] == record_id)
        return self.records[index], self.verdicts[index]


def write_run(
    folder: Path,
    *,
    rows: int = 600,
    seed: int = 7,
    parts: int = 3,
    hostile: bool = False,
    rules: dict[str, Any] | None = None,
    duplicates: bool = True,
    wiped_host: str | None = None,
    only_early: bool = False,
    tokens: bool = False,
    same_url: int = 0,
) -> Truth:
    """Write a run of `rows` records into `folder`; the same arguments give the same rows.

    `rules` replaces the recipe's; `wiped_host` loses all but one of its documents in dedup; `only_early`: no record
    comes to have a text; `tokens`: shards hold `n_tokens`, two for each word; the first `same_url` records
    share one address.
    """
    recipe = Recipe.model_validate(RECIPE if rules is None else {**RECIPE, "quality": {"rules": rules}})
    dice = random.Random(seed)
    records = [_record(dice, i, hostile, 1.0 if only_early else 0.12) for i in range(rows)]
    for record in records[:same_url]:
        record["url"] = records[0]["url"]
    truth = Truth(records, [judge(row, recipe) for row in records], [])
    if wiped_host:
        _wipe(truth, wiped_host)
    if duplicates:
        _deduplicate(truth, dice)
    storage = Storage(str(folder))
    _write(storage, "inputs", datasets.INPUTS, [_inputs(records)])
    size = -(-rows // parts)
    split = [slice(i * size, (i + 1) * size) for i in range(parts)]
    _write(storage, "records", datasets.RECORDS, [truth.records[s] for s in split])
    _write(storage, "verdicts", datasets.VERDICTS, [truth.verdicts[s] for s in split])
    _write(storage, "duplicates", datasets.DUPLICATES, [truth.duplicates])
    manifest = _shards(storage, truth, tokens)
    rejected: dict[str, dict[str, int]] = {}
    for verdict in truth.verdicts:
        if not verdict["kept"]:
            stage = rejected.setdefault(verdict["stage"], {})
            stage[verdict["reason"]] = stage.get(verdict["reason"], 0) + 1
    truth.run = {
        "schema_version": datasets.SCHEMA_VERSION,
        "run_id": "5eed" * 4,
        "status": "finished",
        "started": "2026-01-02T03:04:05+00:00",
        "finished": "2026-01-02T03:14:05+00:00",
        "recipe": recipe.model_dump(mode="json"),
        "recipe_hash": recipe.digest(),
        "inputs_given": ["s3://bucket/segment-*.warc.gz"],
        "copies": {"s3://bucket/copy-of-0.warc.gz": "s3://bucket/segment-0.warc.gz"},
        "failed": {"s3://bucket/gone.warc.gz": "no such file"},
        "counts": {"records": rows, "kept": sum(v["kept"] for v in truth.verdicts), "rejected": rejected},
        "versions": {"pyarrow": "26.0.1", "resiliparse": "2.0.1"},
        "timings": {"records": 431.2, "duplicates": 20.5, "verdicts": 3.25, "shards": 12.0},
        "dedup": {
            "entered": sum(v["kept"] or v["stage"] == "dedup" for v in truth.verdicts),
            "candidates": 4000,
            "verified": 900,
            "uncompared": 0,
            "similarities": {
                "edges": [i / 100 for i in range(102)],
                "counts": [0] * 50 + [3 * i for i in range(40)] + [40, 30, 20, 10, 5, 10, 20, 60, 90, 70, 4],
            },
        },
    }
    storage.put_json("shards/manifest.json", manifest)
    storage.put_json("run.json", truth.run)
    return truth


def _record(dice: random.Random, index: int, hostile: bool, early_share: float) -> Row:
    host = f"{dice.choice(['www', 'news', 'shop'])}.site{int(dice.paretovariate(1.1)) % 40}.example"
    row: Row = {
        "record_id": xxhash.xxh3_128_hexdigest(f"record {index}".encode()),
        "input_id": f"{index % 3:032x}",
        "ordinal": index,
        "url": f"https://{host}/page/{index}?q={dice.randrange(9)}",
        "host": host,
        "warc_type": "response",
        "warc_record_id": f"<urn:uuid:{index:08d}>",
        "warc_date": f"2026-01-{1 + index % 28:02d}T00:00:00Z",
        "warc_file": f"segment-{index % 3}.warc.gz",
        "warc_offset": index * 10_000,
        "warc_length": 9_000,
        "http_status": 200,
        "mime": dice.choice(["text/html"] * 9 + ["application/xhtml+xml"]),
        "charset": dice.choice(["utf-8"] * 8 + ["windows-1252", "shift_jis"]),
        "charset_source": dice.choice(["http", "meta", "bom", "detected"]),
        "html_bytes": dice.randrange(2_000, 200_000),
        "extractor": "resiliparse",
        "title": f"Page {index}",
    }
    early = dice.random()
    if early < early_share:
        row["stage"], row["reason"] = dice.choice(
            [("read", "truncated"), ("fetch", "http_status"), ("fetch", "not_html"), ("decode", "undecodable"),
             ("extract", "no_text"), ("extract", "timeout")]
        )  # fmt: skip
        row["detail"] = "synthetic"
    else:
        _measure(dice, row)
    if hostile:
        evil = HOSTILE[index % len(HOSTILE)]
        row["title"] = evil
        row["url"] = evil if index % 2 else f"https://{host}/{evil}"
        row["host"] = evil if index % 5 == 0 else host
        row["mime"] = evil if index % 7 == 0 else row["mime"]
        if row.get("text"):
            row["text"] = f"{evil}\n{row['text']}"
            row["edited"] = evil
        row["detail"] = evil
    return row


def _measure(dice: random.Random, row: Row) -> None:
    language = dice.choices(["en", "de", "ja", "fr", "und"], [60, 20, 6, 10, 4])[0]
    words = max(1, int(dice.lognormvariate(5.6, 1.2)))
    text = "\n".join(
        " ".join(dice.choice(_WORDS) for _ in range(min(12, words - done))).capitalize() + "."
        for done in range(0, words, 12)
    )
    signals: dict[str, float | int | None] = {}
    others = random.Random(row["ordinal"])  # apart, so that a new signal changes no verdict here
    for signal in SIGNALS:
        signals[signal.name] = others.randrange(40) if signal.kind == "int" else round(others.random(), 6)
    no_list = language in ("ja", "und")
    signals |= {
        "n_chars": len(text),
        "n_words": words,
        "n_letters": 5 if language == "und" else 4 * words + 20,
        "gopher_words": words,
        "gopher_stop_words": None if no_list else dice.choices([0, 1, 3, 6], [2, 3, 30, 65])[0],
        "gopher_rep_dup_line_frac": round(dice.betavariate(1.5, 6), 6),
        "gopher_rep_top_2_gram_char_frac": round(dice.betavariate(1.5, 6), 6),
        "c4_sentences": max(1, words // 12),
        "fineweb_line_punct_ratio": round(dice.betavariate(5, 2), 6),
        "fineweb_short_line_ratio": round(dice.betavariate(2, 5), 6),
        "quality_score": round(dice.betavariate(4, 2), 6),
    }
    score = None if language == "und" else min(1.0, round(dice.betavariate(9, 1.5), 6))
    text_hash = xxhash.xxh3_128_hexdigest(str(row["ordinal"]).encode())
    row.update(signals, text=text, lang=language, lang_score=score, signature=[1, 2, 3], exact_hash=text_hash)


_WORDS = [
    "river",
    "stone",
    "light",
    "engine",
    "garden",
    "copper",
    "window",
    "silver",
    "market",
    "winter",
    "bridge",
    "forest",
    "paper",
    "signal",
    "harbor",
]


def judge(row: Row, recipe: Recipe) -> Row:
    verdict: Row = {"record_id": row["record_id"], "url": row["url"], "kept": False, "failed_rules": []}
    if row.get("stage"):
        return {**verdict, "stage": row["stage"], "reason": row["reason"]}
    failed = []
    if row["lang"] == "und":
        failed.append("too_short_for_lang")
    else:
        if row["lang"] not in recipe.language.allowed:
            failed.append("other_language")
        if row["lang_score"] <= recipe.language.min_score:
            failed.append("low_score")
    first = "language" if failed else "quality"
    for name, bounds in recipe.quality.rules.items():
        value = row[RULES_BY_NAME[name].signal]
        if value is None:
            continue
        if (bounds.min is not None and value < bounds.min) or (bounds.max is not None and value > bounds.max):
            failed.append(name)
    if failed:
        return {**verdict, "stage": first, "reason": failed[0], "failed_rules": failed}
    return {**verdict, "kept": True, "stage": None, "reason": None}


def _wipe(truth: Truth, host: str) -> None:
    pairs = zip(truth.records, truth.verdicts, strict=True)
    _remove(truth, [v for r, v in pairs if v["kept"] and r["host"] == host], lambda: 1.0)


def _remove(truth: Truth, cluster: list[Row], similarity: Callable[[], float]) -> None:
    """All but the first of `cluster` go as its duplicates."""
    for verdict in cluster[1:]:
        alike = similarity()
        kind = "exact" if alike == 1 else "near"
        verdict.update(kept=False, stage="dedup", reason=kind)
        truth.duplicates.append(
            {
                "record_id": verdict["record_id"],
                "kept_id": cluster[0]["record_id"],
                "kept_run": None,
                "similarity": alike,
                "kind": kind,
                "cluster_size": len(cluster),
            }
        )


def _deduplicate(truth: Truth, dice: random.Random) -> None:
    """About a fifth of the judged-in records go, in clusters of 2 to 9 behind the first of each."""
    standing = {row["kept_id"] for row in truth.duplicates}
    pool = [v for v in truth.verdicts if v["kept"] and v["record_id"] not in standing]
    dice.shuffle(pool)
    leave = 0.7 * len(pool)
    while len(pool) > max(leave, 10):
        cluster = [pool.pop() for _ in range(dice.choice([2, 2, 2, 3, 4, 9]))]
        _remove(truth, cluster, lambda: 1.0 if dice.random() < 0.4 else round(dice.uniform(0.8, 0.999), 4))


def _inputs(records: list[Row]) -> list[Row]:
    rows = []
    for number in range(3):
        mine = [r for r in records if r["ordinal"] % 3 == number]
        rows.append(
            {
                "input_id": f"{number:032x}",
                "uri": f"s3://bucket/segment-{number}.warc.gz",
                "size": 10_000 * len(mine),
                "etag": f"etag{number}",
                "status": "damaged" if number == 1 else "ok",
                "detail": "one gzip member cannot be read" if number == 1 else None,
                "records_by_type": {"response": len(mine)},
                "skipped_by_type": {"request": len(mine), "warcinfo": 1},
                "gaps": [{"offset": 4_000, "length": 1_200, "cause": "bad CRC"}] if number == 1 else [],
                "bytes_covered": 10_000 * len(mine),
            }
        )
    return rows


def _write(storage: Storage, dataset: str, schema: pa.Schema, parts: list[list[Row]]) -> None:
    written = []
    for number, rows in enumerate(parts):
        with PartWriter(storage, dataset, f"part-{number:05d}", schema, row_group_bytes=300_000) as writer:
            writer.write(rows)
            written.append(writer.close())
    storage.commit(dataset, "key", written)


def _shards(storage: Storage, truth: Truth, tokens: bool) -> Row:
    """`shards/` in two files for English, one for each other language; returns the manifest."""
    schema = datasets.shards_schema(n_tokens=tokens, tokens=False)
    sizes = {d["kept_id"]: d["cluster_size"] for d in truth.duplicates}
    languages: dict[str, list[Row]] = {}
    for record, verdict in zip(truth.records, truth.verdicts, strict=True):
        if verdict["kept"]:
            languages.setdefault(record["lang"], []).append(
                {
                    **{name: record.get(name) for name in schema.names if name in record},
                    "date": record["warc_date"],
                    "crawl": None,
                    "text": record.get("edited") or record["text"],
                    "length_bucket": max(1, record["n_words"]).bit_length() - 1,
                    "cluster_size": sizes.get(record["record_id"], 1),
                    **({"n_tokens": 2 * record["n_words"]} if tokens else {}),
                }
            )
    files = []
    for language, rows in sorted(languages.items()):
        rows.sort(key=lambda row: xxhash.xxh3_64_intdigest(row["record_id"].encode()))
        pieces = [rows[: len(rows) // 2], rows[len(rows) // 2 :]] if language == "en" else [rows]
        for index, piece in enumerate(pieces):
            path = f"{language}-{index:05d}-abcdef0123456789.parquet"
            with storage.open_output(f"shards/{path}") as file:
                pq.write_table(pa.Table.from_pylist(piece, schema=schema), file, compression="zstd", row_group_size=50)
            buckets: dict[str, Row] = {}
            for row in piece:
                entry = buckets.setdefault(str(row["length_bucket"]), {"rows": 0, "tokens": None})
                entry["rows"] += 1
            files.append(
                {
                    "path": path,
                    "lang": language,
                    "rows": len(piece),
                    "file_bytes": 1,
                    "text_bytes": sum(len(r["text"].encode()) for r in piece),
                    "sha256": "0" * 64,
                    "footer_sha256": "0" * 64,
                    "row_groups": [
                        {
                            "rows": len(piece),
                            "text_bytes": 1,
                            "n_chars": sum(r["n_chars"] for r in piece),
                            "n_tokens": sum(r["n_tokens"] for r in piece) if tokens else None,
                        }
                    ],
                    "length_buckets": buckets,
                }
            )
    kept = [row for rows in languages.values() for row in rows]
    return {
        "schema_version": datasets.SCHEMA_VERSION,
        "run_id": "5eed" * 4,
        "recipe_hash": "0" * 16,
        "length_unit": "tokens" if tokens else "words",
        "tokenizer": None,
        "totals": {
            "rows": len(kept),
            "text_bytes": sum(f["text_bytes"] for f in files),
            "words": sum(r["n_words"] for r in kept),
            "tokens": None,
        },
        "tokenizer_sha256": None,
        "eos_id": None,
        "files": files,
    }
