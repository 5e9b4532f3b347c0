"""The conservation law (shared/design.md, law 1), checked on what lies on disk.

Every number comes from committed rows: row counts from the files' own footers, ids and reasons from the columns. What
tasks reported stands in manifests only to be checked against that. Each check raises GristmillError that names the
first imbalance: which file, which numbers.

An input's `records_by_type` counts the records that got a row in `records/`, `skipped_by_type` those that did not;
each entry of `gaps` has a row too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from pipeline.datasets import STAGES
from pipeline.errors import GristmillError
from pipeline.storage import Manifest, Part, Storage

#: An input with one of these has no rows in `records/`.
WITHOUT_RECORDS = frozenset({"failed", "skipped"})
_THREADS = 8
_BATCH = 65_536
_T = TypeVar("_T")


def check(storage: Storage, earlier: Mapping[str, Storage] | None = None) -> None:
    """All checks below, in the order of the pipeline."""
    check_records(storage)
    check_verdicts(storage)
    check_duplicates(storage, earlier)
    check_shingles(storage)
    check_shards(storage)


def check_records(storage: Storage) -> None:
    """Spans and gaps tile each input file; its rows in `records/` are those that its reader counted."""
    rows = _records_by_input(storage)
    seen: set[str] = set()
    for entry in _inputs(storage):
        input_id, uri = entry["input_id"], entry["uri"]
        if input_id in seen:
            raise GristmillError(f"accounts: {uri} has two rows in inputs/; run again")
        seen.add(input_id)
        expected = 0
        if entry["status"] not in WITHOUT_RECORDS:
            if entry["bytes_covered"] != entry["size"]:
                raise GristmillError(
                    f"accounts: {uri}: records and gaps cover {entry['bytes_covered']} of {entry['size']} bytes"
                )
            expected = sum(count for _, count in entry["records_by_type"] or ()) + len(entry["gaps"] or ())
        if rows[input_id] != expected:
            raise GristmillError(
                f"accounts: {uri}: its reader counted {expected} records and gaps, records/ has {rows[input_id]} rows"
            )
    strangers = [input_id for input_id in rows if input_id not in seen]
    if strangers:
        raise GristmillError(
            f"accounts: records/ has {rows[strangers[0]]} rows of input {strangers[0]}, which is not in inputs/"
        )


def check_verdicts(storage: Storage) -> None:
    """File by file, `verdicts/` has the ids of `records/`, row by row; no id occurs twice."""
    records, verdicts = _manifest(storage, "records"), _manifest(storage, "verdicts")
    _check_parts(storage, verdicts)
    if len(records.parts) != len(verdicts.parts):
        raise GristmillError(f"accounts: {len(records.parts)} files in records/, {len(verdicts.parts)} in verdicts/")

    def hashes(pair: tuple[Part, Part]) -> npt.NDArray[np.uint64]:
        record, verdict = pair
        if record.rows != verdict.rows:
            raise GristmillError(
                f"accounts: {record.path} has {record.rows} rows, its verdicts {verdict.path} {verdict.rows}"
            )
        ids = _column(storage, verdict, "record_id")
        if not _column(storage, record, "record_id").equals(ids):
            raise GristmillError(f"accounts: {verdict.path} does not hold the ids of {record.path} in their order")
        return _hashes(ids)

    every = _concatenated(_parallel(hashes, zip(records.parts, verdicts.parts, strict=True)))
    if len(np.unique(every)) != len(every):
        raise GristmillError("accounts: a record_id occurs twice in records/")


def check_duplicates(storage: Storage, earlier: Mapping[str, Storage] | None = None) -> None:
    """`dedup` verdicts are the rows of `duplicates/`, by kind and id; who stands for them is kept.

    Those of other runs are looked for in the shards of `earlier` (run id -> its folder); None: not at all.
    """
    duplicates = _manifest(storage, "duplicates")
    _check_parts(storage, duplicates)
    removed: dict[str, list[pa.ChunkedArray]] = defaultdict(list)
    stand_ins: list[npt.NDArray[np.uint64]] = []
    elsewhere: dict[str, list[npt.NDArray[np.uint64]]] = defaultdict(list)
    for part in duplicates.parts:
        table = _read(storage, part, ["record_id", "kept_id", "kept_run", "kind"])
        exact = pc.equal(table["kind"], "exact")
        removed["exact"].append(table.filter(exact)["record_id"])
        removed["near"].append(table.filter(pc.invert(exact))["record_id"])
        stand_ins.append(_hashes(table.filter(pc.is_null(table["kept_run"]))["kept_id"]))
        for run_id in pc.unique(table["kept_run"]).drop_null().to_pylist():
            elsewhere[run_id].append(_hashes(table.filter(pc.equal(table["kept_run"], run_id))["kept_id"]))
    judged: dict[str, list[pa.ChunkedArray]] = defaultdict(list)
    kept: list[npt.NDArray[np.uint64]] = []
    for table in _verdicts(storage):
        for reason in ("exact", "near"):
            chosen = pc.and_(pc.equal(table["stage"], "dedup"), pc.equal(table["reason"], reason))
            judged[reason].append(table.filter(chosen)["record_id"])
        kept.append(_hashes(table.filter(table["kept"])["record_id"]))
    for reason in ("exact", "near"):
        here, there = (_concatenated(map(_hashes, found[reason])) for found in (judged, removed))
        if len(here) != len(there):
            raise GristmillError(
                f"accounts: {len(here)} verdicts say dedup {reason}, duplicates/ has {len(there)} such rows"
            )
        if not np.array_equal(np.sort(here), np.sort(there)):
            raise GristmillError(f"accounts: verdicts and duplicates/ name other records as {reason} duplicates")
    lost = np.setdiff1d(_concatenated(stand_ins), _concatenated(kept))
    if len(lost):
        raise GristmillError(f"accounts: {len(lost)} documents for which others were removed are not kept themselves")
    if earlier is not None:
        for run_id in sorted(elsewhere):
            _check_earlier(run_id, np.unique(np.concatenate(elsewhere[run_id])), earlier)


def _check_earlier(run_id: str, wanted: npt.NDArray[np.uint64], earlier: Mapping[str, Storage]) -> None:
    """The documents `wanted` (hashes of ids) are in the shards of the run, which is read part by part."""
    if run_id not in earlier:
        raise GristmillError(f"accounts: duplicates/ names run {run_id}, which this run was not compared with")
    storage = earlier[run_id]
    manifest = _manifest(storage, "shards")
    if manifest.key != run_id:
        raise GristmillError(f"accounts: {storage.uri} was run {run_id} and is {manifest.key} now; run again")
    for found in _parallel(lambda part: _hashes(_column(storage, part, "record_id")), manifest.parts):
        wanted = wanted[~np.isin(wanted, found)]
    if len(wanted):
        raise GristmillError(
            f"accounts: {len(wanted)} documents for which others were removed are not in {storage.uri}/shards"
        )


def check_shingles(storage: Storage) -> None:
    """`shingles/`, where there are any, has the ids of the kept verdicts, row by row."""
    manifest = storage.read_manifest("shingles")
    if manifest is None:
        return
    _check_parts(storage, manifest)
    verdicts = _manifest(storage, "verdicts")
    if len(verdicts.parts) != len(manifest.parts):
        raise GristmillError(f"accounts: {len(verdicts.parts)} files in verdicts/, {len(manifest.parts)} in shingles/")

    def compare(pair: tuple[Part, Part]) -> None:
        verdict, part = pair
        table = _read(storage, verdict, ["record_id", "kept"])
        if not table.filter(table["kept"])["record_id"].equals(_column(storage, part, "record_id")):
            raise GristmillError(f"accounts: {part.path} does not hold the ids that {verdict.path} keeps; run again")

    for _ in _parallel(compare, zip(verdicts.parts, manifest.parts, strict=True)):
        pass


def removed_for_earlier(storage: Storage) -> dict[str, dict[str, int]]:
    """Run id -> kind -> records removed in favour of a document of that earlier run, counted in `duplicates/`."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for part in _manifest(storage, "duplicates").parts:
        table = _read(storage, part, ["kept_run", "kind"])
        table = table.filter(pc.is_valid(table["kept_run"]))
        for group in table.group_by(["kept_run", "kind"]).aggregate([([], "count_all")]).to_pylist():
            found[group["kept_run"]][group["kind"]] += group["count_all"]
    return {run_id: dict(sorted(kinds.items())) for run_id, kinds in sorted(found.items())}


def check_shards(storage: Storage) -> None:
    """The kept verdicts are the rows of `shards/`, id by id."""
    shards = _manifest(storage, "shards")
    _check_parts(storage, shards)
    kept = _concatenated(_hashes(table.filter(table["kept"])["record_id"]) for table in _verdicts(storage))
    if len(kept) != shards.rows:
        raise GristmillError(f"accounts: {len(kept)} records are kept, shards/manifest.json lists {shards.rows} rows")
    if shards.extra["totals"]["rows"] != shards.rows:
        raise GristmillError(
            f"accounts: shards/manifest.json totals {shards.extra['totals']['rows']} rows, its files {shards.rows}"
        )
    published = _concatenated(_parallel(lambda part: _hashes(_column(storage, part, "record_id")), shards.parts))
    if not np.array_equal(np.sort(kept), np.sort(published)):
        raise GristmillError("accounts: shards/ holds other records than those that are kept")


def counts(storage: Storage) -> dict[str, Any]:
    """{records, kept, rejected: {stage: {reason: n}}}, counted in the rows of `verdicts/`."""
    kept = records = 0
    rejected: Counter[tuple[str, str]] = Counter()
    for table in _verdicts(storage):
        records += table.num_rows
        kept += pc.sum(table["kept"]).as_py() or 0
        lost = table.filter(pc.invert(table["kept"]))
        for group in lost.group_by(["stage", "reason"]).aggregate([([], "count_all")]).to_pylist():
            rejected[group["stage"], group["reason"]] += group["count_all"]
    if kept + sum(rejected.values()) != records:
        raise GristmillError(f"accounts: {records} verdicts, of which {kept} kept, {sum(rejected.values())} rejected")
    tree: dict[str, dict[str, int]] = defaultdict(dict)
    for (stage, reason), count in sorted(rejected.items(), key=lambda item: (STAGES.index(item[0][0]), item[0][1])):
        tree[stage][reason] = count
    return {"records": records, "kept": kept, "rejected": dict(tree)}


# -- reading what is committed


def _manifest(storage: Storage, dataset: str) -> Manifest:
    manifest = storage.read_manifest(dataset)
    if manifest is None:
        raise GristmillError(f"accounts: {storage.uri}/{dataset} was never committed; run again")
    return manifest


def _check_parts(storage: Storage, manifest: Manifest) -> None:
    """Every listed file is there, whole (its size in one listing, its rows in its footer)."""
    sizes = storage.sizes(manifest.dataset)
    for part in manifest.parts:
        if sizes.get(part.path) != part.file_bytes:
            there = f"has {sizes[part.path]} bytes" if part.path in sizes else "is missing"
            raise GristmillError(f"accounts: {part.path} {there}, its manifest says {part.file_bytes}; run again")

    def rows(part: Part) -> int:
        with _opened(storage, part) as file:
            return int(file.metadata.num_rows)

    for part, found in zip(manifest.parts, _parallel(rows, manifest.parts), strict=True):
        if found != part.rows:
            raise GristmillError(f"accounts: {part.path} holds {found} rows, its manifest says {part.rows}; run again")


def _inputs(storage: Storage) -> Iterator[dict[str, Any]]:
    manifest = _manifest(storage, "inputs")
    _check_parts(storage, manifest)
    columns = ["input_id", "uri", "size", "status", "records_by_type", "gaps", "bytes_covered"]
    for part in manifest.parts:
        yield from _read(storage, part, columns).to_pylist()


def _records_by_input(storage: Storage) -> Counter[str]:
    manifest = _manifest(storage, "records")
    _check_parts(storage, manifest)

    def rows(part: Part) -> Counter[str]:
        found: Counter[str] = Counter()
        for value in _column(storage, part, "input_id").value_counts().to_pylist():
            found[value["values"]] += value["counts"]
        return found

    return sum(_parallel(rows, manifest.parts), Counter())


def _verdicts(storage: Storage) -> Iterator[pa.Table]:
    manifest = _manifest(storage, "verdicts")
    return _parallel(lambda part: _read(storage, part, ["record_id", "kept", "stage", "reason"]), manifest.parts)


@contextmanager
def _opened(storage: Storage, part: Part) -> Iterator[pq.ParquetFile]:
    try:
        with storage.open_input(part.path) as source:
            yield pq.ParquetFile(source, page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        raise GristmillError(f"accounts: {part.path} cannot be read ({' '.join(str(error).split())})") from None


def _read(storage: Storage, part: Part, columns: list[str]) -> pa.Table:
    with _opened(storage, part) as file:
        return file.read(columns=columns, use_threads=False)


def _column(storage: Storage, part: Part, name: str) -> pa.ChunkedArray:
    return _read(storage, part, [name])[name]


def _hashes(ids: pa.ChunkedArray) -> npt.NDArray[np.uint64]:
    return np.fromiter((xxhash.xxh3_64_intdigest(i.encode()) for i in ids.to_pylist()), np.uint64, len(ids))


def _concatenated(arrays: Iterable[npt.NDArray[np.uint64]]) -> npt.NDArray[np.uint64]:
    return np.concatenate([np.zeros(0, np.uint64), *arrays])


def _parallel(work: Callable[[Any], _T], items: Iterable[Any]) -> Iterator[_T]:
    """Results in order; a few ahead, so that memory does not grow with the number of files."""
    waiting = iter(items)
    with ThreadPoolExecutor(_THREADS) as pool:
        running = [pool.submit(work, item) for item in islice(waiting, 2 * _THREADS)]
        while running:
            done = running.pop(0).result()
            running.extend(pool.submit(work, item) for item in islice(waiting, 1))
            yield done
