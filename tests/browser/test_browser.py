"""The tests of pushup.js, which Node runs: each *.test.js here says what it checks."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

from pushup import __version__

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SECONDS = 600.0
"""Limit for a hang."""


@pytest.mark.parametrize("file", sorted(path.name for path in HERE.glob("*.test.js")))
def test_in_node(file: str) -> None:
    """Node's test runner finds nothing wrong."""
    run_in_node(file)


@pytest.mark.long
def test_broken_clients_are_noticed() -> None:
    """The model notices each change of mutations.js."""
    run_in_node("mutations.long.js")


def run_in_node(file: str) -> None:
    run("node", "--test", HERE / file)


def run(program: str, *arguments: str | Path, cwd: Path | None = None) -> str:
    """Run a program to its end, and return its output."""
    assert shutil.which(program), f"not installed: {program}. On Debian: apt-get install nodejs npm"
    ended = subprocess.run([program, *arguments], cwd=cwd, capture_output=True, text=True, timeout=SECONDS)
    assert ended.returncode == 0, ended.stdout[-10_000:] + ended.stderr
    return ended.stdout


@pytest.mark.long
def test_the_npm_package(tmp_path: Path) -> None:
    """It has the name in pyproject.toml, PushUp's version and nothing but the client; it can be imported."""
    name = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pushup"]["npm"]
    run("sh", ROOT / "deploy/release/npm.sh", Path(sys.executable).parent, tmp_path / "packed")
    (packed,) = (tmp_path / "packed").glob("*.tgz")
    with tarfile.open(packed) as archive:
        files = {member.partition("/")[2] for member in archive.getnames()}
    modules = {f"{module}{end}" for module in ("pushup", "answers", "ai-sdk", "ag-ui") for end in (".js", ".d.ts")}
    assert files == {"LICENSE", "README.md", "package.json", *modules}
    (tmp_path / "page").mkdir()
    run("npm", "install", "--no-audit", "--no-fund", "--offline", packed, cwd=tmp_path / "page")
    installed = tmp_path / "page" / "node_modules" / name
    assert json.loads((installed / "package.json").read_text())["version"] == __version__
    assert (installed / "README.md").read_text().count(f'from "{name}"') == 1
    script = f"import {{ PushUp }} from {name!r}; console.log(typeof PushUp.prototype.subscribe)"
    assert run("node", "--input-type=module", "--eval", script, cwd=tmp_path / "page") == "function\n"
    script = f"import {{ PushUpTransport }} from '{name}/ai-sdk'; console.log(typeof PushUpTransport)"
    assert run("node", "--input-type=module", "--eval", script, cwd=tmp_path / "page") == "function\n"
