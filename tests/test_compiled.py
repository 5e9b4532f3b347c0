"""The compile cache: writable wherever the project lies, and never of other sources."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CODE = "import time; from pipeline.text import measure; print(len(measure('Two words.').words()), time.process_time())"


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


def test_a_process_takes_the_cache_over() -> None:
    """The first process may have to compile; the second only loads. CPU time, which a busy machine does not stretch."""
    for limit in (300.0, 6.0):
        done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
        count, seconds = done.stdout.split()
        assert count == "3"
        assert float(seconds) < limit
