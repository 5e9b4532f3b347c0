"""The sample of kept texts in which the report looks for copies."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pipeline.recipe import Dedup
from pipeline.report.copies import Copies, texts_of


@given(st.lists(st.lists(st.integers(0, 30))), st.integers(1, 12))
def test_the_smallest_hashes_are_counted_in_full_however_they_come(batches: list[list[int]], size: int) -> None:
    copies = Copies(size)
    for batch in batches:
        copies.add(np.array(batch, np.uint64))
    counts = Counter(number for batch in batches for number in batch)
    chosen = sorted(counts)[:size]
    assert copies.hashes.tolist() == chosen
    assert copies.counts.tolist() == [counts[number] for number in chosen]
    assert copies.extra == sum(counts[number] - 1 for number in chosen)


def test_documents_that_dedup_may_not_compare_are_no_copies() -> None:
    rows = [("0" * 32, lang, crawl) for lang in ("en", "de", None) for crawl in ("a", None)]
    columns = [pa.array([row[i] for row in rows], pa.string()) for i in range(3)]
    batch = pa.RecordBatch.from_arrays(columns, names=["exact_hash", "lang", "crawl"])
    for settings, different in (
        (Dedup(), 1),
        (Dedup(per_language=True), 3),
        (Dedup(per_crawl=True), 2),
        (Dedup(per_language=True, per_crawl=True), 6),
    ):
        assert len(np.unique(texts_of(batch, settings))) == different
    assert len(texts_of(batch.slice(0, 0), Dedup(per_language=True))) == 0
