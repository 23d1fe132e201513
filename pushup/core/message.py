"""A message: one published value, stored once however many channels it was published to (docs/architecture.md)."""

from __future__ import annotations

from msgspec import Raw

MESSAGE_OVERHEAD_BYTES = 1024
"""What a message costs beside its data: the object, its place in two trees, its names. Measured at 0.6-1.0 KiB."""


class Message:
    """One published value, in its place in the order.

    `data` is JSON text as the publisher wrote it: never decoded here, so a number keeps all its digits. `holders`
    counts the channels that still keep the message; with the last of them it leaves the cache. `size`: the bytes that
    count against `retention_bytes`.
    """

    __slots__ = ("channels", "data", "holders", "sequence", "size", "time")

    def __init__(self, sequence: int, time: float, channels: tuple[str, ...], data: Raw) -> None:
        self.sequence = sequence
        self.time = time
        self.channels = channels
        self.data = data
        self.size = len(memoryview(data)) + MESSAGE_OVERHEAD_BYTES
        self.holders = 0
