"""The conservation law: a run that balances passes, every planted imbalance is found and named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline import accounts
from pipeline.errors import GristmillError
from pipeline.storage import Storage
from tests.publish import made

Run = dict[str, list[list[dict[str, Any]]]]
UNKNOWN = made.record_id(5_000)


def kept_ids(run: Run) -> list[str]:
    return [row["record_id"] for rows in run["verdicts"] for row in rows if row["kept"]]


def test_a_run_that_balances(tmp_path: Path) -> None:
    storage, run = Storage(str(tmp_path)), made.balanced_run(Storage(str(tmp_path)))
    made.write_run(storage, run, kept_ids(run))
    accounts.check(storage)
    assert accounts.counts(storage) == {
        "records": 41,
        "kept": 28,
        "rejected": {
            "dedup": {"exact": 2, "near": 2},
            "quality": {"gopher_short_doc": 8},
            "read": {"damaged": 1},
        },
    }


def test_an_empty_run_balances(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    made.write_run(storage, {"inputs": [[]], "records": [], "verdicts": [], "duplicates": [[]]}, [])
    accounts.check(storage)
    assert accounts.counts(storage) == {"records": 0, "kept": 0, "rejected": {}}


def _set(dataset: str, file: int, row: int, **values: Any) -> Callable[[Run], None]:
    def change(run: Run) -> None:
        run[dataset][file][row] |= values

    return change


def _remove(dataset: str, file: int, row: int) -> Callable[[Run], None]:
    def change(run: Run) -> None:
        del run[dataset][file][row]

    return change


def _twice(dataset: str, file: int, row: int) -> Callable[[Run], None]:
    def change(run: Run) -> None:
        run[dataset][file].append(run[dataset][file][row])

    return change


def _swap(run: Run) -> None:
    rows = run["verdicts"][2]
    rows[0], rows[1] = rows[1], rows[0]


def _failed_with_rows(run: Run) -> None:
    run["inputs"][0][1] |= {"status": "failed"}


def _one_id_twice(run: Run) -> None:
    for dataset in ("records", "verdicts"):
        run[dataset][1][2]["record_id"] = run[dataset][1][0]["record_id"]


PLANTED: dict[str, tuple[Callable[[Run], None], str]] = {
    "uncovered bytes": (_set("inputs", 0, 1, bytes_covered=999), "f1.warc.gz: records and gaps cover 999 of 1000"),
    "covered twice": (_set("inputs", 0, 0, bytes_covered=1001), "f0.warc.gz: records and gaps cover 1001 of 1000"),
    "a record lost": (_remove("records", 2, 3), "f2.warc.gz: its reader counted 10 records and gaps, records/ has 9"),
    "a record doubled": (_twice("records", 2, 3), "f2.warc.gz: its reader counted 10 .* has 11 rows"),
    "a gap without a row": (_remove("records", 0, 10), "f0.warc.gz: its reader counted 11 .* has 10 rows"),
    "a stranger": (_set("records", 3, 0, input_id="e" * 32), "f3.warc.gz: its reader counted 10 .* has 9 rows"),
    "an input without a row": (_remove("inputs", 0, 3), "records/ has 10 rows of input 0+3, which is not in inputs/"),
    "an input twice": (_twice("inputs", 0, 2), "f2.warc.gz has two rows in inputs/"),
    "rows of a failed input": (_failed_with_rows, "f1.warc.gz: its reader counted 0 .* has 10 rows"),
    "a verdict lost": (_remove("verdicts", 1, 0), "records/part-00001.* has 10 rows, its verdicts .* 9"),
    "verdicts in another order": (_swap, "verdicts/part-00002.* does not hold the ids of records/part-00002"),
    "a file without verdicts": (lambda run: run["verdicts"].pop(), "4 files in records/, 3 in verdicts/") ,
    "one id twice": (_one_id_twice, "a record_id occurs twice"),
    "a duplicate lost": (_remove("duplicates", 0, 0), "2 verdicts say dedup (exact|near), duplicates/ has 1 such"),
    "a duplicate doubled": (_twice("duplicates", 0, 1), "2 verdicts say dedup (exact|near), duplicates/ has 3 such"),
    "another duplicate": (_set("duplicates", 0, 0, record_id=UNKNOWN), "name other records as (exact|near) duplicates"),
    "a stand-in not kept": (_set("duplicates", 0, 2, kept_id=UNKNOWN), "1 documents for which others were removed are"),
    "kept without a shard row": (_set("verdicts", 0, 10, kept=True), "29 records are kept, shards/manifest.json .* 28"),
    "rejected with a shard row": (
        _set("verdicts", 1, 0, kept=False, stage="quality", reason="x"),
        "27 records are kept, shards/manifest.json lists 28 rows",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_imbalance_is_named(tmp_path: Path, name: str) -> None:
    change, message = PLANTED[name]
    storage = Storage(str(tmp_path))
    run = made.balanced_run(storage)
    published = kept_ids(run)
    change(run)
    made.write_run(storage, run, published)
    with pytest.raises(GristmillError, match=f"^accounts: .*{message}") as caught:
        accounts.check(storage)
    assert "\n" not in str(caught.value)


def test_shards_of_other_documents_are_found(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    run = made.balanced_run(storage)
    made.write_run(storage, run, [UNKNOWN, *kept_ids(run)[1:]])
    with pytest.raises(GristmillError, match="shards/ holds other records than those that are kept"):
        accounts.check(storage)


def test_a_stand_in_of_another_run_is_not_looked_for_here(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    run = made.balanced_run(storage)
    run["duplicates"][0][2] |= {"kept_id": UNKNOWN, "kept_run": "elsewhere"}
    made.write_run(storage, run, kept_ids(run))
    accounts.check(storage)


@pytest.mark.parametrize("dataset", ["inputs", "records", "verdicts", "duplicates", "shards"])
@pytest.mark.parametrize("harm", ["missing", "cut", "replaced"])
def test_files_that_are_not_as_committed_are_found(tmp_path: Path, dataset: str, harm: str) -> None:
    storage = Storage(str(tmp_path))
    run = made.balanced_run(storage)
    made.write_run(storage, run, kept_ids(run))
    manifest = storage.read_manifest(dataset)
    assert manifest is not None
    path = manifest.parts[0].path
    data = storage.read_bytes(path)
    if harm == "missing":
        storage.delete([path])
    elif harm == "cut":
        storage.put_bytes(path, data[: len(data) // 2])
    else:  # as many bytes, but not the file
        storage.put_bytes(path, bytes(len(data)))
    with pytest.raises(GristmillError, match=f"^accounts: {path} (is missing|has|cannot be read)"):
        accounts.check(storage)


def test_a_manifest_that_promises_other_rows_is_found(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    run = made.balanced_run(storage)
    made.write_run(storage, run, kept_ids(run))
    tree = storage.read_json("records/_manifest.json")
    tree["parts"][0]["rows"] += 1
    storage.put_json("records/_manifest.json", tree)
    with pytest.raises(GristmillError, match="holds 11 rows, its manifest says 12"):
        accounts.check(storage)


def test_what_was_never_committed_is_named(tmp_path: Path) -> None:
    with pytest.raises(GristmillError, match="/records was never committed"):
        accounts.check(Storage(str(tmp_path)))
