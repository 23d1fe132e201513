"""A subscription: one held poll (PushUp §3.2: a timeout, and optionally a time range)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Generic, TypeVar

from msgspec import Struct

from pushup.core.cursor import Cursor, Start

if TYPE_CHECKING:
    from pushup.core.channel import Channel

H = TypeVar("H")
"""What holds a poll open, whatever the caller uses: it goes in with the poll and comes out with the answer."""


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


class Subscription(Struct, Generic[H], eq=False):
    """A poll that is held until one of its channels has something for it, or until its deadline.

    `seen`: all entries of its channels up to this sequence were seen. It is the same for all subscriptions that
    wait for the same next message, so that their answers are equal and are made once. `holder` is None once it was
    answered or abandoned.
    """

    selection: Selection
    channels: tuple[Channel, ...]
    seen: int
    deadline: float
    holder: H | None
