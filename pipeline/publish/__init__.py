"""Survivors to shards: mask, count, cut, write, list."""

from pipeline.publish.job import RunInfo, publish
from pipeline.publish.manifest import ShardsManifest, read_shards_manifest
from pipeline.publish.tokens import open_tokenizer

__all__ = ["RunInfo", "ShardsManifest", "open_tokenizer", "publish", "read_shards_manifest"]
