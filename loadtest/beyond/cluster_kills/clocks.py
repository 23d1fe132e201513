"""Clocks that are wrong: of one process each, and set while that runs.

A shared library (`shifted_clock.c`) that is loaded before the C library adds an offset to the wall clock; the monotonic
clock stays right. It is compiled when it is needed. (libfaketime does the same and more, but not with jemalloc, which
Debian's Redis uses: wolfcw/libfaketime#130.)
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("shifted_clock.c")


def missing() -> str:
    """What to install for this; empty if nothing is missing."""
    return "" if shutil.which("cc") else "a C compiler (on Debian: apt-get install gcc libc6-dev)"


class Clocks:
    """The clocks of some processes; all are right at first."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._library = folder / "shifted_clock.so"
        subprocess.run(  # noqa: S603
            [shutil.which("cc") or "cc", "-O2", "-shared", "-fPIC", "-o", str(self._library), str(SOURCE)], check=True
        )
        self.offsets: dict[str, int] = {}
        """By how many seconds each clock is ahead."""

    def environment(self, name: str) -> dict[str, str]:
        """What the process of this name has to be started with."""
        if name not in self.offsets:
            self._file(name).write_bytes(struct.pack("q", 0))
            self.offsets[name] = 0
        return {"LD_PRELOAD": str(self._library), "CLOCK_OFFSET_FILE": str(self._file(name))}

    def set(self, name: str, offset: int) -> None:
        """Set a clock: it jumps at once."""
        self.offsets[name] = offset
        with self._file(name).open("r+b") as file:  # the process has mapped it
            file.write(struct.pack("q", offset))

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.clock"
