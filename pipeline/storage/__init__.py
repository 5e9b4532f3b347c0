"""Committed datasets on any file system: attempt-named files, receipts, manifests written last, one run at a time."""

from pipeline.storage.parquet import (
    MAX_VALUE_BYTES,
    ROW_GROUP_BYTES,
    Part,
    PartWriter,
    RowGroups,
    RowReader,
    file_options,
    read_rows,
    row_bytes,
    stem_of,
)
from pipeline.storage.store import Manifest, Receipt, Storage, open_run

__all__ = [
    "MAX_VALUE_BYTES",
    "ROW_GROUP_BYTES",
    "Manifest",
    "Part",
    "PartWriter",
    "Receipt",
    "RowGroups",
    "RowReader",
    "Storage",
    "file_options",
    "open_run",
    "read_rows",
    "row_bytes",
    "stem_of",
]
