"""Counting lines: whatever the parts, buckets and order, the same as counting them all in one place."""

from __future__ import annotations

import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from pipeline.datasets import RECORDS
from pipeline.recipe import Edit, Recipe, RepeatedLines
from pipeline.repeated_lines import pieces, rank
from pipeline.run import line_counts
from pipeline.storage import Part, PartWriter, Storage, read_rows

Row = tuple[int, int, int]  # hash, documents, first

WORDS = st.sampled_from(["a", "b", "c", "d", "e", "", " A "])
PARTS = st.lists(st.lists(st.lists(WORDS, max_size=5).map("\n".join), max_size=4), min_size=1, max_size=4)


def named(parts: list[list[str]]) -> list[dict[str, str]]:
    """Ids as if drawn by lot, but always the same for the same place."""
    return [
        {xxhash.xxh3_128_hexdigest(f"{p}:{i}".encode()): text for i, text in enumerate(texts)}
        for p, texts in enumerate(parts)
    ]


def by_hand(parts: list[dict[str, str]], settings: RepeatedLines) -> list[list[Row]]:
    holders: dict[int, list[str]] = {}
    for part in parts:
        for record_id, text in part.items():
            for line in set(pieces(text, settings).hashes.tolist()):
                holders.setdefault(line, []).append(record_id)
    repeated = {line: ids for line, ids in holders.items() if len(ids) >= settings.min_documents}
    return [
        sorted(
            (line, len(ids), rank(min(ids)) * (min(ids) in part)) for line, ids in repeated.items() if part.keys() & ids
        )
        for part in parts
    ]


@given(PARTS, st.sampled_from([1, 2, 8, 64]), st.integers(2, 3), st.booleans())
def test_parts_and_buckets_do_not_matter(texts: list[list[str]], buckets: int, minimum: int, backwards: bool) -> None:
    settings = RepeatedLines(min_documents=minimum)
    parts = named(texts)
    sent: dict[int, list[dict[str, object]]] = {}
    order = list(enumerate(parts))[:: -1 if backwards else 1]
    for number, part in order:
        documents, entries = line_counts.count_texts(part.items(), Edit(repeated_lines=settings))
        assert documents == len(part)
        for bucket, (start, stop) in enumerate(line_counts._slices(entries.hashes, buckets)):
            batch = line_counts._packed(bucket, str(number), entries.slice(start, stop), {})
            sent.setdefault(bucket, []).extend(batch.to_pylist())
    found: list[list[Row]] = [[] for _ in parts]
    for bucket in sorted(sent):
        for batch in line_counts._sum_bucket(bucket, sent[bucket], minimum):
            for row in batch.to_pylist():
                if row["part"]:
                    one = line_counts._unpacked(row)
                    columns = (one.hashes.tolist(), one.documents.tolist(), one.first.tolist())
                    found[int(row["part"])] += zip(*columns, strict=True)
    assert found == by_hand(parts, settings)  # ascending across buckets, too


def write(storage: Storage, parts: list[dict[str, str]]) -> list[Part]:
    written = []
    for number, part in enumerate(parts):
        with PartWriter(storage, "records", f"part-{number}", RECORDS) as writer:
            writer.write([{"record_id": record_id, "text": text} for record_id, text in part.items()])
            writer.write([{"record_id": "f" * 32, "stage": "fetch"}])
            written.append(writer.close())
    return written


@pytest.mark.parametrize("bucket_bytes", [1 << 40, 20_000])
def test_counted_by_spark(
    bucket_bytes: int, spark: SparkSession, tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_counts, "_BUCKET_BYTES", bucket_bytes)
    texts = [
        [f"everywhere\nonly {p} {i}\nin part {p}\n{'even' if i % 2 else 'odd'}" for i in range(9)] for p in range(5)
    ]
    parts = [*named(texts), {}]
    settings = RepeatedLines(min_documents=9)
    storage = Storage(str(tmp_path))
    recipe = Recipe(edit=Edit(repeated_lines=settings))
    written = write(storage, parts)
    counted = line_counts.count(spark, storage, recipe, written[::-1])
    assert counted.counts == {"documents": 45, "distinct": 3 + 5 + 45, "repeated": 3 + 5}
    for part, expected in zip(written, by_hand(parts, settings), strict=True):
        if not expected:
            assert part.path not in counted.parts
            continue
        file = counted.parts[part.path]
        rows = pa.concat_tables(table for _, table in read_rows(storage, file.path, range(file.rows))).to_pylist()
        assert [(row["hash"], row["documents"], row["first"] or 0) for row in rows] == expected
