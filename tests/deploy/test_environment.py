"""What `make` does with a virtual environment that is there already: one that works is used, any other moved aside."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.environment import EnvironmentFailed, set_up, why_not_usable

BACKEND = """
import zipfile

def build_editable(directory, *_):
    with open("builds", "a") as file:
        file.write("x")
    with zipfile.ZipFile(f"{directory}/thing-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("thing.py", "here = True")
        wheel.writestr("thing-1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: thing\\nVersion: 1\\n")
        wheel.writestr("thing-1.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("thing-1.dist-info/RECORD", "")
    return "thing-1-py3-none-any.whl"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project that needs nothing of the network; `builds` in it has a letter for each time it was installed."""
    project = tmp_path / "project"
    project.mkdir()
    lines = ["[build-system]", "requires = []", 'build-backend = "backend"', 'backend-path = ["."]']
    (project / "pyproject.toml").write_text("\n".join(lines))
    (project / "backend.py").write_text(BACKEND)
    return project


def make(environment: Path, *flags: str) -> None:
    """Make an environment as somebody else might have, with a file in it that nobody else would make."""
    subprocess.run([sys.executable, "-m", "venv", *flags, environment], check=True)
    (environment / "mine").touch()


def works(environment: Path) -> bool:
    """Whether the project is installed there, and pip is at hand."""
    found = subprocess.run([environment / "bin" / "python", "-c", "import pip, thing; print(thing.here)"],
                           capture_output=True, text=True, check=False)  # fmt: skip
    return found.stdout == "True\n"


def builds(project: Path) -> int:
    return len((project / "builds").read_text())


def test_one_is_made_where_there_is_none(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """And nothing is done the second time; after a change of what is needed it is installed again."""
    environment = project / ".venv"
    set_up(environment, "run", project)
    assert works(environment)
    assert "Making" in capfd.readouterr().err
    set_up(environment, "run", project)
    assert capfd.readouterr() == ("", "")
    assert builds(project) == 1
    with (project / "pyproject.toml").open("a") as file:
        file.write("\n# something else is needed\n")
    set_up(environment, "run", project)
    assert builds(project) == 2
    assert not (project / ".venv.old").exists()


def test_one_that_works_is_used(project: Path) -> None:
    """Whoever made it, and though it has no pip: some tools make them so."""
    environment = project / ".venv"
    make(environment, "--without-pip")
    set_up(environment, "run", project)
    assert (environment / "mine").exists()
    assert works(environment)
    assert not (project / ".venv.old").exists()


def _copy(environment: Path) -> None:
    original = environment.with_name("original")
    make(original, "--without-pip")
    (original / "bin" / "pip").write_text(f"#!{original}/bin/python\n")
    shutil.copytree(original, environment, symlinks=True)


def _lose_python(environment: Path) -> None:
    make(environment, "--without-pip")
    (environment / "bin" / "python").unlink()
    (environment / "bin" / "python").symlink_to("/nowhere/python")


def _be_of_an_old_python(environment: Path) -> None:
    _lose_python(environment)
    python = environment / "bin" / "python"
    python.unlink()
    python.write_text("#!/bin/sh\necho '[[3, 9, 2], true, true]'\n")
    python.chmod(0o755)


def _lack_pip_for_good(environment: Path) -> None:
    _lose_python(environment)
    python = environment / "bin" / "python"
    python.unlink()
    python.write_text('#!/bin/sh\n[ "$1" = -I ] && echo "[[3, 11, 0], true, false]"\n')
    python.chmod(0o755)


def _be_something_else(environment: Path) -> None:
    environment.mkdir()
    (environment / "mine").touch()


def _be_no_environment(environment: Path) -> None:
    (environment / "bin").mkdir(parents=True)
    (environment / "bin" / "python").symlink_to(sys._base_executable)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        (_copy, "it was made as .*original, and has been moved or copied since"),
        (_lose_python, "its Python does not start"),
        (_be_of_an_old_python, "its Python is 3.9.2, and PushUp needs 3.11 or later"),
        (_lack_pip_for_good, "it has no pip, and its Python cannot install one"),
        (_be_something_else, "it is not a virtual environment"),
        (_be_no_environment, "it is not a virtual environment"),
    ],
)
def test_one_that_does_not_work_is_not_used(tmp_path: Path, how: Callable[[Path], None], reason: str) -> None:
    """Each for its reason."""
    how(tmp_path / ".venv")
    found = why_not_usable(tmp_path / ".venv")
    assert found is not None
    assert re.fullmatch(reason, found)


def test_one_that_was_moved_is_moved_aside(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It is said why, and nothing of it is lost; what was aside before goes."""
    (project / ".venv.old").mkdir()
    make(project / "before")
    (project / "before").rename(project / ".venv")
    set_up(project / ".venv", "run", project)
    assert works(project / ".venv")
    assert not (project / ".venv" / "mine").exists()
    assert (project / ".venv.old" / "mine").exists()
    assert capfd.readouterr().err.startswith(
        f"{project}/.venv cannot be used: it was made as {project}/before, and has been moved or copied since. "
        f"It is moved to {project}/.venv.old"
    )


def test_what_cannot_be_installed_is_told(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """With the Python it was for; the next try begins where this one ended."""
    backend = (project / "backend.py").read_text()
    (project / "backend.py").write_text("def build_editable(*_): raise SystemExit('no compiler')")
    make(project / ".venv")
    version = ".".join(map(str, sys.version_info[:3]))
    with pytest.raises(EnvironmentFailed, match=f"could be installed for Python {version}.*no wheel"):
        set_up(project / ".venv", "run", project)
    assert "no compiler" in capfd.readouterr().err
    (project / "backend.py").write_text(backend)
    set_up(project / ".venv", "run", project)
    assert works(project / ".venv")
    assert (project / ".venv" / "mine").exists()
