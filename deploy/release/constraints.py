"""Prints the packages in a pylock.toml as requirements for pip: `python -m deploy.release.constraints PYLOCK`.

Each has the hashes of its wheels for Linux with glibc, for which images, the Debian package and wheels are built. Those
for all systems would be six times as many, and the build of the image is sent them.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from packaging.tags import Tag
from packaging.utils import parse_wheel_filename

MACHINES = ("x86_64", "aarch64")
OLDEST = 11
"""CPython 3.11 and later."""


def requirements(lock: dict[str, Any]) -> Iterator[str]:
    """The lines for each package."""
    for package in lock["packages"]:
        marker = f" ; {package['marker']}" if "marker" in package else ""
        wheels = (wheel for wheel in package["wheels"] if _is_used(_name(wheel["url"])))
        hashes = sorted(f"--hash=sha256:{wheel['hashes']['sha256']}" for wheel in wheels)
        yield " \\\n    ".join([f"{package['name']}=={package['version']}{marker}", *hashes])


def _name(url: str) -> str:
    return urlsplit(url).path.rpartition("/")[2]


def _is_used(wheel: str) -> bool:
    """Whether the builds may use this file."""
    _, _, _, tags = parse_wheel_filename(wheel)
    return any(_fits(tag) for tag in tags)


def _fits(tag: Tag) -> bool:
    on_linux = tag.platform.startswith("manylinux") and tag.platform.endswith(MACHINES)
    if not (tag.platform == "any" or on_linux):
        return False
    if tag.interpreter.startswith("cp") and tag.abi == tag.interpreter:
        return int(tag.interpreter.removeprefix("cp3")) >= OLDEST
    return tag.interpreter == "py3" or tag.abi == "abi3"


if __name__ == "__main__":
    print(*requirements(tomllib.loads(Path(sys.argv[1]).read_text())), sep="\n")
