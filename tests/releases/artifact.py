"""The artifact of a release: a zip with what a server needs at run time, and a TOML file that says what it is."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

FROZEN = Path(__file__).with_name("frozen.zip")
DESCRIPTION = Path(__file__).with_name("frozen.toml")

SAMPLE = "tests/releases/sample.py"
PACKED = ("pushup", SAMPLE)
"""What is taken of a commit."""

TIME = (1980, 1, 1, 0, 0, 0)
"""The time of every file in a zip, which has none before."""

ABOUT = "import json, sample; print(json.dumps(sample.about()))"
TRY = "import sys, pathlib, sample; path = pathlib.Path(sys.argv[1]); sample.write(path); sample.read(path)"

HEADER = """\
# What frozen.zip is: python -m tests.releases freeze
"""


class CannotFreeze(Exception):
    """The text says why, and what to do."""


def is_needed(name: str) -> bool:
    """Whether a server reads this file of the package."""
    return name.endswith((".py", ".lua")) or name == "pushup/browser/pushup.js"


def pack(files: Mapping[str, bytes]) -> bytes:
    """A zip of these files. Equal files give equal bytes, as far as zlib compresses them to the same."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in sorted(files.items()):
            info = zipfile.ZipInfo(name, TIME)
            info.create_system = 3  # Unix, on any system
            info.external_attr = 0o644 << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, content, compresslevel=9)
    return buffer.getvalue()


def unpack(directory: Path, archive: Path = FROZEN) -> None:
    """Put the files of a zip into a directory, from where they can be imported."""
    with zipfile.ZipFile(archive) as zipped:
        zipped.extractall(directory)


def described() -> dict[str, Any]:
    """What the frozen release says of itself: `commit`, `release`, `format`, `version`."""
    return tomllib.loads(DESCRIPTION.read_text())


def freeze(revision: str | None) -> str:
    """Make the artifact of a revision of this repository, by default of the current commit; returns its description.

    Raises: CannotFreeze.
    """
    if revision is None and (changed := _git("status", "--porcelain", "--", *PACKED)):
        raise CannotFreeze(f"these files are not as they are committed; commit them first:\n{changed.decode()}")
    commit = _git("rev-parse", "--verify", f"{revision or 'HEAD'}^{{commit}}").decode().strip()
    files = _files_of(commit)
    packed = pack(files)
    with tempfile.TemporaryDirectory() as directory:
        archive = Path(directory) / FROZEN.name
        archive.write_bytes(packed)
        unpack(Path(directory), archive)
        about = json.loads(_run(Path(directory), ABOUT))
        _run(Path(directory), TRY, str(Path(directory) / "journal"))
    text = HEADER + "".join(f"{name} = {json.dumps(value)}\n" for name, value in {"commit": commit, **about}.items())
    FROZEN.write_bytes(packed)
    DESCRIPTION.write_text(text)
    return f"{text}{FROZEN.relative_to(ROOT)} has {len(files)} files, {len(packed) / 1024:.0f} KiB"


def _files_of(commit: str) -> dict[str, bytes]:
    """What is packed of a commit, by its name in the zip: the package, and the sample beside it."""
    files = {}
    with tarfile.open(fileobj=io.BytesIO(_git("archive", "--format=tar", commit, "--", *PACKED))) as tar:
        for member in tar:
            content = tar.extractfile(member)  # None for a directory
            if content is not None and is_needed(member.name):
                files[re.sub(r"^tests/releases/", "", member.name)] = content.read()
    return files


def _git(*words: str) -> bytes:
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, check=False)
    if done.returncode:
        raise CannotFreeze(f"git {' '.join(words)}: {done.stderr.decode().strip()}")
    return done.stdout


def _run(directory: Path, program: str, *arguments: str) -> bytes:
    """Run a program with the files in this directory; returns what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=directory, env={**os.environ, "PYTHONPATH": str(directory)}, capture_output=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise CannotFreeze(f"the artifact does not work: {done.stderr.decode()}")
    return done.stdout
