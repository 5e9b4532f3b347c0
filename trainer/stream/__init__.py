"""Curated shards to packed batches: see `loader.py` first, then `packing.py` and `plan.py`."""

from trainer.stream.batch import Batch, Span, Utilisation
from trainer.stream.config import Source, StreamConfig, sources_of
from trainer.stream.errors import StreamError, StreamUsageError
from trainer.stream.loader import Loader
from trainer.stream.manifest import Manifest, read_manifest
from trainer.stream.state import merge

__all__ = [
    "Batch",
    "Loader",
    "Manifest",
    "Source",
    "Span",
    "StreamConfig",
    "StreamError",
    "StreamUsageError",
    "Utilisation",
    "merge",
    "read_manifest",
    "sources_of",
]
