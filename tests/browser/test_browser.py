"""The tests of pushup.js, which Node runs: each *.test.js here says what it checks."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from pushup import __version__

HERE = Path(__file__).parent
CLIENT = HERE.parents[1] / "pushup" / "browser"
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
    node = shutil.which("node")
    assert node, "not installed: node. On Debian: apt-get install nodejs"
    ended = subprocess.run([node, "--test", str(HERE / file)], capture_output=True, text=True, timeout=SECONDS)
    assert ended.returncode == 0, ended.stdout[-10_000:] + ended.stderr


def test_the_npm_package_has_the_version() -> None:
    """It is PushUp's."""
    assert json.loads((CLIENT / "package.json").read_text())["version"] == __version__
