"""Shards: their bytes are a function of the kept documents alone; the manifest says what is in them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from pipeline.datasets import RECORDS, shards_schema
from pipeline.errors import GristmillError, UsageError
from pipeline.publish import RunInfo, ShardsManifest, publish, read_shards_manifest
from pipeline.publish.pii import EMAIL, IPV4
from pipeline.publish.shards import ShardWriter, file_language, place
from pipeline.publish.tokens import Encoder, open_tokenizer, pieces
from pipeline.recipe import Publish, load
from pipeline.storage import Storage
from pipeline.text import count_words
from tests.publish import made

INFO = RunInfo("run", "recipe")
SMALL = ["publish.shard_mib=0.15", "publish.row_group_mib=0.03", "publish.pii={}"]
NUMBERS = range(800)


def published(
    spark: Any,
    folder: Path | str,
    settings: list[str] = SMALL,
    *,
    numbers: Any = NUMBERS,
    files: int = 3,
    partitions: int | None = None,
    seed: int | None = None,
    **options: Any,
) -> tuple[Storage, ShardsManifest]:
    storage = Storage(str(folder))
    numbers = list(numbers)
    if seed is not None:
        random.Random(seed).shuffle(numbers)
    _, kept = made.records(storage, numbers, files, **options)
    frame = spark.createDataFrame(kept, made.KEPT_DDL)
    if partitions is not None:
        frame = frame.repartition(partitions)
    return storage, publish(spark, frame, storage, load("minimal", settings), INFO)


@pytest.fixture(scope="module")
def example(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Storage, ShardsManifest]:
    return published(spark, tmp_path_factory.mktemp("example"))


def rows_of(storage: Storage, manifest: ShardsManifest) -> list[dict[str, Any]]:
    return [row for f in manifest.files for row in pq.read_table(storage.path(f"shards/{f.path}")).to_pylist()]


def test_shards_hold_the_kept_documents_as_published(example: tuple[Storage, ShardsManifest]) -> None:
    rows = {row["record_id"]: row for row in rows_of(*example)}
    assert len(rows) == len(NUMBERS)
    for number in NUMBERS:
        source, row = made.document(number), rows[made.record_id(number)]
        text = source["edited"] or source["text"]
        if number % 10 == 0:
            assert EMAIL in row["text"]
            assert IPV4 in row["text"]
            text = text.replace(f"user{number}@mail.test.org", EMAIL).replace(f"8.8.{number % 256}.8", IPV4)
        words = count_words(text)
        assert row == {
            **{name: source[name] for name in ("record_id", "url", "host", "crawl", "warc_file", "warc_offset")},
            **{"lang_score": 0.9, "quality_score": 0.5, "cluster_size": 1, "date": source["warc_date"]},
            **{"lang": source["lang"] or "und", "text": text, "n_chars": len(text), "n_words": words},
            "length_bucket": words.bit_length() - 1,
        }


def test_the_manifest_describes_every_file(example: tuple[Storage, ShardsManifest]) -> None:
    storage, manifest = example
    assert read_shards_manifest(storage) == manifest
    listed = [f"shards/{file.path}" for file in manifest.files]
    assert sorted([*listed, "shards/manifest.json"]) == storage.list("shards")
    assert [(file.lang, int(file.path.split("-")[1])) for file in manifest.files] == sorted(
        (file.lang, int(file.path.split("-")[1])) for file in manifest.files
    )
    for file in manifest.files:
        data = storage.read_bytes(f"shards/{file.path}")
        assert file.sha256 == hashlib.sha256(data).hexdigest()
        assert file.path.split("-")[2] == f"{file.sha256[:16]}.parquet"
        footer = data[-8 - int.from_bytes(data[-8:-4], "little") :]
        assert file.footer_sha256 == hashlib.sha256(footer).hexdigest()
        assert file.file_bytes == len(data)
        parquet = pq.ParquetFile(pa.BufferReader(data))
        assert parquet.schema_arrow.equals(shards_schema(n_tokens=False, tokens=False))
        assert parquet.num_row_groups == len(file.row_groups) > 1
        buckets: dict[str, int] = {}
        for index, group in enumerate(file.row_groups):
            rows = parquet.read_row_group(index).to_pylist()
            assert len(rows) == group.rows
            assert sum(len(row["text"].encode()) for row in rows) == group.text_bytes
            assert sum(row["n_chars"] for row in rows) == group.n_chars
            assert group.n_tokens is None
            assert {row["lang"] for row in rows} == {file.lang}
            for row in rows:
                buckets[str(row["length_bucket"])] = buckets.get(str(row["length_bucket"]), 0) + 1
        assert {bucket: entry.rows for bucket, entry in file.length_buckets.items()} == buckets
        assert file.rows == sum(buckets.values())
        assert file.text_bytes == sum(group.text_bytes for group in file.row_groups)
    rows = rows_of(*example)
    assert manifest.totals.rows == len(rows)
    assert manifest.totals.text_bytes == sum(len(row["text"].encode()) for row in rows)
    assert manifest.totals.words == sum(row["n_words"] for row in rows)
    assert (manifest.totals.tokens, manifest.tokenizer, manifest.length_unit) == (None, None, "words")


def test_shards_are_ranges_of_hashes_about_as_large_as_asked(example: tuple[Storage, ShardsManifest]) -> None:
    storage, manifest = example
    for lang in {file.lang for file in manifest.files}:
        files = [file for file in manifest.files if file.lang == lang]
        assert len(files) == math.ceil(sum(file.text_bytes for file in files) / (0.15 * 2**20)) > 1
        ids = [row["record_id"] for row in rows_of(storage, manifest) if row["lang"] == lang]
        assert ids == sorted(ids, key=lambda record_id: (place(record_id), record_id))
    for file in manifest.files:
        for group in file.row_groups:
            assert group.text_bytes <= 0.03 * 2**20 or group.rows == 1


@pytest.mark.parametrize(
    "way",
    [
        {"partitions": 1, "files": 1},
        {"partitions": 7, "files": 5, "seed": 1},
        {"partitions": 3, "files": 3, "row_group_bytes": 3_000, "seed": 2},
    ],
    ids=["one file", "shuffled, 5 files, 7 partitions", "small row groups"],
)
def test_equal_documents_make_equal_bytes(
    spark: Any, example: tuple[Storage, ShardsManifest], tmp_path: Path, way: dict[str, Any]
) -> None:
    storage, manifest = published(spark, tmp_path / "other place", **way)
    assert manifest == example[1]
    assert storage.read_bytes("shards/manifest.json") == example[0].read_bytes("shards/manifest.json")


def test_object_stores_get_the_same_bytes(spark: Any, example: tuple[Storage, ShardsManifest], s3_bucket: str) -> None:
    storage, manifest = published(spark, f"{s3_bucket}/run")
    assert manifest == example[1]
    assert {path.split("/")[0] for path in storage.list()} == {"records", "shards"}
    for file in manifest.files[:2]:
        assert hashlib.sha256(storage.read_bytes(f"shards/{file.path}")).hexdigest() == file.sha256


def test_publishing_again_leaves_one_runs_shards(spark: Any, tmp_path: Path) -> None:
    first, _ = published(spark, tmp_path, numbers=range(60))
    (tmp_path / "shards" / "en-00000-left.parquet").write_bytes(b"PAR1")
    old = set(first.list("shards"))
    storage, manifest = published(spark, tmp_path, numbers=range(50))
    assert set(storage.list("shards")) == {"shards/manifest.json", *(f"shards/{f.path}" for f in manifest.files)}
    assert set(storage.list("shards")) & old == {"shards/manifest.json"}
    assert manifest.totals.rows == 50


def test_long_documents_travel_by_reference(spark: Any, tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    long = "one two three. " * 100_000
    rows = [made.document(n) | {"lang": "en"} for n in range(1, 30)]
    for row in rows[::10]:
        row |= {"text": long + f"a{row['ordinal']}@b.com", "edited": None}
    parts = made.write(storage, "records", RECORDS, [rows])
    kept = [
        {"record_id": row["record_id"], "lang": "en", "part": parts[0].path, "row": i, "cluster_size": 2}
        for i, row in enumerate(rows)
    ]
    frame = spark.createDataFrame(kept, made.KEPT_DDL)
    manifest = publish(spark, frame, storage, load("minimal", ["publish.pii={}", "publish.row_group_mib=1"]), INFO)
    found = {row["record_id"]: row for row in rows_of(storage, manifest)}
    assert len(found) == len(rows)
    for row in rows[::10]:
        assert found[row["record_id"]]["text"] == long + EMAIL
        assert found[row["record_id"]]["n_words"] == count_words(long + EMAIL)
    groups = manifest.files[0].row_groups
    assert all(group.text_bytes <= 2**20 or group.rows == 1 for group in groups)
    assert sum(group.text_bytes > 2**20 for group in groups) == 3


def test_nothing_kept_is_an_empty_manifest(spark: Any, tmp_path: Path) -> None:
    storage, manifest = published(spark, tmp_path, numbers=[])
    assert manifest.files == ()
    assert manifest.totals.rows == 0
    assert storage.list("shards") == ["shards/manifest.json"]


def test_ranges_without_documents_are_files_too(spark: Any, tmp_path: Path) -> None:
    storage, manifest = published(spark, tmp_path, ["publish.shard_mib=0.0002"], numbers=[3])
    (rows,) = {file.rows for file in manifest.files if file.rows}
    assert rows == 1
    assert len(manifest.files) == math.ceil(manifest.totals.text_bytes / (0.0002 * 2**20)) > 2
    for file in manifest.files:
        table = pq.read_table(storage.path(f"shards/{file.path}"))
        assert table.schema.equals(shards_schema(n_tokens=False, tokens=False))


def test_kept_rows_that_records_do_not_hold_are_an_error(spark: Any, tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    _, kept = made.records(storage, range(20), 1)
    kept[3]["record_id"] = made.record_id(999)
    with pytest.raises(Exception, match="the kept rows are not those of this file"):
        publish(spark, spark.createDataFrame(kept, made.KEPT_DDL), storage, load("minimal"), INFO)
    assert read_shards_manifest(storage) is None


# -- tokens


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Words to ids beyond 16 bits (case 61)."""
    ids = {"stone": 65_534, "mill": 65_535, "Getreide": 65_536, "Korn": 70_000, "naïve": 128_255, "<unk>": 0, "</s>": 9}
    model = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    model.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    model.save(str(path))
    return str(path)


def test_token_ids_survive_beyond_16_bits(spark: Any, tmp_path: Path, tokenizer: str) -> None:
    wanted = [*SMALL, f"publish.tokenizer={tokenizer}", "publish.tokenize=true"]
    storage, manifest = published(spark, tmp_path, wanted, numbers=range(60))
    ids = {"stone": 65_534, "mill": 65_535, "Getreide": 65_536, "Korn": 70_000, "naïve": 128_255}
    rows = rows_of(storage, manifest)
    for row in rows:
        assert row["tokens"] == [ids.get(word, 0) for word in row["text"].split()]
        assert row["n_tokens"] == len(row["tokens"])
        assert row["length_bucket"] == row["n_tokens"].bit_length() - 1
    total = sum(row["n_tokens"] for row in rows)
    assert manifest.totals.tokens == total
    assert sum(group.n_tokens or 0 for file in manifest.files for group in file.row_groups) == total
    assert sum(b.tokens or 0 for file in manifest.files for b in file.length_buckets.values()) == total
    assert (manifest.length_unit, manifest.eos_id, manifest.tokenizer) == ("tokens", 9, tokenizer)
    assert manifest.tokenizer_sha256 == hashlib.sha256(Path(tokenizer).read_bytes()).hexdigest()
    assert pq.read_schema(storage.path(f"shards/{manifest.files[0].path}")).field("tokens").type == pa.list_(
        pa.uint32()
    )


def test_a_tokenizer_may_only_count(spark: Any, tmp_path: Path, tokenizer: str) -> None:
    storage, manifest = published(spark, tmp_path, [f"publish.tokenizer={tokenizer}"], numbers=range(10))
    assert all("tokens" not in row and row["n_tokens"] > 0 for row in rows_of(storage, manifest))


def test_a_wrong_tokenizer_is_found_at_the_start(tmp_path: Path, tokenizer: str) -> None:
    (tmp_path / "x.json").write_text("{}")
    nameless = json.loads(Path(tokenizer).read_text())
    del nameless["model"]["vocab"]["</s>"]
    (tmp_path / "nameless.json").write_text(json.dumps(nameless))
    empty = {**nameless, "model": {**nameless["model"], "vocab": {}}}
    (tmp_path / "empty.json").write_text(json.dumps(empty))
    for settings, message in [
        ({"tokenizer": str(tmp_path / "none.json")}, r"none\.json: cannot be read \(No such file"),
        ({"tokenizer": str(tmp_path / "x.json")}, r"not a tokenizer\.json"),
        ({"tokenizer": str(tmp_path / "empty.json")}, "its vocabulary is empty"),
        ({"tokenizer": str(tmp_path / "nameless.json"), "tokenize": True}, r"set publish\.eos_id"),
        ({"tokenizer": tokenizer, "eos_id": 128_256}, "not in the vocabulary"),
        ({"tokenizer": tokenizer, "eos_id": -1}, "not in the vocabulary"),
    ]:
        with pytest.raises(UsageError, match=message):
            open_tokenizer(Publish(**settings))  # type: ignore[arg-type]
    chosen = open_tokenizer(Publish(tokenizer=str(tmp_path / "nameless.json"), tokenize=True, eos_id=65_535))
    assert chosen is not None
    assert chosen.eos_id == 65_535
    assert open_tokenizer(Publish()) is None


def test_long_texts_are_encoded_in_pieces_that_change_nothing(tokenizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = open_tokenizer(Publish(tokenizer=tokenizer))
    assert file is not None
    texts = ["mill stone Korn\nKorn " * 400, "mill", "x" * 12_000, ""]
    whole = [ids.tolist() for ids in Encoder(file).encode(texts)]
    monkeypatch.setattr("pipeline.publish.tokens.PIECE_CHARS", 5_000)
    assert all("".join(pieces(text)) == text for text in texts)
    assert len(list(pieces(texts[0]))) == 2
    cut = [ids.tolist() for ids in Encoder(file).encode(texts)]
    assert cut[:2] == whole[:2]
    assert cut[3] == whole[3] == []


# -- one shard


def test_language_names_are_safe_file_names() -> None:
    assert file_language("en") == "en"
    assert file_language("eng_Latn") == "eng_Latn"
    names = [file_language(lang) for lang in ("a/b", "a-b", "a_b", "../x", "_a", ".a", "ü", "a=b", "")]
    assert len(set(names)) == len(names)
    assert not any(set(name) & set("/\\-.") or name.startswith("_") for name in names)


def test_batches_do_not_show_in_a_shards_bytes(tmp_path: Path) -> None:
    schema = shards_schema(n_tokens=False, tokens=False)
    given = pa.schema([field for field in schema if field.name != "length_bucket"])
    rows = pa.RecordBatch.from_pylist(
        [{"record_id": f"{i}", "text": "x" * i, "n_chars": i, "n_words": 1, "lang": "en"} for i in range(200)], given
    )
    names = set()
    for size in (1, 7, 200):
        storage = Storage(str(tmp_path / str(size)))
        with storage.scratch("shards") as target:
            writer = ShardWriter(target, schema, "en", 0, 3_000, None)
            for start in range(0, 200, size):
                writer.add(rows.slice(start, size))
            names.add(writer.close(storage).file.path)
    assert len(names) == 1


def test_a_foreign_manifest_is_refused(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    storage.put_json("shards/manifest.json", {"schema_version": 1, "files": "no"})
    with pytest.raises(GristmillError, match=r"manifest\.json: "):
        read_shards_manifest(storage)


def test_run_info_is_plain() -> None:
    assert dataclasses.asdict(INFO) == {"run_id": "run", "recipe_hash": "recipe"}
