"""Members (Mishra §2): what the living nodes of a cluster tell each other about themselves."""

from __future__ import annotations

from msgspec import Struct

from pushup.core.cursor import Cursor


class Member(Struct, frozen=True):
    """A node: its id, name and addresses, the last entry it has applied (a cursor), its held polls, its version."""

    id: str
    name: str
    addresses: tuple[str, ...]
    cursor: str
    held_polls: int
    version: str


def applied_by_all(members: list[Member]) -> Cursor | None:
    """The last entry that all of them are known to have applied; None if they are in different epochs."""
    places = [member.cursor.rpartition("-") for member in members]
    epochs = {epoch for epoch, _, _ in places}
    if len(epochs) != 1:
        return None
    return Cursor(epochs.pop(), min(int(sequence) for _, _, sequence in places))
