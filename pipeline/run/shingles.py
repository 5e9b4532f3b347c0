"""`shingles/`: the shingle hashes of the kept documents, by which a later run's `--against` compares exactly.

Its parts are in the order of `records/`, one for each; a part's rows are the kept ones of that part, in their order.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline import accounts
from pipeline.datasets import SHINGLES
from pipeline.dedup.signature import scheme
from pipeline.dedup.verify import comparable
from pipeline.recipe import Dedup
from pipeline.run import keys
from pipeline.run.progress import say, watch
from pipeline.storage import Part, PartWriter, RowReader, Storage, stem_of

if TYPE_CHECKING:
    from pipeline.run.curate import Run


def shingles(run: Run) -> bool:
    """Kept where the recipe wants them, removed where it does not."""
    storage, recipe = run.storage, run.recipe
    manifest = storage.read_manifest("shingles")
    if not recipe.dedup.keep_shingles:
        if manifest is None and not storage.list("shingles"):
            return False
        run.begin_changes()
        say("shingles: removed, as the recipe does not keep them")
        storage.drop("shingles")
        return True
    verdicts = run.committed("verdicts")
    key = keys.shingles_key(recipe, verdicts.key)
    if manifest is not None and manifest.key == key:
        return False
    run.begin_changes()
    say("shingles: " + ("what they depend on has changed" if manifest else "new"))
    due = [(record.path, verdict.path) for record, verdict in zip(run.parts(), verdicts.parts, strict=True)]
    parts: list[Part] = []
    if due:
        with watch(run.session, "shingles", len(due)):
            work = run.session.sparkContext.parallelize(due, len(due))
            parts = work.map(partial(_write, storage=storage, settings=recipe.dedup)).collect()
    storage.commit("shingles", key, parts, {"scheme": scheme(recipe.dedup)})
    accounts.check_shingles(storage)
    return True


def _write(paths: tuple[str, str], storage: Storage, settings: Dedup) -> Part:
    records, verdicts = paths
    with (
        PartWriter(storage, "shingles", stem_of(records), SHINGLES) as writer,
        RowReader(storage, records, ["record_id", "text", "edited", "exact_hash"]) as reader,
        RowReader(storage, verdicts, ["kept"]) as judged,
    ):
        kept = [flag for _, table in judged.read(range(judged.num_rows)) for flag in table["kept"].to_pylist()]
        for positions, table in reader.read(np.flatnonzero(np.array(kept, np.bool_))):
            texts = pc.coalesce(table["edited"], table["text"]).to_pylist()
            exact = table["exact_hash"].to_pylist()
            found = [
                np.frombuffer(comparable(text, settings, one, f"{records} row {row}")[0], np.uint32)
                for text, one, row in zip(texts, exact, positions.tolist(), strict=True)
            ]
            ends = np.cumsum([0, *map(len, found)], dtype=np.int32)
            lists = pa.ListArray.from_arrays(pa.array(ends), pa.array(np.concatenate([np.empty(0, np.uint32), *found])))
            columns = [table["record_id"].combine_chunks(), lists.cast(SHINGLES.field("hashes").type)]
            writer.write(pa.RecordBatch.from_arrays(columns, schema=SHINGLES))
        return writer.close()
