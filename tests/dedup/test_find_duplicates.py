"""Dedup through its public door: who is removed, by whom, and why."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.dedup.candidates import Bounds, bounds
from pipeline.errors import GristmillError
from pipeline.recipe import Dedup
from tests.dedup.corpus import SCHEMA, Documents, Found, Reader, dedup, greedy, jaccard, words

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: 40 bands of 2 rows: what is similar meets in some bucket for certain (0.36^40), so brute force is the truth.
CERTAIN = Dedup(permutations=80, bands=40, rows=2)
#: Never in one task: buckets, components and survivors by Spark.
SPREAD: dict[str, Any] = {"one_task": 0}


def edit(text: list[str], n: int, seed: int) -> list[str]:
    generator = random.Random(seed)
    out = list(text)
    for at in generator.sample(range(len(text)), n):
        out[at] = f"x{seed}_{at}"
    return out


def trees(seed: int, n: int, size: int = 80) -> Documents:
    """Documents grown from earlier ones by small edits: many pairs near the threshold, chains and stars."""
    generator = random.Random(seed)
    texts: list[list[str]] = []
    for i in range(n):
        if not texts or generator.random() < 0.15:
            texts.append(words(seed * 1000 + i, size))
        else:
            texts.append(edit(generator.choice(texts), generator.randint(0, 3), seed * 1000 + i))
    scores: list[float | None] = [generator.choice([0.1, 0.5, 0.9, None]) for _ in texts]
    return Documents([" ".join(t) for t in texts], scores=scores)


def chain(seed: int, links: int, size: int = 400, step: int = 32) -> list[str]:
    """Neighbours at Jaccard 0.83: each text replaces the next `step` words of the one before."""
    text = words(seed, size)
    texts = [" ".join(text)]
    for link in range(1, links):
        at = (link - 1) * step % size
        fresh = [f"c{seed}_{link}_{k}" for k in range(step)]
        text = [*text[:at], *fresh, *text[at + step :]][:size]
        texts.append(" ".join(text))
    return texts


def check(documents: Documents, found: Found, settings: Dedup) -> None:
    """Every removal is confirmed, in full, against a kept document of higher priority."""
    text = dict(zip(documents.ids, documents.texts, strict=True))
    sizes: dict[str, int] = {}
    for row in found.removed.values():
        sizes[row["kept_id"]] = sizes.get(row["kept_id"], 1) + 1
    for i, row in found.removed.items():
        assert row["kept_id"] not in found.removed
        similarity = jaccard(text[i], text[row["kept_id"]], settings)
        assert similarity >= settings.threshold
        assert row["similarity"] == pytest.approx(similarity)
        assert row["kind"] == ("exact" if text[i].split() == text[row["kept_id"]].split() else "near")
        assert row["cluster_size"] == sizes[row["kept_id"]]
        assert row["kept_run"] is None


@pytest.mark.parametrize("seed", [1, 2])
def test_survivors_are_those_of_the_greedy_over_all_pairs(spark: SparkSession, seed: int) -> None:
    documents = trees(seed, 400)
    found = dedup(spark, documents, CERTAIN)
    assert {i: row["kept_id"] for i, row in found.removed.items()} == greedy(documents, CERTAIN)
    check(documents, found, CERTAIN)


def test_one_task_and_many_give_the_same(spark: SparkSession) -> None:
    documents = trees(5, 200)
    here = dedup(spark, documents, CERTAIN)
    there = dedup(spark, documents, CERTAIN, partitions=7, shuffle=3, **SPREAD)
    assert there == here
    assert here.counts["rounds"] == 2, "the rerun of leaders is part of what is compared"


def test_partitions_and_order_do_not_matter(spark: SparkSession) -> None:
    documents = trees(6, 200)
    whole = dedup(spark, documents, Dedup(), partitions=1)
    assert dedup(spark, documents, Dedup(), partitions=7, shuffle=1) == whole
    assert dedup(spark, documents, Dedup(), partitions=64, shuffle=2, one_task=0) == whole
    assert len(whole.removed) > 50


def test_clusters_leave_one_each(spark: SparkSession) -> None:
    """Case 34: clusters of 2 to 50 and singletons, with ids of any kind, leave one document each."""
    generator = random.Random(34)
    texts: list[str] = []
    for cluster in range(40):
        base = words(cluster, 150)
        texts += [" ".join(edit(base, k % 2, 100 * cluster + k)) for k in range(generator.randint(2, 50))]
    n_clusters = 40
    texts += [" ".join(words(5000 + i, 150)) for i in range(20)]
    order = list(range(len(texts)))
    generator.shuffle(order)
    for ids in ([str(i * 17 + 2**61) for i in order], [f"id {i} é" for i in order], [f"{i:032x}" for i in order]):
        documents = Documents(texts, ids)
        found = dedup(spark, documents, CERTAIN)
        assert len(found.kept(ids)) == n_clusters + 20
        check(documents, found, CERTAIN)


def test_chains_do_not_collapse(spark: SparkSession) -> None:
    """Case 35: a kept document stands for its two neighbours in the chain at most."""
    texts = [text for seed in range(10) for text in chain(seed, 13)]
    long = chain(99, 1000)
    documents = Documents(texts + long)
    assert jaccard(texts[1], texts[2], Dedup()) == pytest.approx(0.83, abs=0.01)
    assert jaccard(texts[0], texts[12], Dedup()) < 0.05
    found = dedup(spark, documents, Dedup())
    check(documents, found, Dedup())
    for seed in range(10):
        assert len(found.kept(documents.ids[13 * seed : 13 * seed + 13])) >= 5
    assert 334 <= len(found.kept(documents.ids[130:])) < 900


@pytest.mark.parametrize("threshold", [0.7, 0.8])
def test_a_shared_template_is_no_duplicate(spark: SparkSession, threshold: float) -> None:
    """Case 36: pages of one template, every pair at Jaccard 0.53, with bands that do find them."""
    settings = Dedup(permutations=250, bands=25, rows=10, threshold=threshold)
    template = words(36, 150)
    texts = [" ".join([*template, *(f"own{i}_{k}" for k in range(65))]) for i in range(300)]
    found = dedup(spark, Documents(texts), settings)
    assert not found.removed


def test_recall_follows_the_curve(spark: SparkSession) -> None:
    """Case 37: planted pairs are removed as often as 1-(1-j^8)^14 says, and pairs at 0.6 never."""
    levels = {0.80: 1, 0.85: 1, 0.90: 1, 0.95: 1, 0.60: 1}
    per_level = 300
    texts: list[str] = []
    expected: dict[float, float] = {}
    for level in levels:
        for i in range(per_level):
            base = words(int(level * 100) * 10_000 + i, 404)
            shared = round(400 * 2 * level / (1 + level) + 0.499)  # shingles kept when the tail is replaced
            other = [*base[: shared + 4], *(f"t{i}_{k}" for k in range(400 - shared))]
            texts += [" ".join(base), " ".join(other)]
        j = jaccard(texts[-1], texts[-2], Dedup())
        assert j == pytest.approx(level, abs=0.004)
        expected[level] = 1 - (1 - j**8) ** 14 if j >= 0.8 else 0.0
    documents = Documents(texts)
    found = dedup(spark, documents, Dedup())
    check(documents, found, Dedup())
    for n, level in enumerate(levels):
        ids = documents.ids[2 * per_level * n : 2 * per_level * (n + 1)]
        recall = (len(ids) - len(found.kept(ids))) / per_level
        print(f"jaccard {level}: removed {recall:.3f}, curve {expected[level]:.3f}")
        assert recall >= expected[level] - 0.05
        assert recall == 0 or level >= 0.8
        assert level < 0.95 or recall >= 0.99


def hot_bucket() -> Documents:
    """Case 43, a tenth of it: unlike documents, and copies of one error page, two thirds with one number changed."""
    page = words(43, 120)
    pages = [" ".join([*page[:60], str(i) if i % 3 else "0", *page[60:]]) for i in range(3000)]
    return Documents([*(" ".join(words(1000 + i, 120)) for i in range(2000)), *pages])


def test_a_hot_bucket_is_linear_and_leaves_one(spark: SparkSession) -> None:
    documents = hot_bucket()
    found = dedup(spark, documents, Dedup())
    assert len(found.kept(documents.ids[2000:])) == 1
    assert len(found.kept(documents.ids[:2000])) == 2000
    assert found.counts["candidate_pairs"] <= 2 * 3000
    assert found.counts["uncompared"] == 0


def test_an_overfull_bucket_is_split_and_what_stays_is_counted(spark: SparkSession) -> None:
    """Leaders are bounded. Pages of one template fill the list; splits find copies, the rest is counted."""
    template = words(7, 150)
    texts = [" ".join([*template, *(f"own{i // 2}_{k}" for k in range(30)), f"last{i}"]) for i in range(120)]
    settings = Dedup(permutations=80, bands=40, rows=2, threshold=0.95)
    small = bounds(settings).pair, bounds(settings).absorb
    here = dedup(spark, Documents(texts), settings, limits=Bounds(*small, max_leaders=4))
    assert here.counts["uncompared"] > 0
    assert len(here.removed) >= 50  # of 60 pairs
    check(Documents(texts), here, settings)
    assert dedup(spark, Documents(texts), settings, limits=Bounds(*small, max_leaders=4), **SPREAD) == here


def test_short_and_repeated_texts(spark: SparkSession) -> None:
    """Fewer words than a shingle: only equal texts merge. A run of one word is one shingle, whatever its length."""
    texts = [
        "Hello world",
        "hello, WORLD!",
        "hello there",
        "!!!",
        "???",
        "!!!",
        "buy " * 20,
        "buy " * 500,
        "sell " * 20,
    ]
    texts += [f"word{i} one" for i in range(50)]
    found = dedup(spark, Documents(texts), CERTAIN)
    kept = {int(i, 16): int(row["kept_id"], 16) for i, row in found.removed.items()}
    assert kept == {0: 1, 5: 3, 6: 7} or kept == {1: 0, 5: 3, 6: 7}
    assert found.removed[f"{5:032x}"]["kind"] == "exact"
    assert found.removed[f"{6:032x}"]["kind"] == "near"


def test_priority_is_the_recipes(spark: SparkSession) -> None:
    base = words(1, 100)
    texts = [" ".join(base), " ".join([*base, "more"]), " ".join([*base, "and", "more"])]
    scores: list[float | None] = [0.9, None, float("nan")]
    by_score = dedup(spark, Documents(texts, scores=scores), Dedup())
    assert {row["kept_id"] for row in by_score.removed.values()} == {f"{0:032x}"}
    by_length = dedup(spark, Documents(texts, scores=scores), Dedup(priority=("n_words", "quality_score")))
    assert {row["kept_id"] for row in by_length.removed.values()} == {f"{2:032x}"}
    tie = dedup(spark, Documents([texts[0]] * 3, ids=["b", "a", "c"]), Dedup())
    assert {i: row["kept_id"] for i, row in tie.removed.items()} == {"b": "a", "c": "a"}


def test_per_language_and_copies_of_a_removed_text(spark: SparkSession) -> None:
    base = words(2, 200)
    near = " ".join([*base, "tail"])
    texts = [near, " ".join(base), " ".join(base), near, " ".join(base)]
    documents = Documents(texts, langs=["en", "en", "en", "de", "fr"])
    across = dedup(spark, documents, Dedup())
    assert {int(i, 16): row["kind"] for i, row in across.removed.items()} == {
        1: "near",
        2: "near",
        3: "exact",
        4: "near",
    }
    assert {row["kept_id"] for row in across.removed.values()} == {f"{0:032x}"}
    assert {row["cluster_size"] for row in across.removed.values()} == {5}
    apart = dedup(spark, documents, Dedup(per_language=True))
    assert set(apart.removed) == {f"{i:032x}" for i in (1, 2)}
    assert dedup(spark, documents, Dedup(per_language=True), **SPREAD) == apart


def test_per_crawl(spark: SparkSession) -> None:
    """Copies and near copies of another crawl stay; documents of no known crawl count as of one."""
    base = " ".join(words(2, 200))
    crawls = ["a", "a", "b", "b", None, None, "a"]
    texts = [base, f"{base} tail", base, f"{base} end", base, f"{base} tail", base]
    documents = Documents(texts, langs=["en"] * 6 + ["de"], crawls=crawls)
    found = dedup(spark, documents, Dedup(per_crawl=True, priority=("n_words",)))
    numbers = {int(i, 16): int(row["kept_id"], 16) for i, row in found.removed.items()}
    assert numbers == {0: 1, 2: 3, 4: 5, 6: 1}
    both = dedup(spark, documents, Dedup(per_crawl=True, per_language=True, priority=("n_words",)))
    assert {int(i, 16) for i in both.removed} == {0, 2, 4}
    assert dedup(spark, documents, Dedup(per_crawl=True, priority=("n_words",)), **SPREAD) == found


def test_near_off_leaves_exact(spark: SparkSession) -> None:
    base = words(3, 200)
    documents = Documents([" ".join(base), " ".join([*base, "x"]), " ".join(base)])
    found = dedup(spark, documents, Dedup(near=False))
    assert len(found.removed) == 1
    assert found.counts["candidate_pairs"] == 0


def test_nothing_in_nothing_out(spark: SparkSession) -> None:
    found = dedup(spark, Documents([]), Dedup())
    assert not found.removed
    assert found.counts["documents"] == 0
    assert found.counts["similarities"] == {}


def test_faults_end_in_one_line(spark: SparkSession) -> None:
    """Case 42: an absent column, an empty key, another recipe's signatures, texts that are gone or not the same."""
    from pipeline.dedup import find_duplicates

    documents = Documents([" ".join(words(1, 60))] * 2 + [" ".join([*words(1, 60), "x"])])
    rows = documents.rows(Dedup())
    frame = spark.createDataFrame(rows, SCHEMA)

    def told(frame: Any, settings: Dedup = Dedup(), reader: Any = documents.reader()) -> str:  # noqa: B008
        with pytest.raises(GristmillError) as error:
            find_duplicates(frame, settings, reader)
        assert "\n" not in str(error.value)
        return str(error.value)

    assert "no column signature" in told(frame.drop("signature"))
    assert "exact_hash is empty" in told(spark.createDataFrame([(*rows[0][:2], "", *rows[0][3:])], SCHEMA))
    assert "112 numbers where this recipe makes 80" in told(frame, CERTAIN)
    other = Reader({part: [f"{text} other" for text in texts] for part, texts in documents.reader().parts.items()})
    assert "not the one that was measured" in told(frame, reader=other)
    assert "part-0 cannot be read: deleted" in told(frame, reader=Gone({}))


class Gone(Reader):
    def __call__(self, part: str, rows: list[int]) -> list[str]:
        raise GristmillError(f"{part} cannot be read: deleted")
