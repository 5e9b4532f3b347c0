"""The shape of the house, read from the source itself: imports point one way, and no file is a maze."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[1]
STAGES = {"crawl", "extract", "language", "quality", "decontaminate", "dedup", "publish", "report"}
SOURCES = sorted(
    p for room in ("pipeline", "trainer", "jobs", "infra", "tests") for p in (PROJECT / room).rglob("*.py")
)
LONGEST = 500


def imported(path: Path, *, while_running: bool = True) -> Iterator[str]:
    """Full names of the modules that a file imports, inside functions too; `if TYPE_CHECKING` counts unless running."""
    tree = ast.parse(path.read_text("utf-8"))
    skipped = {
        id(node)
        for branch in ast.walk(tree)
        if while_running and isinstance(branch, ast.If) and "TYPE_CHECKING" in ast.unparse(branch.test)
        for node in ast.walk(branch)
    }
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = ".".join(path.relative_to(PROJECT).parent.parts[: None if node.level < 2 else 1 - node.level])
            base = ".".join(filter(None, [package if node.level else "", node.module]))
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def room(module: str) -> str:
    return module.split(".")[0]


def part(module: str) -> str | None:
    """`crawl` of `pipeline.crawl.warc`; None for what is not of the pipeline."""
    names = module.split(".")
    return names[1] if names[0] == "pipeline" and len(names) > 1 else None


def offenders(rule: str) -> list[str]:
    found = set()
    for path in SOURCES:
        here = path.relative_to(PROJECT)
        own_part = part(".".join(here.with_suffix("").parts))
        for module in imported(path):
            wrong = {
                "rooms": here.parts[0] in ("pipeline", "trainer")
                and room(module) in {"pipeline", "trainer", "jobs", "infra", "tests"} - {here.parts[0]},
                "torch": here.parts[0] == "pipeline" and room(module) == "torch",
                "pyspark": here.parts[0] == "trainer" and room(module) == "pyspark",
                "stages": own_part in STAGES and part(module) in STAGES - {own_part},
                "stages use what is above": own_part in STAGES and part(module) in ("run", "annotate"),
                "leaves use what is above": own_part not in {*STAGES, "run", "annotate", "__init__", None}
                and part(module) in {*STAGES, "run", "annotate"},
                "annotate": own_part == "annotate" and part(module) == "run",
            }[rule]
            if wrong:
                found.add(f"{here} imports {module}")
    return sorted(found)


@pytest.mark.parametrize(
    "rule",
    ["rooms", "torch", "pyspark", "stages", "stages use what is above", "leaves use what is above", "annotate"],
)
def test_imports_point_one_way(rule: str) -> None:
    assert offenders(rule) == []


def test_the_checks_see_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = {
        "pipeline/crawl/one.py": "def f():\n    from pipeline import quality\n",
        "pipeline/text.py": "import pipeline.run.curate\n",
        "pipeline/quality/two.py": "from .. import crawl\nif TYPE_CHECKING:\n    import pipeline.dedup\n",
        "trainer/three.py": "from pyspark.sql import SparkSession\nimport pipeline.text\n",
    }
    for name, text in bad.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setitem(globals(), "PROJECT", tmp_path)
    monkeypatch.setitem(globals(), "SOURCES", [tmp_path / name for name in bad])
    assert offenders("stages") == [
        "pipeline/crawl/one.py imports pipeline.quality",
        "pipeline/quality/two.py imports pipeline.crawl",
    ]
    assert offenders("leaves use what is above") == ["pipeline/text.py imports pipeline.run.curate"]
    assert offenders("pyspark") == [
        "trainer/three.py imports pyspark.sql",
        "trainer/three.py imports pyspark.sql.SparkSession",
    ]
    assert offenders("rooms") == ["trainer/three.py imports pipeline.text"]


def test_no_file_is_longer_than_one_can_read() -> None:
    lengths = {str(p.relative_to(PROJECT)): len(p.read_text("utf-8").splitlines()) for p in SOURCES}
    assert {name: n for name, n in lengths.items() if n > LONGEST} == {}


def test_importing_the_pipeline_loads_no_torch() -> None:
    code = "import sys, pipeline.annotate, pipeline.run; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=PROJECT, check=False).returncode == 0
