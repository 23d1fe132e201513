"""Compile PushUp in a copy of this project, for its tests: `python deploy/compiled.py .venv/compiled`.

The checkout stays interpreted: there, changes must have an effect. If no source has changed, nothing is compiled again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
import zlib
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent

STAMP = "compiled.stamp"

CHANGED = "warning: Treating"
"""In the output of mypyc, where compiled code would do something else: it makes a list of a generator expression."""


def make(folder: Path) -> None:
    """Bring the copy up to date, with the compiled modules of a wheel. Raises: subprocess.CalledProcessError."""
    _copy(folder)
    stamp = folder / STAMP
    fingerprint = _fingerprint()
    if stamp.exists() and stamp.read_text() == fingerprint:
        return
    sys.stderr.write(f"Compiling PushUp in {folder}, which takes a minute\n")
    stamp.unlink(missing_ok=True)
    for old in folder.rglob("*.so"):
        old.unlink()
    _install_headers()
    with tempfile.TemporaryDirectory() as temporary:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--verbose", "--no-deps"]
        done = subprocess.run(
            [*pip, "--wheel-dir", temporary, str(folder)],
            env={**os.environ, "PUSHUP_COMPILE": "1"}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode or CHANGED in done.stdout:
            sys.exit(f"PushUp could not be compiled:\n{done.stdout[-6000:]}{done.stderr[-6000:]}")
        for wheel in Path(temporary).glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(folder, [name for name in archive.namelist() if name.endswith(".so")])
    stamp.write_text(fingerprint)


def _copy(folder: Path) -> None:
    """Copy what git knows, or would add; remove what it does not."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=PROJECT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    wanted = {Path(name) for name in listed.split("\0") if name and (PROJECT / name).is_file()}
    for old in folder.rglob("*.py"):
        if old.relative_to(folder) not in wanted:
            old.unlink()
    for path in wanted:
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(PROJECT / path, target)


def _fingerprint() -> str:
    """Identifies what is compiled, and for which Python."""
    sources = (PROJECT / "setup.py", PROJECT / "pyproject.toml", *sorted((PROJECT / "pushup").rglob("*.py")))
    total = 0
    for path in sources:
        total = zlib.crc32(path.read_bytes(), total)
    return f"{sys.version}\n{total:08x}\n"


def _install_headers() -> None:
    """Install the headers of Debian's Python if they are missing; other Pythons come with theirs."""
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists() and shutil.which("apt-get"):
        sudo = [] if os.geteuid() == 0 else ["sudo"]
        package = f"python{sys.version_info[0]}.{sys.version_info[1]}-dev"
        subprocess.run([*sudo, "apt-get", "update", "-qq"], check=False)
        subprocess.run([*sudo, "apt-get", "install", "-y", "-qq", package], check=False)


if __name__ == "__main__":
    make(Path(sys.argv[1]).resolve())
