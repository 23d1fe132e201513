"""The distribution pushup-client (docs/internals/decisions/0034-two-distributions.md): alone, and beside the server.

It is built from this tree. Nothing but packages that are not PushUp's comes from PyPI.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

from pushup import __version__
from tests.server.server_process import clean_environment, running

ROOT = Path(__file__).parents[2]

SECONDS = 300.0

SIZE_LIMIT_BYTES = 120_000
"""With pushup.js, which applications serve."""

PARTS = ("browser", "client", "frameworks", "outbox", "webhooks")

pytestmark = pytest.mark.containers

PROGRAM = """
import asyncio, sys
from pushup.client import AsyncClient, Client

async def publish():
    async with AsyncClient(sys.argv[1]) as client:
        await client.publish("news", "hello")

asyncio.run(publish())
with Client(sys.argv[1]) as client:
    found = [message.data for message in client.poll("news").messages]
    print(found, *sorted({"twisted", "msgspec"} & set(sys.modules)))
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Those of both distributions, pure, by name."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheels")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("pushup", "deploy/client"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    run("sh", ROOT / "deploy/release/client.sh", sys.executable, source, out)
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", out, source, PUSHUP_COMPILE="0")
    return {wheel.name.partition("-")[0]: wheel for wheel in out.glob("*.whl")}


@pytest.fixture(scope="module")
def alone(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the client, and what pip installs for it."""
    python = environment(tmp_path_factory.mktemp("alone"))
    run(python, "-m", "pip", "install", "-q", wheels["pushup_client"])
    return python


def test_what_it_contains_and_needs(wheels: dict[str, Path]) -> None:
    """The files of the server's wheel, with types, and h11; the server only for `pushup-client[testing]`."""
    client, server = files(wheels["pushup_client"]), files(wheels["pushup"])
    assert client.items() <= server.items()
    for part in PARTS:
        assert {name for name in server if name.startswith(f"pushup/{part}/")} <= client.keys()
        assert part == "browser" or f"pushup/{part}/py.typed" in client
    assert "pushup/__init__.py" not in client
    assert wheels["pushup_client"].stat().st_size < SIZE_LIMIT_BYTES
    said = metadata(wheels["pushup_client"])
    assert said["Version"] == metadata(wheels["pushup"])["Version"] == __version__
    requires = said.get_all("Requires-Dist") or []
    assert [each for each in requires if "extra" not in each] == ["h11>=0.16"]
    assert f'pushup=={__version__}; extra == "testing"' in requires
    needed = metadata(wheels["pushup"]).get_all("Requires-Dist") or []
    assert not [each for each in needed if each.startswith("pushup-client")], "`pip install .` would ask PyPI for it"


def test_it_works_alone(alone: Path, tmp_path: Path) -> None:
    """Both clients, with a real server of this checkout; there is no server in their environment."""
    installed = json.loads(run(alone, "-m", "pip", "list", "--format", "json"))
    assert {each["name"] for each in installed} <= {"pip", "setuptools", "h11", "pushup-client"}
    with running(tmp_path / "log", ()) as server:
        assert run(alone, "-I", "-c", PROGRAM, server.url) == "['hello']\n"
    assert "No module named 'pushup.service'" in run(alone, "-I", "-c", "import pushup.service", fails=True)


def test_a_users_program_is_checked_by_mypy(alone: Path, tmp_path: Path) -> None:
    """With --strict; it finds the types, so it finds a mistake, too."""
    check = (sys.executable, "-m", "mypy", "--strict", "--python-executable", alone, "--cache-dir", tmp_path / "cache")
    shutil.copy(ROOT / "tests/client/user_program.py", tmp_path)
    run(*check, "user_program.py", cwd=tmp_path)
    (tmp_path / "wrong.py").write_text(WRONG)
    assert '"Client" has no attribute "publsh"' in run(*check, "wrong.py", cwd=tmp_path, fails=True)


def test_a_users_program_is_checked_by_pyright(alone: Path, tmp_path: Path) -> None:
    """The same, in its mode `strict`."""
    shutil.copy(ROOT / "tests/browser/package.json", tmp_path)
    run("npm", "install", "--no-audit", "--no-fund", "--silent", cwd=tmp_path)
    shutil.copy(ROOT / "tests/client/user_program.py", tmp_path)
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')
    check = (tmp_path / "node_modules/.bin/pyright", "--pythonpath", alone)
    run(*check, cwd=tmp_path)
    (tmp_path / "wrong.py").write_text(WRONG)
    assert 'Cannot access attribute "publsh"' in run(*check, cwd=tmp_path, fails=True)


WRONG = 'from pushup.client import Client\n\nClient("http://a").publsh("news", 1)\n'


@pytest.mark.parametrize("last", ["pushup", "pushup_client"])
def test_both_in_one_environment(wheels: dict[str, Path], tmp_path: Path, last: str) -> None:
    """In either order they are as the server alone. Without the client files of the server are missing, until pip
    restores them."""
    python = environment(tmp_path / "both")
    pip = (python, "-m", "pip", "install", "-q", "--no-deps")
    run(*pip, "h11")
    for wheel in sorted(wheels.values(), key=lambda wheel: wheel.name.partition("-")[0] == last):
        run(*pip, wheel)
    look = "import pushup, pushup.client.values; print(pushup.__version__, pushup.client.values.Message.__name__)"
    assert run(python, "-I", "-c", look) == f"{__version__} Message\n"
    run(python, "-m", "pip", "uninstall", "-q", "-y", "pushup-client")
    assert "No module named 'pushup.client" in run(python, "-I", "-c", look, fails=True)
    run(*pip, "--force-reinstall", wheels["pushup"])
    assert run(python, "-I", "-c", look) == f"{__version__} Message\n"


def environment(folder: Path) -> Path:
    venv.create(folder, with_pip=True)
    return folder / "bin" / "python"


def files(wheel: Path) -> dict[str, bytes]:
    """The files of a wheel, without what describes it."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def run(*command: str | Path, cwd: Path | None = None, fails: bool = False, **settings: str) -> str:
    """Run a program without this process's paths; returns its output, with errors if it `fails`, as it must then."""
    kept = {name: value for name, value in clean_environment().items() if name != "PYTHONPATH"}
    ended = subprocess.run(
        list(map(str, command)), cwd=cwd or os.environ.get("TMPDIR", "/tmp"), capture_output=True, text=True,
        env={**kept, "PIP_DISABLE_PIP_VERSION_CHECK": "1", **settings}, timeout=SECONDS,
    )  # fmt: skip
    assert (ended.returncode != 0) == fails, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr if fails else ended.stdout
