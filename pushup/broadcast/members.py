"""The nodes that live (Mishra §2, membership): what each shows of itself."""

from __future__ import annotations

from msgspec import Struct


class Member(Struct, frozen=True):
    """A node: what it is called, where it listens, the last entry it has applied, the polls it holds, its version."""

    id: str
    name: str
    addresses: tuple[str, ...]
    cursor: str
    held_polls: int
    version: str

    @property
    def sequence(self) -> int:
        """How far it is in the order."""
        return int(self.cursor.rpartition("-")[2])
