"""A message: one published value, stored once however many channels it was published to (docs/architecture.md)."""

from __future__ import annotations

from msgspec import Raw, Struct

MESSAGE_OVERHEAD_BYTES = 1024
"""What a message costs beside its data: the object, its place in two trees, its names. Measured at 0.6-1.0 KiB."""


class Message(Struct, eq=False):
    """One published value, in its place in the order.

    `data` is JSON text as the publisher wrote it: never decoded here, so a number keeps all its digits. `size`: the
    bytes that count against `retention_bytes`. `holders` counts the channels that still keep the message; with the last
    of them it leaves the cache.
    """

    sequence: int
    time: float
    channels: tuple[str, ...]
    data: Raw
    holders: int = 0
    size: int = 0

    def __post_init__(self) -> None:
        self.size = len(memoryview(self.data)) + MESSAGE_OVERHEAD_BYTES
