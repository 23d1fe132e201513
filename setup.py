"""What pyproject.toml cannot say: a wheel is compiled if there is a C compiler (decision 19), and
contains the name of its commit, for `pushup --version`.

PUSHUP_COMPILE=0: never. PUSHUP_COMPILE=1: the build fails if it cannot be compiled. PUSHUP_COMMIT: the commit, where
git does not know it. SOURCE_DATE_EPOCH: the time of every file, for builds with the same bytes (decision 24).
"""

from __future__ import annotations

import gzip
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import time
import tomllib
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = Path(__file__).parent

PROJECT: dict[str, Any] = tomllib.loads((HERE / "pyproject.toml").read_text())["tool"]["pushup"]

WANTED = os.environ.get("PUSHUP_COMPILE", "")

TYPES = """
[mypy]
ignore_missing_imports = true
cache_dir = /dev/null
[mypy-twisted.*,zope.*,prometheus_client.*,psutil.*,sortedcontainers.*,httptools.*]
follow_imports = skip
"""
"""Settings for mypy. Of the packages that PushUp needs it looks at msgspec alone, installed or not, so that the result
does not depend on the others, and none of their types can make the build fail."""


def why_not_compiled() -> str | None:
    """Why nothing can be compiled here; None if it can."""
    if platform.python_implementation() != "CPython":
        return f"{platform.python_implementation()} is not CPython"
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    if shutil.which(compiler) is None:
        return f"there is no C compiler ({compiler})"
    headers = Path(sysconfig.get_path("include"))
    if not (headers / "Python.h").exists():
        return f"the headers of Python are not installed ({headers}/Python.h; on Debian, python3-dev has them)"
    return None


def extensions() -> list[Any]:
    """The modules in pyproject.toml, as C by mypyc; nothing if that fails, unless PUSHUP_COMPILE=1."""
    settings = HERE / "build" / "mypy.ini"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text(TYPES)
    modules = [name.replace(".", "/") + ".py" for name in PROJECT["compiled"]]
    try:
        from mypyc.build import mypycify

        # Debugging information would name the folder of this build.
        options = {"opt_level": "3", "debug_level": "0", "group_name": "pushup"}
        return list(mypycify([f"--config-file={settings}", *modules], **options))
    except (Exception, SystemExit) as error:  # such as a Python that is too new for this mypyc
        if WANTED == "1":
            raise
        sys.stderr.write(f"pushup: not compiled, because mypyc failed: {error!r}\n")
        return []


def commit() -> str:
    """The commit of this source, with `-dirty` if it has been changed; empty if unknown."""
    known = os.environ.get("PUSHUP_COMMIT", "")
    if known or not (HERE / ".git").exists():
        unpacked = HERE / "pushup" / "commit"  # in an sdist
        return known or (unpacked.read_text().strip() if unpacked.exists() else "")
    describe = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        return subprocess.run(describe, cwd=HERE, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603  # no input
    except (OSError, subprocess.CalledProcessError):
        return ""


def write_commit(directory: str) -> None:
    if found := commit():
        (Path(directory) / "pushup" / "commit").write_text(f"{found}\n")


class BuildWithCommit(build_py):
    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            write_commit(self.build_lib)


class SdistWithCommit(sdist):
    """With SOURCE_DATE_EPOCH, it has the same bytes each time; of wheels, setuptools sees to that itself."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        write_commit(base_dir)

    def make_archive(self, base_name: str, kind: str, *, base_dir: str, **owner: Any) -> str:
        at = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))

        def normal(entry: tarfile.TarInfo) -> tarfile.TarInfo:
            entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = at, 0, 0, "", ""
            entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
            return entry

        name = f"{base_name}.tar.gz"
        with gzip.GzipFile(name, "wb", mtime=at) as packed, tarfile.open(fileobj=packed, mode="w") as archive:
            archive.add(base_dir, filter=normal)  # in the order of the names
        return name


os.chdir(HERE)
reason = "PUSHUP_COMPILE=0" if WANTED == "0" else why_not_compiled()
if reason is not None and WANTED == "1":
    sys.exit(f"PUSHUP_COMPILE=1, but {reason}")

# Not in an editable installation, in which changes to the source would have no effect.
builds = not {"bdist_wheel", "build_ext", "build"}.isdisjoint(sys.argv)
if builds:
    hint = "compiling; if that fails, PUSHUP_COMPILE=0 installs PushUp without"
    sys.stderr.write(f"pushup: {hint if reason is None else f'not compiled: {reason}'}\n")
setup(
    cmdclass={"build_py": BuildWithCommit, "sdist": SdistWithCommit},
    ext_modules=extensions() if builds and reason is None else [],
    setup_requires=PROJECT["compiler"] if reason is None else [],
)
