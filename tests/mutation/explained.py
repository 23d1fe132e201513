"""The mutants that no test can kill, with the reasons: `survivors.toml`.

Each has the `file`, the text of the `line`, the `change` as it is printed, and the `reason`.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec

from tests.mutation.mutants import Mutant

SURVIVORS = Path(__file__).with_name("survivors.toml")


class Explained(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why no test can notice this change. Without a `change` all of the line are meant."""

    file: str
    line: str
    reason: str
    change: str = ""

    def fits(self, mutant: Mutant) -> bool:
        return self.file == str(mutant.path) and self.line == mutant.text and self.change in ("", mutant.change)


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    survivors: list[Explained]


def read(path: Path = SURVIVORS) -> list[Explained]:
    """Raises: msgspec.ValidationError."""
    return msgspec.convert(tomllib.loads(path.read_text()), _File).survivors
