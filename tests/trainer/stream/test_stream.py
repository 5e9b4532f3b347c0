"""What the loader promises whatever the data and the split: each target once an epoch, the same steps at any degree,
and the same steps after any stops."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.trainer.stream import drive, made
from trainer.stream import Loader, Source, StreamConfig, StreamUsageError, merge, read_manifest
from trainer.stream.plan import Order, deal, permutation

LANES = (1, 2, 4, 6, 8)
quick = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))


@contextmanager
def folder() -> Iterator[Path]:
    where = Path(tempfile.mkdtemp())
    try:
        yield where
    finally:
        shutil.rmtree(where)


@st.composite
def cases(draw: st.DrawFn, *, most_runs: int = 2) -> dict[str, Any]:
    """A mixture of small runs and a configuration."""
    runs = draw(
        st.lists(
            st.fixed_dictionaries(
                {
                    "lengths": st.lists(st.sampled_from([0, 1, 2, 7, 15, 16, 17, 40, 90]), min_size=9, max_size=70),
                    "group": st.integers(1, 15),
                    "groups_per_file": st.integers(1, 4),
                }
            ),
            min_size=1,
            max_size=most_runs,
        )
    )
    lanes = draw(st.sampled_from(LANES))
    return {
        "runs": runs,
        "lanes": lanes,
        "settings": {
            "seq_len": draw(st.sampled_from([1, 8, 16])),
            "batch_size": lanes * draw(st.integers(1, 3)),
            "lanes": lanes,
            "mode": draw(st.sampled_from(["packed", "concat", "bucketed"])),
            "seed": draw(st.integers(0, 3)),
            "epochs": draw(st.integers(1, 3)),
            "window": draw(st.sampled_from([1, 4])),
            "weights_by": draw(st.sampled_from(["tokens", "documents"])),
            "tokenizer": "stored",
            "threads": draw(st.sampled_from([0, 0, 1, 4])),
        },
        "weighted": draw(st.booleans()),
        "degrees": [d for d in range(1, 9) if lanes % d == 0],
    }


def build(case: dict[str, Any], where: Path) -> tuple[StreamConfig, dict[tuple[int, int], int]]:
    sources, lengths = [], {}
    for number, spec in enumerate(case["runs"]):
        files = made.numbered(spec["lengths"], spec["group"], spec["groups_per_file"])
        run = made.run(where / str(number), files, tokens=True, name=f"run{number}")
        sources.append(Source(str(run), weight=1.0 + number if case["weighted"] else None))
        ids = read_ids(run)
        lengths |= {(number, position): len(document) for position, document in enumerate(ids)}
    return drive.config(*sources, **case["settings"]), lengths


def read_ids(run: Path) -> list[list[int]]:
    """Documents by position, read without the loader."""
    import pyarrow.parquet as pq

    manifest = json.loads((run / "shards" / "manifest.json").read_text())
    files = sorted(manifest["files"], key=lambda f: (f["lang"], f["path"]))
    return [ids for f in files for ids in pq.read_table(run / "shards" / f["path"])["tokens"].to_pylist()]


@quick
@given(cases(), st.data())
def test_every_target_once_an_epoch_at_any_degree_and_through_any_stops(
    case: dict[str, Any], data: st.DataObject
) -> None:
    with folder() as where:
        settings, lengths = build(case, where)
        whole, _ = drive.steps_at(settings, 1, 10**9)
        drive.assert_covered(whole, lengths, settings.epochs)

        joined: list[Any] = []
        state = None
        while len(joined) < len(whole):
            degree = data.draw(st.sampled_from(case["degrees"]))
            stop = data.draw(st.integers(1, 1 + len(whole)))
            steps, state = drive.steps_at(settings, degree, stop, state)
            state = json.loads(json.dumps(state))
            joined += steps
        assert joined == whole


@quick
@given(cases(), st.data())
def test_a_changed_batch_size_moves_no_document(case: dict[str, Any], data: st.DataObject) -> None:
    """Each lane's rows in order are the same, however many of them make a step (bucketed: each document's spans)."""
    with folder() as where:
        settings, lengths = build(case, where)
        loader = Loader(settings)
        changes = data.draw(st.dictionaries(st.integers(1, 20), st.integers(1, 3), max_size=4))
        steps = []
        for step in loader:
            steps.append(drive.by_lane(loader, step))
            if len(steps) in changes:
                loader.batch_size = case["lanes"] * changes[len(steps)]
        drive.assert_covered(steps, lengths, settings.epochs)
        if settings.mode != "bucketed":
            whole, _ = drive.steps_at(settings, 1, 10**9)
            for lane in range(case["lanes"]):
                rows = [[row for step in run for row in step[lane] if row] for run in (steps, whole)]
                assert rows[0] == rows[1]


@quick
@given(cases(most_runs=1), st.data())
def test_exclusions_move_no_other_document(case: dict[str, Any], data: st.DataObject) -> None:
    """A stop, then rows excluded: the rest is covered once, and each lane's order of it is what it was (concat)."""
    with folder() as where:
        settings, lengths = build(case, where)
        whole, _ = drive.steps_at(settings, 1, 10**9)
        first, state = drive.steps_at(settings, 1, data.draw(st.integers(0, len(whole))))
        gone = data.draw(st.sets(st.integers(0, len(lengths) - 1), max_size=8))
        again = drive.config(*settings.sources, **case["settings"], exclude=tuple((0, p) for p in sorted(gone)))
        rest, _ = drive.steps_at(again, data.draw(st.sampled_from(case["degrees"])), 10**9, state)
        kept = {key: length for key, length in lengths.items() if key[1] not in gone}
        without = [
            {lane: [[s for s in row if s[1] not in gone] for row in rows] for lane, rows in step.items()}
            for step in first + rest
        ]
        drive.assert_covered(without, kept, settings.epochs)
        assert not [1 for step in rest for rows in step.values() for row in rows for s in row if s[1] in gone]
        if settings.mode == "concat":
            for lane in range(case["lanes"]):
                assert begun(first + rest, lane, gone) == begun(whole, lane, gone)


def begun(steps: list[Any], lane: int, gone: set[int]) -> list[int]:
    """Positions of the documents that begin in a lane, in order."""
    return [s[1] for step in steps for row in step[lane] for s in row if s[2] == 0 and s[1] not in gone]


@quick
@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 2000)), min_size=1, max_size=30), st.sampled_from((1, 3, 8))
)
def test_lanes_differ_by_at_most_one_row(groups: list[tuple[int, int]], lanes: int) -> None:
    manifest = fake_manifest(groups)
    dealt = deal(manifest, lanes, 5, 0)
    rows = sorted((g, s + i) for p in dealt for g, s, n in zip(p.group, p.start, p.rows, strict=True) for i in range(n))
    assert rows == [(g, i) for g, (count, _) in enumerate(groups) for i in range(count)]
    mean = [chars / count for count, chars in groups]
    totals = [sum(mean[g] * n for g, n in zip(p.group, p.rows, strict=True)) for p in dealt]
    assert max(totals) - min(totals) <= max(mean) + 1e-3
    cut = sum(len(p) for p in dealt) - len(groups)
    assert cut <= 8 * lanes + sum(count for (count, _), m in zip(groups, mean, strict=True) if m * lanes > sum(mean))


def fake_manifest(groups: list[tuple[int, int]]) -> Any:
    from trainer.stream.manifest import parse_manifest

    entry = {
        "path": "x.parquet", "lang": "en", "rows": sum(rows for rows, _ in groups), "file_bytes": 1, "text_bytes": 1,
        "sha256": "", "footer_sha256": "",
        "row_groups": [{"rows": r, "text_bytes": c, "n_chars": c, "n_tokens": None} for r, c in groups],
    }  # fmt: skip
    tree = {"schema_version": 1, "run_id": "r", "tokenizer": None, "tokenizer_sha256": None, "eos_id": None}
    tree |= {"files": [entry], "totals": {"rows": entry["rows"]}}
    return parse_manifest(json.dumps(tree).encode(), "", "made")


def test_order_is_a_permutation_and_stays_what_it_is() -> None:
    assert permutation(8, 1, 2).tolist() == [7, 0, 2, 5, 4, 1, 3, 6]
    assert sorted(permutation(1000, 3).tolist()) == list(range(1000))
    pieces = deal(fake_manifest([(10, 100)] * 9), 2, 0, 0)[1]
    orders = [Order(pieces, 4, 0, 0, 1, epoch) for epoch in (0, 1)]
    seen = []
    for order in orders:
        at, rows = 0, []
        while at < 45:
            window = order.window_at(at)
            runs = zip(window.pieces.group, window.pieces.start, window.pieces.rows, strict=True)
            starts = [r for g, s, n in runs for r in range(g * 10 + s, g * 10 + s + n)]
            rows += [starts[k] for k in window.order]
            at = window.start + len(window)
        assert len(set(rows)) == 45
        seen.append(rows)
    assert sorted(seen[0]) == sorted(seen[1])
    assert seen[0] != seen[1]


@pytest.mark.parametrize("mode", ["packed", "concat", "bucketed"])
def test_tensors_hold_what_spans_say(tmp_path: Path, mode: str) -> None:
    """500 documents of 1 to 10,000 tokens, told apart (case 60); ids beyond 16 bits (case 61)."""
    import random

    rng = random.Random(3)
    lengths = [int(10 ** rng.uniform(0, 4)) for _ in range(500)]
    run = made.run(tmp_path / "r", made.numbered(lengths, 40, 4), tokens=True)
    ids = read_ids(run)
    settings = drive.config(
        run, seq_len=512, batch_size=16, lanes=8, mode=mode, epochs=1, tokenizer="stored", eos_id=128_255
    )
    loader = Loader(settings)
    steps = []
    for step in loader:
        steps.append(drive.by_lane(loader, step))
        for batch in drive.batches(step):
            drive.assert_tensors(batch, lambda _, p: [*ids[p], 128_255], 128_255)
    drive.assert_covered(steps, {(0, p): len(document) for p, document in enumerate(ids)})
    use = loader.utilisation
    assert use.tokens == sum(lengths)
    assert use.documents == 500
    assert use.positions == use.tokens + use.padded + use.tail
    assert max(int(b) for document in ids for b in document[:1]) > 1 << 16
    if mode == "concat":
        assert use.padded == 0
    if mode == "packed":
        assert use.filled > 0.995
        whole = [
            s for step in steps for rows in step.values() for row in rows for s in row if s[3] - 1 == len(ids[s[1]])
        ]
        assert sum(1 for s in whole if s[2] == 0) >= sum(1 for n in lengths if n <= 512)
        assert not [s for st in steps for rows in st.values() for row in rows for s in row
                    if len(ids[s[1]]) <= 512 and (s[2], s[3]) != (0, len(ids[s[1]]) + 1)]  # fmt: skip
    assert len(loader) == len(steps)


@pytest.mark.parametrize("shuffled", [1, 4])
def test_every_batch_carries_an_exact_state(tmp_path: Path, shuffled: int) -> None:
    """Case 55: one shard of 5,000 rows in groups of 1,000, batches of 7, a resume after each of the first batches."""
    run = made.run(tmp_path / "r", made.numbered([1 + i % 40 for i in range(5000)], 1000, 5), tokens=True)
    settings = drive.config(run, batch_size=7, lanes=1, epochs=1, tokenizer="stored", window=shuffled, threads=2)
    loader = Loader(settings)
    states, spans = [loader.state_dict()], []
    for batch in loader:
        assert batch.state == loader.state_dict()
        states.append(batch.state)
        spans.append(batch.span)
    assert len(spans) > 200
    assert max(len(json.dumps(cursors)) for state in states for cursors in state["lanes"].values()) < 100
    for after in [*range(0, 30), 99, 150, len(spans) - 2, len(spans) - 1, len(spans)]:
        resumed = Loader(drive.config(run, batch_size=7, lanes=1, epochs=1, tokenizer="stored", window=shuffled))
        resumed.load_state_dict(states[after])
        expected = spans[after : after + 3]
        got = [batch.span for _, batch in zip(range(3), resumed, strict=False)]
        assert got == expected
    assert [batch.span for batch in resumed] == []


def test_epochs_end_and_begin_exactly(tmp_path: Path) -> None:
    """Case 56: 128 samples, 4 epochs; stops at the last batch of an epoch, just after it, inside epochs 2 and 3."""
    run = made.run(tmp_path / "r", made.numbered([64] * 128, 16, 2), tokens=True)
    settings = drive.config(run, batch_size=8, lanes=4, epochs=4, tokenizer="stored", mode="concat")
    whole, _ = drive.steps_at(settings, 1, 10**9)
    assert len(whole) == 64
    epochs = [whole[i : i + 16] for i in range(0, 64, 16)]
    for epoch in epochs:
        drive.assert_covered(epoch, {(0, p): 64 for p in range(128)})
    assert len({json.dumps(epoch) for epoch in epochs}) == 4
    for stop in (15, 16, 17, 24, 40, 63, 64):
        first, state = drive.steps_at(settings, 1, stop)
        rest, _ = drive.steps_at(settings, 2, 10**9, state)
        assert first + rest == whole


@pytest.mark.parametrize("world", [1, 2, 3, 4])
@pytest.mark.parametrize("threads", [0, 1, 2, 5])
def test_ranks_and_threads_share_no_sample(tmp_path: Path, world: int, threads: int) -> None:
    """Case 53, with L = B = 12."""
    run = made.run(tmp_path / "r", made.numbered([8] * 1200, 100, 1), tokens=True)
    settings = drive.config(run, seq_len=8, batch_size=12, lanes=12, epochs=1, tokenizer="stored", threads=threads)
    steps, _ = drive.steps_at(settings, world, 10**9)
    assert sorted(drive.covered(steps)) == [(0, p) for p in range(1200)]
    assert all(len(spans) == 1 for spans in drive.covered(steps).values())


def test_a_degree_that_does_not_divide_is_refused_by_name(tmp_path: Path) -> None:
    run = made.run(tmp_path / "r", made.numbered([8] * 40, 10, 1), tokens=True)
    with pytest.raises(
        StreamUsageError, match=r"degree 3 does not divide the run's 8 lanes: take one of \[1, 2, 4, 8\]"
    ):
        Loader(drive.config(run, tokenizer="stored"), 0, 3)
    with pytest.raises(StreamUsageError, match="batch size 12 is no multiple of the run's 8 lanes"):
        Loader(drive.config(run, tokenizer="stored")).batch_size = 12


def test_another_layout_or_run_is_refused(tmp_path: Path) -> None:
    """Case 58: a rank's state alone is never taken for the whole; another run's names both."""
    run = made.run(tmp_path / "r", made.numbered([30] * 200, 10, 4), tokens=True)
    other = made.run(tmp_path / "o", made.numbered([30] * 201, 10, 4), tokens=True, name="other")
    settings = drive.config(run, tokenizer="stored")
    ranks = [Loader(settings, rank, 4) for rank in range(4)]
    for loader in ranks:
        next(iter(loader))
    states = [loader.state_dict() for loader in ranks]
    with pytest.raises(StreamUsageError, match=r"holds 2 of 8 lanes and this rank needs 4 .*merge all ranks"):
        Loader(settings, 0, 2).load_state_dict(states[0])
    with pytest.raises(StreamUsageError, match="6 of 8 lanes are in no state"):
        merge(states[:1])
    with pytest.raises(StreamUsageError, match="differ on lane 0: two ranks"):
        merge([states[0], {**states[1], "lanes": {**states[1]["lanes"], "0": [[9, 9, 9, 9, 9, 9]]}}])
    whole = merge(states)
    changes: list[tuple[str, StreamConfig]] = [
        ("another manifest: saved .*run r .*, now .*run other ", drive.config(other, tokenizer="stored")),
        (
            "another recipe: .*'seq_len': 64.*now.*'seq_len': 32.*--reset-data",
            drive.config(run, tokenizer="stored", seq_len=32),
        ),
        ("another tokenizer: .*tokens, eos 0, now bytes in text", drive.config(run)),
        ("another seed: saved 0, now 1", drive.config(run, tokenizer="stored", seed=1)),
        ("another lanes: saved 8, now 4", drive.config(run, tokenizer="stored", lanes=4)),
    ]
    for message, changed in changes:
        with pytest.raises(StreamUsageError, match=message):
            Loader(changed).load_state_dict(whole)


def test_a_mixture_keeps_its_weights(tmp_path: Path) -> None:
    """By tokens and by documents, per run and per language; sources longer than others go round more often."""
    big = made.run(tmp_path / "a", made.numbered([50] * 900, 50, 2), tokens=True, name="a")
    small = made.run(tmp_path / "b", made.numbered([10] * 90, 9, 2), tokens=True, name="b", lang=("de", "en"))
    for unit in ("tokens", "documents"):
        sources = (Source(str(big), 3.0), Source(str(small), 1.0, ("de",)))
        loader = Loader(drive.config(*sources, tokenizer="stored", weights_by=unit, batch_size=4, lanes=2))
        tokens, documents = [0, 0], [0, 0]
        for _, batch in zip(range(200), loader, strict=False):
            for row in batch.span:
                for source, _, start, end in row:
                    tokens[source] += end - start - 1
                    documents[source] += start == 0
        counted = tokens if unit == "tokens" else documents
        assert counted[0] / sum(counted) == pytest.approx(0.75, abs=0.01)
    with pytest.raises(StreamUsageError, match=r"has no language 'fr'; it has de, en"):
        Loader(drive.config(Source(str(small), None, ("fr",)), tokenizer="stored"))


def test_the_manifest_alone_says_what_is_read(tmp_path: Path) -> None:
    """Case 59: its order, other files and the listing of the folder change nothing."""
    run = made.run(tmp_path / "r", made.numbered([20] * 300, 10, 3), tokens=True)
    before, _ = drive.steps_at(drive.config(run, tokenizer="stored"), 1, 20)
    path = run / "shards" / "manifest.json"
    tree = json.loads(path.read_text())
    tree["files"].reverse()
    path.write_text(json.dumps(tree))
    shutil.copy(run / "shards" / tree["files"][0]["path"], run / "shards" / "en-00099-extra.parquet")
    (run / "shards" / "part-10.parquet").write_bytes(b"no Parquet file")
    after, _ = drive.steps_at(drive.config(run, tokenizer="stored"), 2, 20)
    assert before == after
    assert read_manifest(str(run)).digest == read_manifest(str(run / "shards")).digest


def test_what_the_stream_depends_on() -> None:
    import ast
    import sys

    import trainer.stream

    allowed = {"torch", "pyarrow", "fsspec", "tokenizers", "numpy", "trainer", *sys.stdlib_module_names}
    for path in Path(trainer.stream.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            assert {name.split(".")[0] for name in names} <= allowed, path
