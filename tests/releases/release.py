"""A release that servers can be started of: its files in a directory, and what decides who can follow whom."""

from __future__ import annotations

import importlib
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from pushup.broadcast.formats import FORMAT
from pushup.core.machine_rules import LATEST_VERSION
from tests.releases.artifact import ROOT, described, unpack


class Release(NamedTuple):
    """A release of PushUp. `directory`: where the package is; `version`: the latest that it knows."""

    name: str
    directory: Path
    format: int
    version: int

    @property
    def environment(self) -> dict[str, str]:
        """With this, a server is one of this release."""
        return {"PYTHONPATH": str(self.directory)}

    def follows(self, other: Release) -> bool:
        """Whether it can go on with what the other one has stored, when only servers of the other one are left."""
        return self.format == other.format and self.version >= other.version

    def reason_against(self, other: Release) -> list[str]:
        """What a server says that cannot: what it has found, and what to do."""
        if self.format != other.format:
            return [f"has format {other.format}", f"format {self.format}", "Use the release"]
        return [f"version {other.version} of the state machine", "newer"]


def tree() -> Release:
    """What is in this repository."""
    return Release("the tree", ROOT, FORMAT, LATEST_VERSION)


def frozen(directory: Path) -> Release:
    """The frozen one, unpacked into this directory."""
    unpack(directory)
    about = described()
    return Release("frozen", directory, about["format"], about["version"])


def of_another_format(directory: Path) -> Release:
    """The frozen one with another number of its format, which the tree does not have either."""
    number = FORMAT + 1
    release = frozen(directory)
    _change(directory / "pushup/broadcast/formats.py", rf"^FORMAT = {release.format}$", f"FORMAT = {number}")
    return release._replace(name=f"format {number}", format=number)


def of_the_next_version(directory: Path) -> Release:
    """The tree with the number of a newer state machine, which does nothing else than that of today."""
    number = LATEST_VERSION + 1
    shutil.copytree(ROOT / "pushup", directory / "pushup", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    path = directory / "pushup/core/machine_rules.py"
    _change(path, rf"^LATEST_VERSION = {LATEST_VERSION}$", f"LATEST_VERSION = {number}")
    return tree()._replace(name=f"version {number}", directory=directory, version=number)


def _change(path: Path, pattern: str, text: str) -> None:
    changed, count = re.subn(pattern, lambda _: text, path.read_text(), flags=re.MULTILINE)
    assert count == 1, f"{path} has {pattern} {count} times"
    path.write_text(changed)


@contextmanager
def sample_of(release: Release) -> Iterator[Any]:
    """The `sample` of a release that was unpacked, imported into this process with the code of that release.

    It is a module like `tests.releases.sample`. Meanwhile an import of `pushup` in this process is one of that release,
    and what is imported already stays as it is.
    """
    names = ("pushup", "sample")
    ours = _remove_modules(names)
    sys.path.insert(0, str(release.directory))
    importlib.invalidate_caches()
    try:
        sample = importlib.import_module("sample")
        package: Any = importlib.import_module("pushup")
        assert Path(package.__file__).is_relative_to(release.directory)
        yield sample
    finally:
        sys.path.remove(str(release.directory))
        _remove_modules(names)
        sys.modules.update(ours)


def _remove_modules(packages: tuple[str, ...]) -> Mapping[str, Any]:
    """Forget that these packages are imported; returns their modules."""
    names = [name for name in sys.modules if name.partition(".")[0] in packages]
    return {name: sys.modules.pop(name) for name in names}
