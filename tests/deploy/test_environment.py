"""What `make` does with an existing virtual environment: it uses a working one, and moves any other aside."""

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
    """A project that needs no network; its file `builds` gets one letter per installation."""
    project = tmp_path / "project"
    project.mkdir()
    lines = ["[build-system]", "requires = []", 'build-backend = "backend"', 'backend-path = ["."]']
    (project / "pyproject.toml").write_text("\n".join(lines))
    (project / "backend.py").write_text(BACKEND)
    return project


def make(environment: Path, *flags: str) -> None:
    """Create an environment as a user might have, with a file in it that marks it as theirs."""
    subprocess.run([sys.executable, "-m", "venv", *flags, environment], check=True)
    (environment / "mine").touch()


def works(environment: Path) -> bool:
    """Whether the project and pip are installed there."""
    found = subprocess.run([environment / "bin" / "python", "-c", "import pip, thing; print(thing.here)"],
                           capture_output=True, text=True, check=False)  # fmt: skip
    return found.stdout == "True\n"


def builds(project: Path) -> int:
    return len((project / "builds").read_text())


def test_a_missing_environment_is_created(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A second run does nothing; a change of the requirements installs the project again."""
    environment = project / ".venv"
    set_up(environment, "run", project)
    assert works(environment)
    assert "Creating" in capfd.readouterr().err
    set_up(environment, "run", project)
    assert capfd.readouterr() == ("", "")
    assert builds(project) == 1
    with (project / "pyproject.toml").open("a") as file:
        file.write("\n# something else is needed\n")
    set_up(environment, "run", project)
    assert builds(project) == 2
    assert not (project / ".venv.old").exists()


def test_a_working_environment_is_kept(project: Path) -> None:
    """Whoever made it, even without pip, as some tools do."""
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
def test_a_broken_environment_is_not_used(tmp_path: Path, how: Callable[[Path], None], reason: str) -> None:
    """Each broken environment is rejected with its reason."""
    how(tmp_path / ".venv")
    found = why_not_usable(tmp_path / ".venv")
    assert found is not None
    assert re.fullmatch(reason, found)


def test_a_moved_environment_is_moved_aside(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The reason is printed, and the files are kept; an environment that was moved aside earlier is deleted."""
    (project / ".venv.old").mkdir()
    make(project / "before")
    (project / "before").rename(project / ".venv")
    set_up(project / ".venv", "run", project)
    assert works(project / ".venv")
    assert not (project / ".venv" / "mine").exists()
    assert (project / ".venv.old" / "mine").exists()
    assert capfd.readouterr().err.startswith(
        f"{project}/.venv cannot be used: it was made as {project}/before, and has been moved or copied since. "
        f"Moving it to {project}/.venv.old"
    )


def test_a_failed_installation_is_reported(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The error names the Python version; the next run continues where this one stopped."""
    backend = (project / "backend.py").read_text()
    (project / "backend.py").write_text("def build_editable(*_): raise SystemExit('no compiler')")
    make(project / ".venv")
    version = ".".join(map(str, sys.version_info[:3]))
    with pytest.raises(EnvironmentFailed, match=f"install all packages for Python {version}.*without a wheel"):
        set_up(project / ".venv", "run", project)
    assert "no compiler" in capfd.readouterr().err
    (project / "backend.py").write_text(backend)
    set_up(project / ".venv", "run", project)
    assert works(project / ".venv")
    assert (project / ".venv" / "mine").exists()


def test_a_checkout_may_have_a_space_in_its_path(tmp_path: Path) -> None:
    """What `make` would run names it in quotes, or not at all."""
    folder = tmp_path / "my projects"
    folder.mkdir()
    (folder / "Makefile").symlink_to(Path(__file__).parents[2] / "Makefile")
    command = ["make", "--dry-run", "--no-print-directory", "test", "coverage", "check-lowest", "wheels", "npm", "site"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(str(folder)) == done.stdout.count(f'"{folder}"') == 1
