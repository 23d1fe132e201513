"""A message: one published value, stored once for all of its channels (docs/internals/architecture.md).

What a publisher may add to channels and data is one value, `Attributes`. It travels whole, from the body of a
publication through the log or the journal into every cache. Another attribute is added here, and checked in
`net.api.bodies`.
"""

from __future__ import annotations

from msgspec import Raw, Struct

from pushup.core.shelves import Shelf

# `gc=False`, as for snapshots: with a million of them, looking for cycles, in which they cannot be, takes long.

MESSAGE_OVERHEAD_BYTES = 1024
"""What a message takes besides its data: the object, its place in two trees, its names. Measured: 0.6-1.0 KiB."""


class Attributes(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """What a message may have. Where clients see a message, they are fields of it."""

    event: str = ""
    """A name for clients that dispatch on one."""
    ephemeral: bool = False
    """It is of use only at once: kept for some seconds, in memory of its own, and then dropped without a gap."""


def attributes_of(given: Attributes) -> Attributes | None:
    """Those of something that has them among its fields; None if it has none, as most."""
    if given.event or given.ephemeral:
        return Attributes(event=given.event, ephemeral=given.ephemeral)
    return None


class Message(Struct, eq=False, gc=False):
    """One published value with its place in the order.

    `data` is JSON text as the publisher wrote it; it is never decoded, so a number keeps all its digits. `size`: the
    bytes that count against `retention_bytes`. `holders`: how many channels still keep the message; the cache drops it
    with the last one. `before`, `after`: the sequences of its neighbours on its shelf; 0: none.
    """

    sequence: int
    time: float
    channels: tuple[str, ...]
    data: Raw
    attributes: Attributes | None
    shelf: Shelf
    before: int = 0
    after: int = 0
    holders: int = 0
    size: int = 0

    def __post_init__(self) -> None:
        self.size = len(memoryview(self.data)) + MESSAGE_OVERHEAD_BYTES

    @property
    def is_ephemeral(self) -> bool:
        return self.attributes is not None and self.attributes.ephemeral
