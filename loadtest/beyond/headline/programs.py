"""Compiles the programs in C of this folder, once in each process."""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).parent


@functools.cache
def program(name: str) -> str:
    """The path of a program. Raises: CalledProcessError; RuntimeError without a compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise RuntimeError("a C compiler is needed (cc)")
    path = f"{_folder().name}/{name}"
    subprocess.run([compiler, "-O2", "-Wall", "-Wextra", "-Werror", "-o", path, str(HERE / f"{name}.c")], check=True)  # noqa: S603
    return path


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """Removed when this process ends."""
    return tempfile.TemporaryDirectory()
