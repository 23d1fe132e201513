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


def applied_by_all(members: list[Member]) -> Cursor | None:
    """The last entry that all have applied, as far as they have told; none where they differ in their epochs."""
    places = [member.cursor.rpartition("-") for member in members]
    epochs = {epoch for epoch, _, _ in places}
    if len(epochs) != 1:
        return None
    return Cursor(epochs.pop(), min(int(sequence) for _, _, sequence in places))
