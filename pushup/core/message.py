"""A message: one published value, stored once however many channels it was published to (docs/architecture.md)."""

from __future__ import annotations

from msgspec import Raw, Struct

# `gc=False`, as for snapshots: with a million of them, looking for cycles, in which they cannot be, takes long.

MESSAGE_OVERHEAD_BYTES = 1024
"""What a message takes besides its data: the object, its place in two trees, its names. Measured: 0.6-1.0 KiB."""


class Message(Struct, eq=False, gc=False):
    """One published value with its place in the order.

    `data` is JSON text as the publisher wrote it; it is never decoded, so a number keeps all its digits. `size`: the
    bytes that count against `retention_bytes`. `holders`: how many channels still keep the message; the cache drops it
    with the last one.
    """

    sequence: int
    time: float
    channels: tuple[str, ...]
    data: Raw
    holders: int = 0
    size: int = 0

    def __post_init__(self) -> None:
        self.size = len(memoryview(self.data)) + MESSAGE_OVERHEAD_BYTES
