"""The distribution: it builds, the wheel has every file of the package, and it works without a checkout.

Compiled and interpreted (docs/internals/decisions/0019-compiled.md), by deploy/release/wheels.sh (0024-artifacts.md).
"""

from __future__ import annotations

import compileall
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pushup import __version__
from tests.deploy.containers.cluster import Connection, wait_until
from tests.deploy.containers.docker import Docker, install
from tests.server.caller import Caller, data_of
from tests.server.server_process import clean_environment, running

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
COMPILED: list[str] = PROJECT["tool"]["pushup"]["compiled"]

RUNNING = f"{sys.version_info[0]}.{sys.version_info[1]}"

SECONDS = 500.0
"""Limit for a hung build or installation; both download packages."""

built = pytest.mark.containers
"""Of tests that use what was built. One worker runs them all, because building takes a minute."""


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two folders with everything that deploy/release/wheels.sh builds, from clones in different folders.

    They are made side by side, with different clocks, file modes and hash seeds. The checkout is unchanged.
    """
    first = tmp_path_factory.mktemp("first") / "source"
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "deploy/constraints.txt"):
        (first / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, first / name)
    for name in ("pushup", "deploy/release", "deploy/client"):
        shutil.copytree(ROOT / name, first / name)
    assert compileall.compile_dir(first / "pushup", quiet=1)  # the compiled files must not be in the wheel
    _commit(first)
    second = tmp_path_factory.mktemp("second") / "other"
    _run("git", "clone", "--quiet", first, second)
    for path in second.rglob("*"):
        os.utime(path, (1e9, 1e9))
        path.chmod(path.stat().st_mode & 0o700)
    running = [
        subprocess.Popen(
            ["sh", source / "deploy/release/wheels.sh", Path(sys.executable).parent, source.parent / "dist"],
            env={**clean_environment(), "PYTHONHASHSEED": str(number), "TZ": f"UTC-{number}"},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for number, source in enumerate((first, second))
    ]  # fmt: skip
    for build in running:
        output, _ = build.communicate(timeout=SECONDS)
        assert build.returncode == 0, output
    return [first.parent / "dist", second.parent / "dist"]


@pytest.fixture(params=["compiled", "interpreted"])
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def wheel(form: str, builds: list[Path]) -> Path:
    [wheel] = builds[0].glob("*manylinux*.whl" if form == "compiled" else "pushup-*-none-any.whl")
    return wheel


@pytest.fixture(scope="module")
def index(builds: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what was built and the wheels of all packages, for the Pythons of the containers, too."""
    folder = tmp_path_factory.mktemp("index")
    for file in builds[0].iterdir():
        shutil.copy(file, folder)
    flags = ("--require-hashes", "--no-deps", "--only-binary", ":all:", "-r", ROOT / "deploy/constraints.txt")
    for version in sorted({RUNNING, *PYTHONS}):
        _run(sys.executable, "-m", "pip", "download", "-q", *flags, "--python-version", version, "-d", folder)
    return folder


@built
def test_two_builds_have_the_same_bytes(builds: list[Path]) -> None:
    """Sdist, all three wheels and SBOM, of the same commit in different folders at different times (decision 24)."""
    first, second = ({file.name: file.read_bytes() for file in folder.iterdir()} for folder in builds)
    assert {Path(name).suffix for name in first} == {".gz", ".whl", ".json"}
    assert len(first) == 5
    assert [name for name in first | second if first.get(name) != second.get(name)] == []


@built
def test_the_wheel_contains_every_file_of_the_package(form: str, wheel: Path) -> None:
    """It contains Python, Lua, py.typed and everything else below pushup/, but no bytecode."""
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name and not name.endswith("/")}
    if form == "compiled":
        version = f"cp{RUNNING.replace('.', '')}"
        assert wheel.name.startswith(f"pushup-{__version__}-{version}-{version}-manylinux")
        extensions = {name for name in names if name.endswith(".so")}
        assert {name.partition(".")[0].replace("/", ".") for name in extensions} >= set(COMPILED)
        names -= extensions
    else:
        assert wheel.name == f"pushup-{__version__}-py3-none-any.whl"
    files = (path for path in (ROOT / "pushup").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    assert names == {str(path.relative_to(ROOT)) for path in files} | {"pushup/commit"}
    assert {"pushup/py.typed", "pushup/broadcast/redis/append.lua"} <= names


@built
def test_the_sbom_names_what_is_installed(builds: list[Path]) -> None:
    """Each package that the wheel needs is in it, with a version of constraints.txt."""
    [file] = builds[0].glob("*.cdx.json")
    sbom = json.loads(file.read_text())
    assert sbom["metadata"]["component"]["version"] == __version__
    found = {canonicalize_name(part["name"]): part["version"] for part in sbom["components"]}
    pinned = re.findall(r"(?m)^(\S+)==(\S+)", (ROOT / "deploy/constraints.txt").read_text())
    assert found.items() <= set(pinned)
    assert {canonicalize_name(Requirement(each).name) for each in PROJECT["project"]["dependencies"]} <= found.keys()


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
    _commit(source)
    one = _run("git", "rev-parse", "--short=12", "HEAD", cwd=source).strip()
    assert built_by() == f"commit {one}, "
    (source / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text() + "\n")
    assert built_by() == f"commit {one}-dirty, "
    shutil.rmtree(source / ".git")
    assert built_by() == ""
    (source / "pushup" / "commit").write_text(f"{one}\n")  # as in an sdist
    assert built_by() == f"commit {one}, "


@built
def test_the_sdist_contains_what_it_takes_to_build(builds: list[Path]) -> None:
    """The wheel is built from the sdist, so what is missing here is missing there; the license is in both."""
    [sdist] = builds[0].glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "setup.py", "README.md", "LICENSE", "pushup/broadcast/redis/append.lua"} <= names


@built
def test_the_installed_wheel_serves(form: str, wheel: Path, index: Path, tmp_path: Path) -> None:
    """In a new environment, without the checkout, a compiler or a network: --version, a publication and a poll."""
    environment = tmp_path / "venv"
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    source = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index), "PATH": str(environment / "bin")}
    wanted = f"pushup=={__version__}" if form == "compiled" else str(wheel)  # pip takes the compiled one if it can
    _run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wanted, env=source)

    where = _run(python, "-c", "import pushup; print(pushup.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(environment)
    said = _run(environment / "bin" / "pushup", "--version", cwd=tmp_path)
    assert re.fullmatch(rf"pushup, version {re.escape(__version__)}, commit [0-9a-f]{{12}}, {form}\n", said)
    _run(python, "-c", "import pushup.broadcast.redis.log", cwd=tmp_path)  # this reads the Lua scripts

    with running(tmp_path / "log", (), python=python) as server, server.caller() as caller:
        caller.publish(["news"], "hello")
        assert [message["data"] for message in caller.poll("news")["messages"]] == ["hello"]
        assert server.trouble() == []


INSTALL = "pip install pushup"
SERVE = "pushup serve"
"""The lines that install and run it, as README.md and docs/operate/run.md have them."""

IN_DEBIAN = "3.11"
"""The Python that the containers' Debian has."""

PYTHONS = (IN_DEBIAN, "3.12", "3.13")

IN_A_CONTAINER = """
rm -f /usr/bin/*gcc* /usr/bin/cc /usr/bin/c99 /usr/bin/*-ld /usr/bin/ld
[ {python} = /usr/bin/python3 ] || rm /usr/bin/python3*
{python} -m venv /venv
. /venv/bin/activate
{install}
PUSHUP_COMPILE=1 PUSHUP_COMMIT=none sh /release/serves.sh {form} # as cibuildwheel runs it
exec {serve}
"""


def test_the_documents_have_these_lines() -> None:
    texts = [(ROOT / name).read_text() for name in ("README.md", "docs/operate/run.md")]
    assert f"`{INSTALL}`" in texts[1]
    assert all(SERVE in text for text in texts)


@pytest.fixture(scope="module")
def docker() -> Iterator[Docker]:
    """A daemon without a network, and the image `base`: Debian with Python and a compiler."""
    tools = install()
    with Docker(Path(tempfile.mkdtemp(prefix="pushup-docker-")), compose=tools / "docker-compose") as docker:
        docker.start("own")
        docker.run("import", tools / "base.tar", "base")
        yield docker


@built
@pytest.mark.parametrize("version", PYTHONS)
def test_one_line_installs_and_one_line_serves(version: str, index: Path, docker: Docker) -> None:
    """In a container with Python and pip, no compiler and no network: compiled, if there is a wheel for this Python."""
    folder = _folder_of(version)
    if folder is None:
        pytest.skip(f"this machine has no Python {version}")
    form = "compiled" if version == RUNNING else "interpreted"
    script = IN_A_CONTAINER.format(python=folder / "bin/python3", install=INSTALL, serve=SERVE, form=form)
    mounts = {"/index": index, "/release": ROOT / "deploy/release"}
    if version != IN_DEBIAN:
        mounts[str(folder)] = folder
    settings = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/index", "LD_LIBRARY_PATH": f"{folder}/lib"}
    flags = [part for place, mount in mounts.items() for part in ("--volume", f"{mount}:{place}:ro")]
    flags += [part for name, value in settings.items() for part in ("--env", f"{name}={value}")]
    container = docker.run("run", "--detach", "--network", "host", *flags, "base", "sh", "-ec", script).strip()
    try:
        wait_until(lambda: _answers(docker, container), lambda: docker.run("logs", container))
        with Caller(Connection(docker, ("127.0.0.1", 8080))) as caller:
            caller.publish(["news"], "hello")
            assert data_of(caller.poll("news")) == ["hello"]
    finally:
        docker.run("rm", "--force", container)


def _folder_of(version: str) -> Path | None:
    """Where this Python is: in the containers' Debian, or on this machine the running one, or one that pyenv has."""
    if version == IN_DEBIAN:
        return Path("/usr")
    if version == RUNNING:
        return Path(sys.base_prefix)
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    return next(iter(sorted(pyenv.glob(f"versions/{version}.*"))), None)


def _answers(docker: Docker, container: str) -> bool:
    """Whether the server answers; the container must be running."""
    is_running = docker.run("inspect", "--format", "{{.State.Running}}", container).strip()
    assert is_running == "true", docker.run("logs", container)
    with Caller(Connection(docker, ("127.0.0.1", 8080))) as caller:
        return caller.call("GET", "/healthz").status == 200


def _commit(folder: Path) -> None:
    """Make the folder a repository with one commit."""
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "one"]):
        _run(*git, *command, cwd=folder)


def _run(*command: str | Path, cwd: Path | None = None, env: Mapping[str, str] = {}) -> str:
    """Run a program to its end, without this process's settings and paths; returns its output."""
    unset = {name: value for name, value in clean_environment().items() if name != "PYTHONPATH"}
    ended = subprocess.run(
        list(map(str, command)), env={**unset, **env}, cwd=cwd, capture_output=True, text=True, timeout=SECONDS
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout
