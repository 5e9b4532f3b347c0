"""What repeated lines cost, per document: python -m tests.bench.lines RUN (a finished run that keeps its texts).

CPU milliseconds of one warm process: dividing and hashing, the whole count of a part (Parquet read and combining
included), and the edit with the run's own repeated lines.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from pipeline.quality.edits import edit
from pipeline.recipe import Edit, Recipe, RepeatedLines
from pipeline.repeated_lines import Table, cut, pieces
from pipeline.run.line_counts import _combined, count_part
from pipeline.storage import RowReader, open_run


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("run")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    storage = open_run(args.run, must_exist=True)
    manifest = storage.read_manifest("records")
    assert manifest is not None
    paths = [part.path for part in manifest.parts]
    texts: list[tuple[str, str]] = []
    for path in paths:
        with RowReader(storage, path, ["record_id", "text"]) as reader:
            for _, table in reader.read(range(reader.num_rows)):
                texts += [(row["record_id"], row["text"]) for row in table.to_pylist() if row["text"] is not None]
    print(f"{len(texts):,} texts of {sum(len(text) for _, text in texts) / len(texts):,.0f} characters")
    for unit in ("line", "sentences"):
        settings = RepeatedLines.model_validate({"unit": unit})
        edits = Edit(repeated_lines=settings)
        recipe = Recipe(edit=edits)
        entries = [count_part(storage, path, recipe)[1] for path in paths]
        whole = _combined(
            *(np.concatenate([getattr(one, name) for one in entries]) for name in ("hashes", "documents", "first"))
        )
        repeated = whole.documents >= settings.min_documents
        table = Table(whole.hashes[repeated], whole.first[repeated])
        print(f"{unit}: {len(whole.hashes):,} distinct, {int(repeated.sum()):,} repeated")
        before = sum(len(text) for _, text in texts)
        done = [cut(text, table, record_id, settings) for record_id, text in texts]
        after = sum(len(one.text) for one in done)
        print(f"  {sum(one.chars > 0 for one in done):,} texts lose {1 - after / before:.1%} of all characters")
        for name, work in (
            ("divide and hash", lambda s=settings: [pieces(text, s) for _, text in texts]),
            ("count", lambda r=recipe: [count_part(storage, path, r) for path in paths]),
            ("edit", lambda t=table, s=settings: [cut(text, t, record_id, s) for record_id, text in texts]),
        ):
            print(f"  {name:16} {_best(work, args.rounds) / len(texts) * 1000:.3f} ms/document")
    c4 = Edit.model_validate({"c4": {}})
    rules = _best(lambda: [edit(text, c4) for _, text in texts], args.rounds)
    print(f"C4's line rules {rules / len(texts) * 1000:.3f} ms/document")


def _best(work: Callable[[], object], rounds: int) -> float:
    seconds = []
    for _ in range(rounds):
        begin = time.process_time()
        work()
        seconds.append(time.process_time() - begin)
    return min(seconds)


if __name__ == "__main__":
    main()
