"""Idempotency keys: each key's publication and outcome, for as long as messages are kept (docs/guide/publishing.md)."""

from __future__ import annotations

from msgspec import Struct

from pushup.core.bounded_table import BoundedTable
from pushup.core.commands import Published


class Remembered(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A publication with a key: the fields of its `Published`, and the `fingerprint` of what was published."""

    key: str
    epoch: str
    sequence: int
    count: int
    time: float
    fingerprint: str

    @classmethod
    def of(cls, key: str, outcome: Published, fingerprint: str) -> Remembered:
        return cls(key, outcome.epoch, outcome.sequence, outcome.count, outcome.time, fingerprint)

    @property
    def outcome(self) -> Published:
        return Published(self.epoch, self.sequence, self.count, self.time)

    @property
    def row_name(self) -> str:
        return self.key

    @property
    def place(self) -> tuple[int, str]:
        """By sequence. Several have the same if an epoch began with the keys of two states."""
        return self.sequence, self.key


class Keys(BoundedTable[Remembered]):
    """The last publications with a key."""

    name = "keys"
    row_type = Remembered

    @property
    def limit(self) -> int:
        return self._rules.limits.keys_limit
