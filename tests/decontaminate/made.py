"""A made-up benchmark, and ways to hide its words in a page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from pipeline.decontaminate import Index, build, open_index, save
from pipeline.recipe import Benchmark, Decontaminate

QUESTION = (
    "A miller grinds fourteen sacks of barley before noon and twice as many after it. How many sacks of barley are "
    "ground on three such days?"
)
ANSWER = "Before noon he grinds 14 and after it 28, so a day makes 42 sacks and three days make 126 of them in the end."
CHINESE = "磨坊主上午磨了十四袋大麦,下午磨的是上午的两倍。三天一共磨多少袋大麦?"
SHORT = "What is the capital of the moon?"

ENTRIES = [
    {"question": SHORT, "answer": "It has none."},
    {"question": QUESTION, "answer": ANSWER},
    {"question": CHINESE, "answer": "一百二十六袋"},
]


def write(path: Path, entries: Sequence[dict[str, str]] = ENTRIES) -> Path:
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return path


def settings(*paths: Path, fields: Sequence[str] = ("question", "answer"), ngram: int = 13) -> Decontaminate:
    """One benchmark per file, named after it."""
    return Decontaminate(
        ngram=ngram,
        benchmarks={p.name.split(".")[0]: Benchmark(path=(str(p),), fields=tuple(fields)) for p in paths},
    )


def index(folder: Path, wanted: Decontaminate) -> Index:
    """As a worker has it: built, written, mapped."""
    save(build(wanted), folder / "index")
    return open_index(folder / "index")
