"""Settings, manifests and states that nobody should give: each ends in one line, and nothing is left out unsaid."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from tests.trainer.stream import drive, made
from trainer.stream import Loader, Source, StreamError, StreamUsageError, read_manifest, reader
from trainer.stream.lineage import make_step, replay_logged


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """40 row groups of 10 documents of 30 ids in 8 files."""
    return made.run(tmp_path / "r", made.numbered([30] * 400, 10, 5), tokens=True)


def settings(*runs: Path | Source, **changes: Any) -> Any:
    return drive.config(*runs, **{"tokenizer": "stored", "epochs": 1, "lanes": 4, **changes})


def refused(kind: type[StreamError], match: str, act: Callable[[], Any]) -> None:
    with pytest.raises(kind, match=match) as told:
        act()
    assert "\n" not in str(told.value)


def set_rows(tree: dict[str, Any], first: int, second: int) -> None:
    entry = tree["files"][0]
    change = first + second - sum(group["rows"] for group in entry["row_groups"][:2])
    entry["row_groups"][0]["rows"], entry["row_groups"][1]["rows"] = first, second
    entry["rows"] += change
    tree["totals"]["rows"] += change


def drop_group(tree: dict[str, Any]) -> None:
    rows = tree["files"][0]["row_groups"].pop()["rows"]
    tree["files"][0]["rows"] -= rows
    tree["totals"]["rows"] -= rows


@pytest.mark.parametrize(
    "change",
    [lambda t: set_rows(t, 5, 10), lambda t: set_rows(t, 12, 8), lambda t: set_rows(t, 0, 10), drop_group],
    ids=["fewer", "moved", "none", "a group less"],
)
def test_rows_that_a_manifest_does_not_count_are_not_left_out(run: Path, change: Callable[[Any], None]) -> None:
    path = run / "shards/manifest.json"
    tree = json.loads(path.read_text())
    change(tree)
    path.write_text(json.dumps(tree))
    refused(StreamError, "not the file that the manifest lists: row group", lambda: list(Loader(settings(run))))


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("run_id",), ...),
        (("tokenizer",), ...),
        (("tokenizer_sha256",), 5),
        (("eos_id",), "x"),
        (("files", 0, "lang"), ["en"]),
        (("files", 0, "file_bytes"), None),
        (("files", 0, "path"), "../elsewhere.parquet"),
        (("files", 0, "row_groups", 0, "n_chars"), None),
        (("files", 0, "row_groups", 0, "n_chars"), -5),
        (("files", 0, "row_groups", 0, "rows"), 1.5),
    ],
)
def test_a_manifest_with_an_odd_field_is_refused(run: Path, place: tuple[Any, ...], value: Any) -> None:
    path = run / "shards/manifest.json"
    tree = json.loads(path.read_text())
    inside = tree
    for key in place[:-1]:
        inside = inside[key]
    if value is ...:
        del inside[place[-1]]
    else:
        inside[place[-1]] = value
    path.write_text(json.dumps(tree))
    refused(StreamError, "curate the run again", lambda: read_manifest(str(run)))


@pytest.mark.parametrize(
    "changes",
    [
        {"lanes": 0},
        {"lanes": -4},
        {"batch_size": 4.0},
        {"batch_size": 10**12},
        {"seq_len": 10**13},
        {"seq_len": "64"},
        {"seed": 1.5},
        {"epochs": 1.5},
        {"eos_id": -1},
        {"eos_id": 1 << 31},
        {"tokenizer": "bytes", "eos_id": 97},
        {"exclude": ((0, 1, 2),)},
        {"exclude": (None,)},
    ],
)
def test_an_odd_setting_is_refused_by_name(run: Path, changes: dict[str, Any]) -> None:
    refused(StreamUsageError, list(changes)[-1], lambda: Loader(settings(run, **changes)))


@pytest.mark.parametrize("weight", [math.nan, math.inf, 0.0, -1.0, "a"])
def test_a_weight_that_is_none_is_refused(run: Path, weight: Any) -> None:
    sources = Source(str(run), weight), Source(str(run), 1.0)
    for order in (sources, sources[::-1]):
        refused(StreamUsageError, "weights", lambda order=order: Loader(settings(*order)))


def test_a_world_of_none_is_refused(run: Path) -> None:
    refused(StreamUsageError, "degree 0", lambda: Loader(settings(run), 0, 0))


def test_a_batch_size_that_is_none_is_refused(run: Path) -> None:
    loader = Loader(settings(run))
    for rows in (0, -4, 4.0):
        refused(StreamUsageError, "batch_size", lambda rows=rows: setattr(loader, "batch_size", rows))


def test_numpy_positions_are_positions(run: Path) -> None:
    loader = Loader(settings(run, exclude=((0, np.int64(4)),)))
    assert sum(batch.utilisation.documents for batch in loader) == 399


@pytest.mark.parametrize(
    "damage",
    [
        lambda s: s.clear(),
        lambda s: s.pop("lanes"),
        lambda s: s.update(step="x"),
        lambda s: s.update(step=-1),
        lambda s: s["lanes"].update({"0": [[0, 0, 0]]}),
        lambda s: s["lanes"].update({"0": []}),
        lambda s: s["lanes"].update({"0": [[0, 100, 0, -1, 0, 0]]}),
        lambda s: s["lanes"].update({"0": [[0, -5, 0, -1, 0, 0]]}),
        lambda s: s["lanes"].update({"0": [[0, 0, 1 << 80, -1, 0, 0]]}),
        lambda s: s["lanes"].update({"7": s["lanes"]["0"]}),
        lambda s: s.update(quarantine=[[0, "a", 3]]),
        lambda s: s["fingerprint"].pop("lanes"),
    ],
)
def test_a_damaged_state_is_refused(run: Path, damage: Callable[[dict[str, Any]], Any]) -> None:
    loader = Loader(settings(run))
    state = copy.deepcopy(next(iter(loader)).state)
    damage(state)
    refused(StreamUsageError, "damaged", lambda: Loader(settings(run)).load_state_dict(state))


def test_a_state_beyond_the_end_of_its_document_is_refused(run: Path) -> None:
    state = copy.deepcopy(next(iter(Loader(settings(run)))).state)
    state["lanes"]["0"] = [[0, 0, 0, 0, 99, 0]]  # the document has 30 ids and the end
    loader = Loader(settings(run))
    loader.load_state_dict(state)
    refused(StreamUsageError, "token 99 of a document of 30", lambda: list(loader))


def test_a_log_that_cannot_be_written_or_read(run: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    loader = Loader(settings(run, log_dir=str(tmp_path / "file")))
    refused(StreamError, "another log_dir", lambda: next(iter(loader)))
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "state-000000000-0000-of-0001.json").write_text('{"state": {}}')
    refused(StreamUsageError, "not a logged state", lambda: replay_logged(str(tmp_path / "log"), 0))
    refused(StreamError, "cannot be listed", lambda: replay_logged("nowhere://x", 0))


def test_a_step_that_is_over_is_refused(run: Path) -> None:
    """It would never come, and a run without `epochs` never end."""
    refused(StreamUsageError, "step -1", lambda: make_step(Loader(settings(run, epochs=None)), -1))


def test_a_tokenizer_that_cannot_encode(tmp_path: Path) -> None:
    text = made.run(tmp_path / "t", [[["hello world"]]])
    words = Tokenizer(models.WordLevel({"hello": 0, "</s>": 1}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.save(str(tmp_path / "words.json"))
    loader = Loader(settings(text, tokenizer=str(tmp_path / "words.json")))
    refused(StreamError, "cannot encode a text", lambda: list(loader))


def test_a_host_that_does_not_answer_is_not_a_folder_without_a_run(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "RETRY_AFTER", ())
    refused(StreamError, "cannot be read", lambda: read_manifest("http://127.0.0.1:1/run"))
    tree = (run / "shards/manifest.json").read_bytes()
    from trainer.stream.manifest import parse_manifest

    manifest = parse_manifest(tree, "http://127.0.0.1:1/run/shards", "m")
    refused(StreamError, "cannot be read", lambda: list(Loader(settings(run), manifests=[manifest])))
