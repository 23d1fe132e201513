"""The scripts in deploy/debian, with their paths in a folder here; tests/deploy/test_debian.py installs the package."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from deploy.front import HERE


def run(script: str, step: str, root: Path, file_limit: str = "unlimited", within: Sequence[str] = ()) -> int:
    """Run it as dpkg does; its exit status. `file_limit`: as of `ulimit -f`. `within`: a command that runs it."""
    text = (HERE / "debian" / script).read_text()
    for path, here in (
        ("/usr/lib/pushup/bin/python", sys.executable),
        ("/usr/lib/pushup", str(root / "lib")),
        ("/etc/pushup", str(root)),
    ):
        text = text.replace(path, here)
    stand_ins = "adduser() { :; }\nchgrp() { :; }\n"
    command = [*within, "sh", "-c", f"ulimit -f {file_limit}\n{stand_ins}{text}", script, step]
    return subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode


def test_a_key_that_could_not_be_written_is_made_the_next_time(tmp_path: Path) -> None:
    """After a full disk, `dpkg --configure` does what is left; later it keeps the key."""
    (tmp_path / "lib/lib").mkdir(parents=True)
    assert run("postinst", "configure", tmp_path, file_limit="0") != 0
    assert run("postinst", "configure", tmp_path) == 0
    key = (tmp_path / "keys").read_text()
    assert len(key.strip()) == 48
    assert (tmp_path / "keys").stat().st_mode & 0o777 == 0o640
    assert run("postinst", "configure", tmp_path) == 0
    assert (tmp_path / "keys").read_text() == key


def test_it_is_installed_without_shared_memory(tmp_path: Path) -> None:
    """As into the folder of an image, where /dev has little in it: all bytecode is made."""
    (tmp_path / "lib/lib").mkdir(parents=True)
    (tmp_path / "lib/lib/module.py").touch()
    without = ("unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o ro none /dev/shm && exec "$@"', "sh")
    assert run("postinst", "configure", tmp_path, within=without) == 0
    assert [*(tmp_path / "lib/lib/__pycache__").iterdir()]


def test_a_damaged_installation_can_be_removed_and_repaired(tmp_path: Path) -> None:
    """Bytecode is removed; if the package's folder is gone, there is nothing to do."""
    (tmp_path / "lib/pushup/__pycache__").mkdir(parents=True)
    assert run("prerm", "remove", tmp_path) == 0
    assert [*(tmp_path / "lib/pushup").iterdir()] == []
    for step in ("remove", "upgrade", "failed-upgrade"):
        assert run("prerm", step, tmp_path / "gone") == 0
