"""Benchmarks out of the training data: documents that hold a run of words of a benchmark's entry.

benchmarks.py   files -> entries      index.py   entries -> sorted n-gram hashes, in one file that workers map
ngrams.py       text -> units -> hashes           match.py   text x index -> overlaps, verified word by word
"""

from pipeline.decontaminate.benchmarks import check
from pipeline.decontaminate.index import Index, build, open_index, save
from pipeline.decontaminate.match import Overlap, overlaps

__all__ = ["Index", "Overlap", "build", "check", "open_index", "overlaps", "save"]
