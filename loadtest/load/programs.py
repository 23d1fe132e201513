"""Compiles programs in C, once in each process."""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from pathlib import Path


@functools.cache
def program(*sources: Path) -> str:
    """The path of a program. Raises: CalledProcessError; RuntimeError without a compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise RuntimeError("a C compiler is needed (on Debian: apt-get install gcc libc6-dev)")
    path = str(Path(tempfile.mkdtemp(dir=_folder().name)) / sources[0].stem)
    flags = ["-O2", "-Wall", "-Wextra", "-Werror", "-pthread"]
    subprocess.run([compiler, *flags, "-o", path, *map(str, sources)], check=True)  # noqa: S603
    return path


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """Removed when this process ends."""
    return tempfile.TemporaryDirectory()
