"""Runs in place of `pyspark.daemon`: the same, with all that tasks use imported before any worker is forked.

A bare worker imports for 1.8 s, one dies with every task that fails, and Spark collects garbage after every task over
all that was imported. Forking after these imports is safe: what starts threads in them (OpenBLAS, Arrow) mends itself
in the child, as it does in every child that reads a crawl file.
"""

from __future__ import annotations

import gc

import pyspark.worker  # noqa: F401 - each worker's own main module
from pyspark.daemon import manager

from pipeline.run import output, selection, tasks  # noqa: F401

if __name__ == "__main__":
    gc.freeze()
    manager()
