"""The mutants that no test can kill, with the reasons: `survivors.toml`.

Each entry has the `file`, the text of the `line`, the `changes` as they are printed, and the `reason`.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec

from tests.mutation.mutants import Mutant

SURVIVORS = Path(__file__).with_name("survivors.toml")


class Explained(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why no test can notice these changes of a line."""

    file: str
    line: str
    changes: list[str]
    reason: str

    def fits(self, mutant: Mutant) -> bool:
        return self.file == str(mutant.path) and self.line == mutant.text and mutant.change in self.changes


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    survivors: list[Explained]


def read(path: Path = SURVIVORS) -> list[Explained]:
    """Raises: msgspec.ValidationError."""
    return msgspec.convert(tomllib.loads(path.read_text()), _File).survivors
