"""A really curated run through the loader and the two commands, texts against the shards' own."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from jobs.cli import main
from pipeline.publish.manifest import Bucket, RowGroup, ShardFile, ShardsManifest
from pipeline.publish.tokens import Encoder, TokenizerFile
from pipeline.recipe import load
from tests.trainer.stream import drive, made
from trainer import survey
from trainer.stream import Loader, StreamConfig, manifest, read_manifest
from trainer.stream.tokens import FileEncoder


def texts(run: Path) -> list[dict[str, Any]]:
    listed = json.loads((run / "shards" / "manifest.json").read_text())["files"]
    return [row for file in listed for row in pq.read_table(run / "shards" / file["path"]).to_pylist()]


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory, finished: Path) -> str:
    """A byte-level vocabulary of 600 trained on the sample."""
    model = Tokenizer(models.BPE())
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=600, special_tokens=["<|endoftext|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )  # fmt: skip
    model.train_from_iterator([row["text"] for row in texts(finished)], trainer)
    path = tmp_path_factory.mktemp("vocabulary") / "tokenizer.json"
    model.save(str(path))
    return str(path)


def test_the_manifest_is_the_pipelines() -> None:
    fields = {field.name for field in dataclasses.fields(manifest.ShardFile)}
    assert fields == set(ShardFile.model_fields) - {"row_groups", "length_buckets"}
    assert set(manifest.GROUP_FIELDS) == set(RowGroup.model_fields)
    assert set(Bucket.model_fields) == {"rows", "tokens"}
    assert ShardsManifest.model_fields["schema_version"].default == manifest.SCHEMA_VERSION
    mine = {field.name for field in dataclasses.fields(manifest.Manifest)}
    assert mine - {"folder", "groups", "digest"} <= set(ShardsManifest.model_fields)


def test_a_curated_run_comes_out_whole(finished: Path, vocabulary: str) -> None:
    rows = texts(finished)
    read = read_manifest(str(finished))
    assert (read.rows, read.groups.text_bytes.sum()) == (len(rows), sum(len(r["text"].encode()) for r in rows))
    encoder = Tokenizer.from_file(vocabulary)
    ids = [encoder.encode(row["text"], add_special_tokens=False).ids for row in rows]
    for tokenizer, of in ((vocabulary, lambda p: ids[p]), ("bytes", lambda p: list(rows[p]["text"].encode()))):
        settings = drive.config(finished, tokenizer=tokenizer, epochs=1, seq_len=256, threads=2)
        loader = Loader(settings)
        eos_id = loader.encoder.eos_id
        steps = []
        for batch in loader:
            assert not isinstance(batch, list)
            drive.assert_tensors(batch, lambda _, p, of=of, eos_id=eos_id: [*of(p), eos_id], eos_id)
            steps.append(drive.by_lane(loader, batch))
        drive.assert_covered(steps, {(0, p): len(of(p)) for p in range(len(rows))})


def test_lineage_names_every_piece(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = texts(finished)
    files = {file["path"]: pq.read_table(finished / "shards" / file["path"]).to_pylist()
             for file in json.loads((finished / "shards" / "manifest.json").read_text())["files"]}  # fmt: skip
    log = tmp_path / "states"
    settings = drive.config(finished, epochs=2, seq_len=512, batch_size=8, log_every=5, threads=1, log_dir=str(log))
    loaders = [Loader(settings, rank, 2) for rank in range(2)]
    runs = [iter(loader) for loader in loaders]
    made_steps = [[next(run) for run in runs] for _ in range(17)]
    for number in (0, 4, 12, 16):
        for loader, batch in zip(loaders, made_steps[number], strict=True):
            assert not isinstance(batch, list)
            found = loader.lineage(number)
            assert [[(o.source, o.position, o.start, o.end) for o in row] for row in found] == [
                [tuple(span) for span in row] for row in batch.span
            ]
            for origin in (o for row in found for o in row):
                stored = files[origin.shard][origin.row]
                assert stored["record_id"] == origin.record_id == rows[origin.position]["record_id"]
    assert len(list(log.iterdir())) == 2 * 4
    # the same from the log alone, for all ranks, as a person sees it
    capsys.readouterr()
    assert main(["batch", str(log), "--step", "12", "--json"]) == 0
    pieces = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    spans = sorted(tuple(span) for batch in made_steps[12] for row in batch.span for span in row)
    assert sorted((p["source"], p["position"], p["start"], p["end"]) for p in pieces) == spans
    for piece in pieces:
        stored = rows[piece["position"]]
        text = stored["text"].encode()[piece["start"] : piece["end"] - 1].decode("utf-8", "replace")
        assert (piece["url"], piece["text"]) == (stored["url"], text)
    assert main(["batch", str(log), "--step", "12"]) == 0
    assert pieces[0]["url"] in capsys.readouterr().out
    assert main(["batch", str(finished), "--step", "1", "--seq-len", "512", "--batch-size", "8"]) == 0
    assert "https://" in capsys.readouterr().out
    assert main(["batch", str(tmp_path / "none"), "--step", "1"]) == 2
    assert "no finished run here" in capsys.readouterr().err


def test_an_excluded_record_never_comes(finished: Path) -> None:
    rows = texts(finished)
    gone = tuple(row["record_id"] for row in rows[3:40:6])
    kept = {(0, p): len(row["text"].encode()) for p, row in enumerate(rows) if row["record_id"] not in gone}
    steps, _ = drive.steps_at(drive.config(finished, epochs=1, seq_len=512, exclude=gone), 2, 10**9)
    drive.assert_covered(steps, kept)


def test_inspect(
    finished: Path,
    tmp_path: Path,
    vocabulary: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(survey, "SECONDS", 0.2)
    rows = texts(finished)
    wanted = ["inspect", f"{finished}@3", f"{finished}@1", "--seq-len", "256", "--batch-size", "8"]
    assert main([*wanted, "--train-tokens", "1e6", "--json"]) == 0
    seen = json.loads(capsys.readouterr().out)
    assert [source["weight"] for source in seen["sources"]] == [0.75, 0.25]
    size = sum(len(row["text"].encode()) for row in rows)
    assert seen["sources"][0]["tokens"] == pytest.approx(size, rel=0.2)
    assert set(seen["modes"]) == {"packed", "concat", "bucketed"}
    assert seen["modes"]["concat"]["padded"] == 0
    for use in seen["modes"].values():
        assert use["positions"] == use["tokens"] + use["padded"] + use["tail"]
    assert 0.8 < seen["displacement"] < 1.2
    assert main(["inspect", str(finished), "--tokenizer", vocabulary, "--tokens-per-second", "1e6"]) == 0
    out = capsys.readouterr().out
    assert "1,000,000 tokens/s need" in out
    assert main(["inspect", str(finished), "--verify"]) == 0
    assert main(["inspect", str(finished), "--mode", "paked"]) == 2
    assert "mode 'paked': one of packed, concat, bucketed" in capsys.readouterr().err
    bad = made.run(tmp_path / "r", made.numbered([9] * 9, 9, 1), tokens=True)
    shard = next((bad / "shards").glob("*.parquet"))
    shard.write_bytes(shard.read_bytes()[:-1] + b"x")
    assert main(["inspect", str(bad), "--verify"]) == 1
    assert "1 of 1 files are not what the manifest says" in capsys.readouterr().err


def test_ids_equal_the_pipelines(vocabulary: str) -> None:
    """Texts of any length get the ids here that publishing stores, in pieces where they are long."""
    data = Path(vocabulary).read_bytes()
    words = ["a b  c\n" * 200_000, "", "naïve Korn ธัญพืช", "no_space" * 140_000]
    stored = Encoder(TokenizerFile(vocabulary, data, "", 0)).encode(words)
    import numpy as np

    here = FileEncoder(vocabulary, data, None).encode([np.frombuffer(w.encode(), np.uint8) for w in words])
    assert [a.tolist() for a in here] == [b.tolist() for b in stored]
    assert load("minimal").publish.tokenizer is None
    assert StreamConfig.from_json(json.loads(json.dumps(drive.config(Path("x"), exclude=("a", (0, 3))).as_json())))
