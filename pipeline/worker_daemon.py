"""Runs in place of `pyspark.daemon`: the same, with this project's modules imported before any worker is forked.

A bare worker imports for 1.8 s, one dies with every task that fails, and Spark collects garbage after every task over
all that was imported. Forking after these imports is safe: what starts threads in them (OpenBLAS, Arrow) mends itself
in the child, as it does in every child that reads a crawl file.
"""

from __future__ import annotations

import gc
import importlib

MODULES = ("pipeline.run.tasks", "pipeline.run.selection", "pipeline.run.output", "pyspark.worker")


def load() -> None:
    """Import what tasks use, and leave it out of all later collections."""
    for name in MODULES:
        importlib.import_module(name)
    gc.freeze()


if __name__ == "__main__":
    from pyspark.daemon import manager

    load()
    manager()
