"""A poll: which messages a client wants, after which cursor, and how long it waits for them (PushUp §3.2)."""

from __future__ import annotations

import math

from pushup.core.cursor import Cursor, Start

CHANNEL_OVERHEAD_BYTES = 350
"""What a held poll takes for each of its channels besides the name: its place in the tree of those that wait there.
Measured: 230-300 bytes where nobody else waits, less where others do."""


class Selection:
    """Which messages a client wants: of these channels, published in [start, end), at most `limit` in one answer.

    `hidden`: the client's page is (`node.presence`). Compared by identity: callers that use one object for equal polls
    share the answers as well. `size`: the bytes that count against `held_limit_bytes` while a poll with it is held. A
    value: nothing changes it.
    """

    __slots__ = ("channels", "end", "hidden", "limit", "size", "start")

    def __init__(
        self,
        channels: tuple[str, ...],
        limit: int = 100,
        start: float = 0.0,
        end: float = math.inf,
        hidden: bool = False,
    ) -> None:
        self.channels = channels
        self.limit = limit
        self.start = start
        self.end = end
        self.hidden = hidden
        # A single character beyond the first 65,536 makes Python store every character of the name in 4 bytes.
        names = sum([len(name) if name.isascii() else 4 * len(name) for name in channels])
        self.size = names + CHANNEL_OVERHEAD_BYTES * len(channels)


class Poll:
    """What a client asks for: which messages, after which cursor, and how long to wait (seconds).

    `stays`: once it is held it is answered again and again, until its deadline, or until an answer has `more`,
    `gaps` or `closed`. A value: nothing changes it.
    """

    __slots__ = ("cursor", "selection", "stays", "timeout")

    def __init__(
        self, selection: Selection, cursor: Cursor | Start = Start.EARLIEST, timeout: float = 0.0, stays: bool = False
    ) -> None:
        self.selection = selection
        self.cursor = cursor
        self.timeout = timeout
        self.stays = stays
