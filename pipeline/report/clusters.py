"""Duplicates: how large the clusters are, which survivor each removed record stands behind, how similar they were."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.report import elsewhere, numbers
from pipeline.report.counting import Integers
from pipeline.report.reading import Run
from pipeline.report.rows import fetch, find

SIMILARITY_BINS = 50
#: Id and run of a survivor; None = this run.
_Kept = tuple[str, str | None]
_PAGE = ("record_id", "url", "title", "lang", "n_words")
_COLUMNS = ("record_id", "kept_id", "kept_run", "similarity", "kind", "cluster_size")


@dataclass
class Duplicates:
    """`sizes`: cluster size, survivor included -> clusters. `similarities`: near ones, in bins over [0, 1]."""

    removed: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    sizes: dict[int, int] = field(default_factory=dict)
    similarities: Integers = field(default_factory=lambda: np.zeros(SIMILARITY_BINS, np.int64))
    largest: list[Cluster] = field(default_factory=list)
    against: list[dict[str, Any]] = field(default_factory=list)  #: earlier runs, as `elsewhere.counted` tells of them

    @property
    def clusters(self) -> int:
        return sum(self.sizes.values())


@dataclass
class Cluster:
    """`members`: removed records, most similar first; at most as many as were asked for."""

    kept_id: str
    kept_run: str | None
    size: int
    survivor: dict[str, Any] | None = None
    members: list[dict[str, Any]] = field(default_factory=list)


def summarize(run: Run, largest: int, members: int) -> Duplicates:
    """One pass over `duplicates/`, and a second one for the members of the `largest` clusters."""
    result = Duplicates()
    rows_of_size: Counter[int] = Counter()
    leaders: dict[_Kept, int] = {}
    elsewhere_removed: dict[str, Counter[str]] = defaultdict(Counter)
    for batch in run.rows("duplicates", _COLUMNS):
        result.removed += len(batch)
        for entry in pc.value_counts(batch["kind"]).to_pylist():
            result.kinds[entry["values"]] += entry["counts"]
        others = pa.Table.from_batches([batch.filter(pc.is_valid(batch["kept_run"]))])
        for entry in others.group_by(["kept_run", "kind"]).aggregate([([], "count_all")]).to_pylist():
            elsewhere_removed[entry["kept_run"]][entry["kind"]] += entry["count_all"]
        near = batch.filter(pc.not_equal(batch["kind"], "exact"))
        bins = np.asarray(pc.fill_null(near["similarity"], 0.0)) * SIMILARITY_BINS
        result.similarities += np.bincount(
            np.clip(bins.astype(np.int64), 0, SIMILARITY_BINS - 1), minlength=SIMILARITY_BINS
        )
        for entry in pc.value_counts(batch["cluster_size"]).to_pylist():
            rows_of_size[entry["values"]] += entry["counts"]
        leaders = _leaders(leaders, batch, largest)
    # A cluster of size n has n - 1 rows here, each with that size.
    result.sizes = {size: -(-rows // max(1, size - 1)) for size, rows in sorted(rows_of_size.items())}
    result.largest = [Cluster(kept, run_id, size) for (kept, run_id), size in leaders.items()]
    result.against = elsewhere.counted(run, elsewhere_removed)
    _fill(run, result.largest, members)
    return result


def _leaders(known: dict[_Kept, int], batch: pa.RecordBatch, largest: int) -> dict[_Kept, int]:
    """The `largest` clusters among `known` and those of `batch`: largest first, ties by id."""
    table = pa.Table.from_batches([batch]).group_by(["kept_id", "kept_run"]).aggregate([("cluster_size", "max")])
    merged = dict(known)
    for row in table.to_pylist():
        merged[row["kept_id"], row["kept_run"]] = row["cluster_size_max"]
    ranked = sorted(merged.items(), key=lambda item: (-item[1], item[0][0], item[0][1] or ""))
    return dict(ranked[:largest])


def _fill(run: Run, clusters: list[Cluster], members: int) -> None:
    """Give each cluster its survivor's row and up to `members` removed ones, most similar first, ties by id."""
    wanted = pa.array([c.kept_id for c in clusters], pa.string())
    found: dict[_Kept, list[dict[str, Any]]] = defaultdict(list)
    if clusters:
        for batch in run.rows("duplicates", _COLUMNS):
            hits = batch.filter(pc.is_in(batch["kept_id"], value_set=wanted))
            for row in hits.to_pylist():
                found[row["kept_id"], row["kept_run"]].append(row)
            for rows in found.values():
                rows.sort(key=lambda r: (-(r["similarity"] or 0), r["record_id"]))
                del rows[members:]
    ids = {c.kept_id for c in clusters if c.kept_run is None}
    ids.update(row["record_id"] for rows in found.values() for row in rows)
    pages = fetch(run, find(run, ids), _PAGE)
    others = {run_id: elsewhere.reopen(run, run_id) for run_id in {c.kept_run for c in clusters} - {None} if run_id}
    for cluster in clusters:
        if cluster.kept_run is None:
            cluster.survivor = pages.get(cluster.kept_id)
        elif (other := others[cluster.kept_run]) is not None:
            cluster.survivor = fetch(other, find(other, [cluster.kept_id]), _PAGE).get(cluster.kept_id)
        for row in found[cluster.kept_id, cluster.kept_run]:
            page = pages.get(row["record_id"], {})
            cluster.members.append({**page, **{k: row[k] for k in ("record_id", "similarity", "kind")}})


def of_record(run: Run, record_id: str) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    """(its own row in `duplicates/` if it was removed, the rows of those that were removed in its favour)."""
    removed: dict[str, Any] | None = None
    favoured: list[dict[str, Any]] = []
    for batch in run.rows("duplicates", _COLUMNS):
        own = pc.equal(batch["record_id"], record_id)
        other = pc.fill_null(pc.equal(batch["kept_id"], record_id), False)
        for row in batch.filter(pc.or_(own, other)).to_pylist():
            if row["record_id"] == record_id:
                removed = row
            elif row["kept_run"] is None:
                favoured.append(row)
    favoured.sort(key=lambda r: (-(r["similarity"] or 0), r["record_id"]))
    return removed, favoured


def caught(similarity: float, bands: int, rows: int) -> float:
    """P(two documents of this Jaccard similarity share a band): the S-curve of shared/rules.md 3.6."""
    return float(1 - (1 - similarity**rows) ** bands)


def size_groups(sizes: dict[int, int]) -> list[tuple[str, int, int]]:
    """(size or range of sizes, clusters, removed records): single sizes up to 4, then steps that double."""
    groups: dict[int, list[int]] = {}
    for size, n in sizes.items():
        group = groups.setdefault(size if size <= 4 else 2 ** (size - 1).bit_length(), [0, 0])
        group[0] += n
        group[1] += n * (size - 1)
    return [
        (numbers.count(top) if top <= 4 else f"{top // 2 + 1:,}–{top:,}", clusters, removed)
        for top, (clusters, removed) in sorted(groups.items())
    ]


def as_json(seen: Duplicates) -> dict[str, Any]:
    return {
        "removed": seen.removed,
        "clusters": seen.clusters,
        "kinds": dict(sorted(seen.kinds.items())),
        "sizes": {str(size): n for size, n in seen.sizes.items()},
        "against": seen.against,
        "largest": [asdict(cluster) for cluster in seen.largest],
    }


def as_text(seen: Duplicates) -> str:
    """Sizes, then each of the largest clusters: its survivor and the removed ones that are shown."""
    if not seen.removed:
        return "no duplicates were removed"
    kinds = ", ".join(f"{n:,} {kind.replace('_', ' ')}" for kind, n in sorted(seen.kinds.items()))
    sizes = [["documents, survivor included", "clusters", "removed"]]
    sizes += [[label, numbers.count(n), numbers.count(removed)] for label, n, removed in size_groups(seen.sizes)]
    blocks = [
        f"{seen.removed:,} removed ({kinds}) in favour of {seen.clusters:,} survivors",
        numbers.table(sizes, ">>>"),
    ]
    if seen.against:
        blocks.append(f"removed in favour of documents of earlier runs:\n\n{elsewhere.as_text(seen.against)}")
    for cluster in seen.largest:
        where = f" (in run {cluster.kept_run})" if cluster.kept_run else ""
        rows = [[f"{cluster.size:,} documents", "words", "similarity", f"address{where}"]]
        rows.append([cluster.kept_id, *_row(cluster.survivor or {}, "kept")])
        for member in cluster.members:
            similarity = "" if member["similarity"] is None else f"{member['similarity']:.4f}"
            rows.append([member["record_id"], *_row(member, similarity)])
        more = cluster.size - 1 - len(cluster.members)
        blocks.append(numbers.table(rows, "<>><") + (f"\n… and {more:,} more" if more > 0 else ""))
    return "\n\n".join(blocks)


def _row(page: dict[str, Any], similarity: str) -> list[str]:
    return [numbers.count(page.get("n_words")), similarity, numbers.printable(page.get("url") or numbers.NONE)]
