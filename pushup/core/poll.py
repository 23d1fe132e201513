"""A poll: which messages a client wants, from where on, and how long it would wait (PushUp §3.2)."""

from __future__ import annotations

import math

from msgspec import Struct
from msgspec.structs import force_setattr

from pushup.core.cursor import Cursor, Start

CHANNEL_OVERHEAD_BYTES = 350
"""What a held poll takes for each of its channels beside the name: its place in the channel's tree, and the channel
itself where nobody has published on it yet. Measured at 310-330 bytes."""


class Selection(Struct, frozen=True, eq=False):
    """Which messages a client wants: of these channels, published in [start, end), at most `limit` in one answer.

    Compared by identity: callers that share one selection among equal polls share the answers, too. `size`: the bytes
    that count against `held_limit_bytes` while a poll with it is held.
    """

    channels: tuple[str, ...]
    limit: int = 100
    start: float = 0.0
    end: float = math.inf
    size: int = 0

    def __post_init__(self) -> None:
        # One character beyond Unicode's first 65,536 is enough for Python to keep each of a name in 4 bytes.
        names = sum([len(name) if name.isascii() else 4 * len(name) for name in self.channels])
        size = names + CHANNEL_OVERHEAD_BYTES * len(self.channels)
        force_setattr(self, "size", size)


class Poll(Struct, frozen=True, eq=False):
    """What a client asks: which messages, from where on, and how long it would wait (seconds)."""

    selection: Selection
    cursor: Cursor | Start = Start.EARLIEST
    timeout: float = 0.0
