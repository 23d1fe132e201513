"""deploy/debian/postinst, whose paths are in a folder here; tests/deploy/test_debian.py installs the package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from deploy.front import HERE


def configure(root: Path, file_limit: str = "unlimited") -> int:
    """Run it as dpkg does; its exit status. `file_limit`: as of `ulimit -f`."""
    text = (HERE / "debian/postinst").read_text()
    for path, here in (
        ("/usr/lib/pushup/bin/python", sys.executable),
        ("/usr/lib/pushup/lib", str(root / "lib")),
        ("/etc/pushup", str(root)),
    ):
        assert path in text
        text = text.replace(path, here)
    nothing = "adduser() { :; }\nchgrp() { :; }\n"
    command = ["sh", "-c", f"ulimit -f {file_limit}\n{nothing}{text}", "postinst", "configure"]
    return subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode


def test_a_key_that_could_not_be_written_is_made_the_next_time(tmp_path: Path) -> None:
    """After a full disk, `dpkg --configure` does what is left; later it keeps the key."""
    (tmp_path / "lib").mkdir()
    assert configure(tmp_path, file_limit="0") != 0
    assert configure(tmp_path) == 0
    key = (tmp_path / "keys").read_text()
    assert len(key.strip()) == 48
    assert (tmp_path / "keys").stat().st_mode & 0o777 == 0o640
    assert configure(tmp_path) == 0
    assert (tmp_path / "keys").read_text() == key
