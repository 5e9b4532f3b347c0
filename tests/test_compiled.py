"""The compile cache: writable wherever the project lies, and never of other sources."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

#: Each prints 3 and what it cost: the whole process; the first page alone.
WORDS = "import time; from pipeline.text import measure; print(len(measure('Two words.').words()), time.process_time())"
FIRST_PAGE = """
import time
from pipeline.extract import extract
from pipeline.recipe import Extract
begin = time.process_time()
text = extract("<main><p>One line of text.</p><p>A second line.</p><p>The third.</p></main>", None, Extract()).text
print(text.count("\\n") + 1, time.process_time() - begin)
"""


def test_cache_lies_where_it_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pipeline import compiled

    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr(compiled, "_HERE", tmp_path / "project.zip" / "pipeline")
    monkeypatch.setattr(compiled.tempfile, "gettempdir", lambda: str(tmp_path / "tmp"))
    (tmp_path / "project.zip").write_bytes(b"a zip, say")
    folder = compiled.cache_folder()
    assert folder.is_relative_to(tmp_path / "tmp")
    assert os.access(folder, os.W_OK)


def test_other_sources_have_another_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pipeline import compiled

    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(compiled, "_HERE", tmp_path)
    (tmp_path / "kernel.py").write_text("@njit\ndef f(): return 1\n")
    first = compiled.cache_folder()
    assert compiled.cache_folder() == first
    (tmp_path / "kernel.py").write_text("@njit\ndef f(): return 2\n")
    assert compiled.cache_folder() != first


@pytest.mark.parametrize(("code", "seconds_when_warm"), [(WORDS, 6.0), (FIRST_PAGE, 1.5)])
def test_a_process_takes_the_cache_over(code: str, seconds_when_warm: float) -> None:
    """The first process may have to compile; the second only loads. CPU time, which a busy machine does not stretch."""
    for limit in (300.0, seconds_when_warm):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        count, seconds = done.stdout.split()
        assert count == "3"
        assert float(seconds) < limit
