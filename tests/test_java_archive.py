"""The archive of Spark's classes: left by one session, used by the next, never in the way."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline import java
from pipeline.java_archive import archive_options

PROJECT = Path(__file__).resolve().parents[1]
SESSION = """
from pipeline.spark import session
spark = session("local[1]")
assert spark.range(3).count() == 3
java = spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()
print(*java.getInputArguments())
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "gristmill"


@pytest.fixture
def options(tmp_path: Path, cache: Path) -> Callable[[], list[str]]:
    """`archive_options` for a Java and a Spark that are files only."""
    server = tmp_path / "jvm" / "lib" / "server"
    server.mkdir(parents=True)
    (tmp_path / "jvm" / "bin").mkdir()
    (tmp_path / "jvm" / "bin" / "java").touch()
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    for name in ("libjvm.so", "classes.jsa"):
        (server / name).touch()
    return lambda: archive_options(str(tmp_path / "jvm"), str(tmp_path / "spark"))


def part_of(options: list[str]) -> Path:
    (made,) = (option for option in options if "ArchiveClassesAtExit" in option)
    return Path(made.partition("=")[2])


def session() -> str:
    done = subprocess.run([sys.executable, "-c", SESSION], cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_second_session_maps_what_the_first_one_left(cache: Path) -> None:
    part = part_of(session().split())
    end = time.monotonic() + 60
    while not part.stat().st_size or not any(part.read_bytes()[:4]):
        assert time.monotonic() < end, "Java left no archive"
        time.sleep(0.2)
    said = session()
    (archive,) = cache.glob("*.jsa")
    assert f"-XX:SharedArchiveFile={archive}" in said or f":{archive}" in said
    assert "ArchiveClassesAtExit" not in said


def test_one_process_at_a_time_makes_it(options: Callable[[], list[str]]) -> None:
    part = part_of(options())
    assert not any("Archive" in option for option in options())
    an_hour_ago = time.time() - 3600
    os.utime(part, (an_hour_ago, an_hour_ago))
    assert part_of(options()) == part


def test_what_is_not_whole_is_never_used(options: Callable[[], list[str]], cache: Path) -> None:
    part = part_of(options())
    part.write_bytes(b"\0" * 100)  # regions are there, the header is not
    assert not any("Archive" in option for option in options())
    part.write_bytes(b"head" + b"\0" * 96)
    (used,) = (option for option in options() if "SharedArchiveFile" in option)
    archive = Path(used.partition("=")[2])
    archive.write_bytes(b"head")  # cut off since
    assert part_of(options()).parent == cache
    assert not archive.exists()


def test_another_spark_has_an_archive_of_its_own(options: Callable[[], list[str]], tmp_path: Path) -> None:
    part = part_of(options())
    (tmp_path / "spark" / "jars" / "spark-core.jar").touch()
    assert part_of(options()) != part


def test_without_a_place_for_it_there_are_no_options(
    options: Callable[[], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert archive_options(str(tmp_path / "no java"), str(tmp_path / "spark")) == []
    monkeypatch.setattr("pipeline.java_archive.cache_folder", lambda: tmp_path / "absent" / "folder")
    assert options() == []


def test_the_wrapped_java_is_found(tmp_path: Path, cache: Path) -> None:
    assert java.wrapped_java(java.java_home()).name == "java"
