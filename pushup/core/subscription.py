"""A subscription: one held poll (PushUp §3.2: the channel keeps it open for a time)."""

from __future__ import annotations

from typing import Generic, TypeVar

from msgspec import Struct

from pushup.core.channel import Channel
from pushup.core.poll import Selection

H = TypeVar("H")
"""What holds a poll open, whatever the caller uses: it goes in with the poll and comes out with the answer."""


class Subscription(Struct, Generic[H], eq=False):
    """A poll that is held until one of its channels has something for it, or until its deadline.

    `seen`: all entries of its channels up to this sequence were seen. It is the same for all subscriptions that
    wait for the same next message, so that their answers are equal and are made once. `holder` is None once it was
    answered or abandoned. `looked`: the last entry after which it was looked at in vain, and put back to wait.
    """

    selection: Selection
    channels: tuple[Channel, ...]
    seen: int
    deadline: float
    holder: H | None
    looked: int = 0
