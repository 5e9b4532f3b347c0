"""The shell scripts: they parse, they say what is missing, they do nothing twice."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
SCRIPTS = [PROJECT / "infra" / name for name in ("setup", "demo", "test", "cluster", "pack", "spark-submit")]


@pytest.mark.parametrize("script", [*SCRIPTS, PROJECT / ".ci" / "run"], ids=lambda path: path.name)
def test_scripts_parse_and_may_be_run(script: Path) -> None:
    subprocess.run(["bash", "-n", str(script)], check=True)
    assert os.access(script, os.X_OK)


def copy(folder: Path) -> Path:
    """The project as far as `infra/setup` looks at it."""
    (folder / "infra").mkdir(parents=True)
    shutil.copy(PROJECT / "infra" / "setup", folder / "infra" / "setup")
    shutil.copy(PROJECT / "infra" / "constraints.txt", folder / "infra" / "constraints.txt")
    shutil.copy(PROJECT / "pyproject.toml", folder / "pyproject.toml")
    return folder


def fake_python(folder: Path, *, version: str, venv: bool = True) -> str:
    """A python that passes for `version`, with or without the module venv; the pip that it makes notes its calls."""
    folder.mkdir(parents=True)
    script = folder / "python3"
    script.write_text(f"""#!/bin/sh
case "$*" in
*version_info\\ \\<*) exec {sys.executable} -c "import sys; sys.exit(({version.replace(".", ",")}) < (3, 11))" ;;
*"import venv"*) exit {int(not venv)} ;;
"-m venv"*)
    mkdir -p .venv/bin
    printf '#!/bin/sh\\n[ "$1" = -m ] && echo "$@" >>pip.log\\n[ ! -e refuse ]\\n' >.venv/bin/python
    chmod +x .venv/bin/python ;;
--version) echo "Python {version}" ;;
*) exec {sys.executable} "$@" ;;
esac
""")
    script.chmod(0o755)
    return f"{folder}:/usr/bin:/bin"


def setup(folder: Path, path: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": path, "HOME": str(folder), "GRISTMILL_PYTHON": "python3"}
    command = ["bash", "infra/setup", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_an_old_python_is_named(tmp_path: Path) -> None:
    done = setup(copy(tmp_path / "p"), fake_python(tmp_path / "bin", version="3.9"))
    assert done.returncode == 1
    assert done.stderr == "gristmill: needs Python 3.11 or newer; found Python 3.9\n"


def test_a_python_without_venv_says_what_to_install(tmp_path: Path) -> None:
    done = setup(copy(tmp_path / "p"), fake_python(tmp_path / "bin", version="3.11", venv=False))
    assert done.returncode == 1
    assert f"apt install python3.{sys.version_info.minor}-venv" in done.stderr
    assert done.stderr.count("\n") == 1


def test_packages_are_installed_once_and_again_when_the_pins_change(tmp_path: Path) -> None:
    folder = copy(tmp_path / "p")
    path = fake_python(tmp_path / "bin", version="3.11")

    def installs(*arguments: str) -> int:
        before = (folder / "pip.log").read_text().count("install") if (folder / "pip.log").exists() else 0
        assert setup(folder, path, *arguments).returncode == 0
        return (folder / "pip.log").read_text().count("install") - before

    assert installs() == 1
    assert installs() == 0
    assert installs("train") == 1
    assert installs() == installs("train") == 0
    assert installs("test") == 1
    assert installs() == installs("train") == installs("test") == 0
    assert "-c infra/constraints.txt -e .[test]" in (folder / "pip.log").read_text()
    with (folder / "infra" / "constraints.txt").open("a") as pins:
        pins.write("six==1.17.0\n")
    assert installs() == 1


def test_a_failed_install_is_not_taken_for_done(tmp_path: Path) -> None:
    folder = copy(tmp_path / "p")
    path = fake_python(tmp_path / "bin", version="3.11")
    (folder / "refuse").touch()
    done = setup(folder, path)
    assert done.returncode == 1
    assert done.stderr.endswith("gristmill: packages could not be installed, see above; the same command tries again\n")
    (folder / "refuse").unlink()
    assert setup(folder, path).returncode == 0
    assert (folder / "pip.log").read_text().count("install") == 2


def test_every_pin_is_one_exact_version() -> None:
    lines = (PROJECT / "infra" / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert pins["torch"] == "2.13.0"
    assert len(pins) == sum(not line.startswith("#") for line in lines)
    assert not any(name.startswith("nvidia") for name in pins)
