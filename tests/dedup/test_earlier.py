"""Dedup against earlier runs: their documents come first, are never removed, and are named by run and id."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.dedup import find_duplicates
from pipeline.dedup.candidates import Bounds, bounds
from pipeline.dedup.documents import RUN_BYTES, THIS_RUN, prepare_batch
from pipeline.dedup.one_task import settle_batches
from pipeline.dedup.signature import signature, standard_error
from pipeline.dedup.verify import Readers
from pipeline.errors import GristmillError
from pipeline.recipe import Dedup
from pipeline.shingles import shingle_hashes
from tests.dedup.corpus import (
    SCHEMA,
    Documents,
    dedup,
    earlier_run,
    greedy,
    greedy_after,
    jaccard,
    order,
    stored,
    words,
)
from tests.dedup.test_find_duplicates import CERTAIN, SPREAD, edit, trees

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def halves(documents: Documents) -> tuple[Documents, Documents]:
    """The better half, in priority order, and the rest."""
    best = order(documents)
    middle = len(best) // 2

    def some(chosen: list[int]) -> Documents:
        columns = ([column[i] for i in chosen] for column in (documents.texts, documents.ids))
        texts, ids = columns
        return Documents(texts, ids, [documents.scores[i] for i in chosen])

    return some(best[:middle]), some(sorted(best[middle:]))


def only(documents: Documents, ids: set[str]) -> Documents:
    chosen = [i for i, record_id in enumerate(documents.ids) if record_id in ids]
    return Documents(
        [documents.texts[i] for i in chosen],
        [documents.ids[i] for i in chosen],
        [documents.scores[i] for i in chosen],
    )


def test_two_steps_give_the_survivors_of_one_where_the_earlier_documents_are_the_better_ones(
    spark: SparkSession,
) -> None:
    documents = trees(11, 300)
    first, second = halves(documents)
    survivors = only(first, set(dedup(spark, first, CERTAIN).kept(first.ids)))
    earlier = [earlier_run(spark, survivors, CERTAIN, "a" * 16)]
    found = dedup(spark, second, CERTAIN, earlier=earlier)
    whole = greedy(documents, CERTAIN)
    assert {*survivors.ids, *found.kept(second.ids)} == {i for i in documents.ids if i not in whole}
    assert {i: row["kept_id"] for i, row in found.removed.items()} == {i: whole[i] for i in second.ids if i in whole}
    runs = {row["kept_run"] for row in found.removed.values()}
    assert runs == {None, "a" * 16}
    text = dict(zip(documents.ids, documents.texts, strict=True))
    sizes: dict[tuple[Any, str], int] = {}
    for row in found.removed.values():
        kept = row["kept_run"], row["kept_id"]
        sizes[kept] = sizes.get(kept, 1) + 1
        assert (row["kept_run"] is not None) == (row["kept_id"] in survivors.ids)
    for i, row in found.removed.items():
        assert row["similarity"] == pytest.approx(jaccard(text[i], text[row["kept_id"]], CERTAIN))
        assert row["kind"] == ("exact" if text[i].split() == text[row["kept_id"]].split() else "near")
        assert row["cluster_size"] == sizes[row["kept_run"], row["kept_id"]]
    assert 0 < found.counts["earlier_met"] <= len(survivors.ids)
    assert found.counts["documents"] == len(second.ids)


def test_another_order_of_priority_gives_other_survivors_than_one_run(spark: SparkSession) -> None:
    """The counterexample: a new document that is better than two earlier ones, which are unlike each other."""
    middle = words(1, 300)
    left, right = [*(f"l{i}" for i in range(30)), *middle[30:]], [*middle[:-30], *(f"r{i}" for i in range(30))]
    texts = [" ".join(text) for text in (left, right, middle)]
    setting = Dedup(permutations=80, bands=40, rows=2)
    assert jaccard(texts[0], texts[2], setting) > 0.8 < jaccard(texts[1], texts[2], setting)
    assert jaccard(texts[0], texts[1], setting) < 0.8
    documents = Documents(texts, scores=[0.5, 0.5, 0.9])
    assert set(greedy(documents, setting)) == set(documents.ids[:2]), "one run keeps the new one alone"
    earlier = [earlier_run(spark, only(documents, set(documents.ids[:2])), setting, "a")]
    found = dedup(spark, only(documents, set(documents.ids[2:])), setting, earlier=earlier)
    assert set(found.removed) == set(documents.ids[2:]), "two steps keep both of the earlier ones"


@pytest.mark.parametrize("exact", [True, False])
def test_one_task_and_many_give_the_same_however_it_is_split(spark: SparkSession, exact: bool) -> None:
    documents = trees(12, 260)
    new = Documents(documents.texts[160:], documents.ids[160:], documents.scores[160:])
    a, b = (
        Documents(documents.texts[at : at + 80], documents.ids[at : at + 80], documents.scores[at : at + 80])
        for at in (0, 80)
    )
    results = []
    for partitions, shuffle, options in ((2, None, {}), (7, 5, {}), (5, 9, SPREAD)):
        runs = [
            earlier_run(spark, b, CERTAIN, "b", exact=exact, partitions=partitions),
            earlier_run(spark, a, CERTAIN, "a", partitions=partitions),
        ]
        chosen = runs if shuffle is None else runs[::-1]
        results.append(dedup(spark, new, CERTAIN, partitions, shuffle, earlier=chosen, **options))
    assert results[1] == results[0]
    assert results[2] == results[0]
    runs_named = {(row["kept_run"], row["kind"]) for row in results[0].removed.values()}
    assert {(None, "near"), ("a", "near"), ("b", "near" if exact else "near_estimated")} <= runs_named
    if exact:
        kept = {i: (row["kept_run"], row["kept_id"]) for i, row in results[0].removed.items()}
        assert kept == greedy_after({"a": a, "b": b}, new, CERTAIN)
    else:
        assert results[0].counts["estimated_pairs"] > 0


def test_a_full_bucket_of_earlier_documents_is_split(spark: SparkSession) -> None:
    """More earlier documents in a bucket than it has room for leaders: new ones still find theirs, or are counted."""
    template = words(7, 150)
    texts = [" ".join([*template, *(f"own{i}_{k}" for k in range(30))]) for i in range(40)]
    setting = Dedup(permutations=80, bands=40, rows=2, threshold=0.95)
    old = Documents(texts)
    new = Documents([f"{text} tail{i}" for i, text in enumerate(texts)], ids=[f"{i + 100:032x}" for i in range(40)])
    limits = Bounds(bounds(setting).pair, bounds(setting).absorb, max_leaders=4)
    earlier = [earlier_run(spark, old, setting, "a")]
    here = dedup(spark, new, setting, earlier=earlier, limits=limits)
    assert len(here.removed) >= 35
    assert {row["kept_run"] for row in here.removed.values()} == {"a"}
    assert {row["kept_id"]: i for i, row in here.removed.items()} == {
        row["kept_id"]: f"{int(row['kept_id'], 16) + 100:032x}" for row in here.removed.values()
    }
    assert dedup(spark, new, setting, earlier=earlier, limits=limits, **SPREAD) == here


def test_estimates_remove_about_what_they_say_and_never_a_lone_shingle(spark: SparkSession) -> None:
    setting = Dedup()
    texts, similar = [], []
    for i in range(200):
        base = words(i, 204)
        other = edit(base, 1 + i % 8, i)
        texts.append((" ".join(base), " ".join(other)))
        similar.append(jaccard(*texts[-1], setting))
    old = Documents([*(a for a, _ in texts), "buy " * 20, "Hello world"])
    new = Documents(
        [*(b for _, b in texts), "buy " * 500, "hello, WORLD"], ids=[f"{i + 1000:032x}" for i in range(202)]
    )
    found = dedup(spark, new, setting, earlier=[earlier_run(spark, old, setting, "a", exact=False)])
    error = standard_error(setting)
    assert error == pytest.approx(0.0378, abs=1e-4)
    off = []
    for i, j in enumerate(similar):
        row = found.removed.get(new.ids[i])
        if row is not None:
            assert row["kind"] == "near_estimated"
            signatures = [signature(shingle_hashes(text, setting), setting) for text in texts[i]]
            assert row["similarity"] == pytest.approx(float((signatures[0] == signatures[1]).mean()))
            off.append(abs(row["similarity"] - j))
        assert row is not None or j < 0.8 + 4 * error
        assert row is None or j > 0.8 - 4 * error
    assert len(off) > 50
    assert sum(o < 2 * error for o in off) > 0.9 * len(off)
    assert new.ids[200] not in found.removed, "one shingle each: 32 bits of it prove nothing"
    assert found.removed[new.ids[201]]["kind"] == "exact"


def test_earlier_runs_alone_remove_nothing_and_do_not_lose_each_other(spark: SparkSession) -> None:
    base = " ".join(words(5, 100))
    old = Documents([base, base, f"{base} tail"])
    found = dedup(spark, Documents([" ".join(words(6, 100))], ids=["f" * 32]), Dedup(), earlier=[
        earlier_run(spark, old, Dedup(), "a"), earlier_run(spark, old, Dedup(), "b"),
    ])  # fmt: skip
    assert found.removed == {}
    assert found.counts["earlier_met"] == 0
    same_record = dedup(spark, only(old, {old.ids[0]}), Dedup(), earlier=[earlier_run(spark, old, Dedup(), "a")])
    assert [(row["kept_run"], row["kept_id"]) for row in same_record.removed.values()] == [("a", old.ids[0])]


def test_an_earlier_run_that_is_not_as_it_says_is_named(spark: SparkSession) -> None:
    base = words(1, 60)
    old, new = Documents([" ".join(base)] * 2), Documents([" ".join([*base, "x"])], ids=["f" * 32])
    run = earlier_run(spark, old, Dedup(), "a")
    other = stored(Documents(old.texts, ids=["1" * 32, "2" * 32]), Dedup(), exact=True)
    frame = spark.createDataFrame(new.rows(Dedup()), SCHEMA)
    wrong = type(run)(run.run_id, run.documents, other, exact=True)
    for options in ({}, SPREAD):
        with pytest.raises(GristmillError, match=r"part-0 of an earlier run does not hold record 0+ where it should"):
            find_duplicates(frame, Dedup(), new.reader(), earlier=[wrong], **options)


ROW = pa.schema(
    [
        *((name, pa.string()) for name in ("record_id", "lang", "exact_hash")),
        ("signature", pa.list_(pa.int64())),
        ("quality_score", pa.float64()),
        *((name, pa.int64()) for name in ("n_words", "n_chars")),
        ("part", pa.string()),
        ("row", pa.int64()),
    ]
)
#: Two words a shingle: short texts have many pairs near the threshold, and every bucket mate is compared. (Above 0.5,
#: since a text of one shingle stands for itself alone.)
SMALL = Dedup(shingle=2, permutations=80, bands=40, rows=2, threshold=0.55)
EVERY = Bounds(pair=0, absorb=bounds(SMALL).absorb)
_text = st.lists(st.sampled_from(list("abcdef")), min_size=3, max_size=7).map(" ".join)
_corpus = st.lists(st.tuples(_text, st.sampled_from([0.1, 0.9, None])), min_size=1, max_size=10)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(_corpus, _corpus, _corpus, st.permutations(range(3)))
def test_small_corpora_end_as_brute_force_says(a: Any, b: Any, new: Any, turn: list[int]) -> None:
    def documents(rows: Any, at: int) -> Documents:
        return Documents([t for t, _ in rows], [f"{at + i:032x}" for i in range(len(rows))], [s for _, s in rows])

    runs = {"a": documents(a, 0), "b": documents(b, 100)}
    mine = documents(new, 200)
    batches = []
    for number, one in ((b"\0\0", runs["a"]), (b"\0\1", runs["b"]), (THIS_RUN, mine)):
        assert len(number) == RUN_BYTES
        rows = one.rows(SMALL)
        random.Random(turn[0]).shuffle(rows)
        batch = pa.RecordBatch.from_pylist([dict(zip(ROW.names, row, strict=True)) for row in rows], ROW)
        batches.append(prepare_batch(SMALL, number, batch))
    readers = Readers(mine.reader(), tuple(stored(one, SMALL, exact=True) for one in runs.values()), exact=2)
    (result,) = settle_batches(SMALL, readers, ("a", "b"), EVERY, iter([batches[i] for i in turn]))
    found = {
        row["record_id"]: (row["kept_run"], row["kept_id"])
        for row in result.to_pylist()
        if row["record_id"] is not None
    }
    assert found == greedy_after(runs, mine, SMALL)
