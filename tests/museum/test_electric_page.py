"""Electric: a page that is never told that it is up to date, because it knows the position already."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCENARIO = Path(__file__).parent / "electric.test.js"
HANG_SECONDS = 120.0


@pytest.mark.processes
def test_a_page_that_comes_back_where_it_was() -> None:
    """With each transport it is told so; answered at once with the position that it has, it does not ask in a loop."""
    node = shutil.which("node")
    assert node, "not installed: node. On Debian: apt-get install nodejs"
    ended = subprocess.run([node, "--test", str(SCENARIO)], capture_output=True, text=True, timeout=HANG_SECONDS)
    assert ended.returncode == 0, ended.stdout + ended.stderr
