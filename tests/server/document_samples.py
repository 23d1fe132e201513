"""The code samples in the documents, at the top level and in docs/: every block, fenced or indented."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

SESSION = (
    "docs/guide/http.md",
    "docs/guide/publishing.md",
    "docs/guide/channels.md",
    "docs/guide/errors.md",
    "docs/operate/monitoring.md",
)
"""The pages whose requests and responses form one session with a server, in this order."""


class Sample(NamedTuple):
    """A block; `kind` is the language after the fence, or "indented" without a fence."""

    document: str
    kind: str
    text: str

    @property
    def start(self) -> str:
        """Its name: its document and its first line."""
        return f"{self.document}: {self.text.splitlines()[0].strip()}"


def samples() -> list[Sample]:
    """All samples."""
    paths = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
    return [sample for path in paths for sample in samples_in(path.read_text(), path.relative_to(ROOT).as_posix())]


def samples_in(text: str, document: str) -> Iterator[Sample]:
    """The blocks of one document: between fences, or indented by four spaces after an empty line."""
    fence, kind, block, before = "", "", list[str](), ""
    for line in [*text.splitlines(), ""]:
        opened = re.match(r"\s*(```+|~~~+)\s*(.*)", line)
        if fence:
            if line.strip() == fence:
                yield Sample(document, kind, "".join(f"{each}\n" for each in block))
                fence, block = "", []
            else:
                block.append(line)
        elif opened:
            fence, kind = opened[1], opened[2].strip()
        elif line.startswith("    ") and (block or not before.strip()):
            block.append(line[4:])
        elif block:
            yield Sample(document, "indented", "".join(f"{each}\n" for each in block))
            block = []
        before = line


_ALL = samples()
TAKEN: set[str] = set()
"""The names of the samples that a test has requested."""


def sample(document: str, start: str) -> str:
    """The text of the sample whose first line starts with this."""
    (found,) = [each for each in _ALL if each.document == document and each.text.strip().startswith(start)]
    TAKEN.add(found.start)
    return found.text


def flags(line: str) -> tuple[str, ...]:
    """The flags of a `pushup serve` command."""
    program, command, *words = shlex.split(line, comments=True)
    assert (program, command) == ("pushup", "serve")
    return tuple(words)
