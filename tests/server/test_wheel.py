"""The distribution: it builds, the wheel has every file of the package, and it works without a checkout.

Compiled and interpreted (docs/internals/decisions/0019-compiled.md).
"""

from __future__ import annotations

import compileall
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from pushup import __version__
from tests.server.server_process import clean_environment, running

ROOT = Path(__file__).parents[2]
COMPILED: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pushup"]["compiled"]

SECONDS = 300.0
"""Limit for a hung build or installation; both download packages."""


@pytest.fixture(scope="module", params=["compiled", "interpreted"])
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def built(form: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the built sdist and wheel. It builds a copy, so the checkout is unchanged."""
    source = tmp_path_factory.mktemp("build") / "source"
    source.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "pushup", source / "pushup")
    assert compileall.compile_dir(source / "pushup", quiet=1)  # the compiled files must not be in the wheel
    environment = {"PUSHUP_COMPILE": "1" if form == "compiled" else "0", "PUSHUP_COMMIT": COMMIT}
    _run(sys.executable, "-m", "build", "--outdir", str(source.parent / "dist"), str(source), env=environment)
    return source.parent / "dist"


@pytest.mark.long
def test_the_wheel_contains_every_file_of_the_package(form: str, built: Path) -> None:
    """It contains Python, Lua, py.typed and everything else below pushup/, but no bytecode."""
    [wheel] = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    if form == "compiled":
        version = f"cp{sys.version_info[0]}{sys.version_info[1]}"
        assert wheel.name.startswith(f"pushup-{__version__}-{version}-{version}-")
        extensions = {name for name in names if name.endswith(".so")}
        assert {name.partition(".")[0].replace("/", ".") for name in extensions} >= set(COMPILED)
        names -= extensions
    else:
        assert wheel.name == f"pushup-{__version__}-py3-none-any.whl"
    files = (path for path in (ROOT / "pushup").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    assert names == {str(path.relative_to(ROOT)) for path in files} | {"pushup/commit"}
    assert {"pushup/py.typed", "pushup/broadcast/redis/append.lua"} <= names


COMMIT = "0123456789ab"

SETUP = """
import runpy, sys, setuptools
setuptools.setup = lambda **options: None
module = runpy.run_path("setup.py")
module["write_commit"](sys.argv[1])
"""
"""What setup.py does to a build, without the build."""


def test_a_build_names_its_commit(tmp_path: Path) -> None:
    """As git knows it, or PUSHUP_COMMIT; a build from an sdist has that of the sdist, and without git there is none."""
    source = tmp_path / "source"
    (source / "pushup" / "host").mkdir(parents=True)
    for name in ("pyproject.toml", "setup.py", "pushup/host/build_form.py"):
        shutil.copy(ROOT / name, source / name)

    def built_by(**environment: str) -> str:
        """What the built package says about itself, without its form."""
        target = tmp_path / "target"
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source / "pushup", target / "pushup")
        _run(sys.executable, "-c", SETUP, target, cwd=source, env={"PUSHUP_COMPILE": "0", **environment})
        said = _run(
            sys.executable, "-c", "import build_form; print(build_form.build())", cwd=target / "pushup" / "host"
        )
        return said.removesuffix("interpreted\n")

    assert built_by() == ""
    assert built_by(PUSHUP_COMMIT="abc") == "commit abc, "
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    _run(*git, "init", "--quiet", cwd=source)
    _run(*git, "add", ".", cwd=source)
    _run(*git, "commit", "--quiet", "-m", "one", cwd=source)
    one = _run("git", "rev-parse", "--short=12", "HEAD", cwd=source).strip()
    assert built_by() == f"commit {one}, "
    (source / "pyproject.toml").write_text("")
    assert built_by() == f"commit {one}-dirty, "
    shutil.rmtree(source / ".git")
    assert built_by() == ""
    (source / "pushup" / "commit").write_text(f"{one}\n")  # as in an sdist
    assert built_by() == f"commit {one}, "


@pytest.mark.long
def test_the_sdist_contains_what_it_takes_to_build(built: Path) -> None:
    """The wheel is built from the sdist, so what is missing here is missing there; the license is in both."""
    [sdist] = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "setup.py", "README.md", "LICENSE", "pushup/broadcast/redis/append.lua"} <= names


@pytest.mark.long
def test_the_installed_wheel_serves(form: str, built: Path, tmp_path: Path) -> None:
    """In a new environment, without the checkout: the command line, a publication and a poll."""
    environment = tmp_path / "venv"
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    [wheel] = built.glob("*.whl")
    _run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel))

    where = _run(python, "-c", "import pushup; print(pushup.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(environment)
    said = _run(environment / "bin" / "pushup", "--version", cwd=tmp_path)
    assert said == f"pushup, version {__version__}, commit {COMMIT}, {form}\n"
    _run(python, "-c", "import pushup.broadcast.redis.log", cwd=tmp_path)  # this reads the Lua scripts

    with running(tmp_path / "log", (), python=python) as server, server.caller() as caller:
        caller.publish(["news"], "hello")
        assert [message["data"] for message in caller.poll("news")["messages"]] == ["hello"]
        assert server.trouble() == []


def _run(*command: str | Path, cwd: Path | None = None, env: Mapping[str, str] = {}) -> str:
    """Run a program to its end, without this process's settings and paths; returns its output."""
    unset = {name: value for name, value in clean_environment().items() if name != "PYTHONPATH"}
    ended = subprocess.run(
        list(map(str, command)), env={**unset, **env}, cwd=cwd, capture_output=True, text=True, timeout=SECONDS
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout
