"""The nodes that live (Mishra §2, membership): what each shows of itself."""

from __future__ import annotations

from msgspec import Struct

from pushup.core.cursor import Cursor


class Member(Struct, frozen=True):
    """A node: what it is called, where it listens, the last entry it has applied, the polls it holds, its version."""

    id: str
    name: str
    addresses: tuple[str, ...]
    cursor: str
    held_polls: int
    version: str

    def has_applied(self, cursor: Cursor) -> bool:
        """Whether it has applied the entry at this cursor, as far as it has told; in another epoch it has not."""
        epoch, _, sequence = self.cursor.rpartition("-")
        return epoch == cursor.epoch and int(sequence) >= cursor.sequence
