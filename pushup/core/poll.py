"""A poll: which messages a client wants, from where on, and how long it would wait (PushUp §3.2)."""

from __future__ import annotations

import math

from msgspec import Struct

from pushup.core.cursor import Cursor, Start


class Selection(Struct, frozen=True, eq=False):
    """Which messages a client wants: of these channels, published in [start, end), at most `limit` in one answer.

    Compared by identity: callers that share one selection among equal polls share the answers, too.
    """

    channels: tuple[str, ...]
    limit: int = 100
    start: float = 0.0
    end: float = math.inf


class Poll(Struct, frozen=True, eq=False):
    """What a client asks: which messages, from where on, and how long it would wait (seconds)."""

    selection: Selection
    cursor: Cursor | Start = Start.EARLIEST
    timeout: float = 0.0
