"""The subscriptions that wait: by channel, to be woken, and by deadline, to be answered in time (PushUp §3.2).

Waking a channel takes its whole tree away in one step, however many wait in it; they are then answered in slices, so
that no turn of the reactor takes long. Who subscribes meanwhile waits in a new tree and is not looked at again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Generic

from pushup.core.channel import Channel
from pushup.core.subscription import H, Subscription
from pushup.core.time_tree import TimeTree

SHARE = 32
"""Subscriptions of one channel that are looked at before another channel has its turn."""


class Waiting(Generic[H]):
    """All held subscriptions of a node."""

    def __init__(self) -> None:
        self._by_deadline: TimeTree[Subscription[H]] = TimeTree()
        self.woken_channels: deque[Iterator[Subscription[H]]] = deque()
        """Who waited on each woken channel and is to be looked at; empty when there is nobody."""
        self.count = 0
        self.bytes = 0
        """What the held subscriptions count against `held_limit_bytes`."""

    @property
    def next_deadline(self) -> float | None:
        return self._by_deadline.first_time

    def hold(self, subscription: Subscription[H]) -> None:
        """Let it wait on its channels until its deadline."""
        deadline = subscription.deadline
        self._by_deadline.add(deadline, subscription)
        self.count += 1
        self.bytes += subscription.selection.size
        for channel in subscription.channels:
            channel.subscribers += 1
            waiting = channel.waiting
            if waiting is None:
                waiting = channel.waiting = TimeTree()
            waiting.add(deadline, subscription)

    def wait_again(self, subscription: Subscription[H]) -> None:
        """Put a woken subscription back where it is not: there was nothing for it."""
        for channel in subscription.channels:
            if channel.waiting is None:
                channel.waiting = TimeTree()
            channel.waiting.add(subscription.deadline, subscription)

    def wake(self, channel: Channel) -> None:
        """Let all who wait on the channel be looked at, the nearest deadline first. O(1)."""
        if channel.waiting is not None:
            self.woken_channels.append(iter(channel.waiting))
            channel.waiting = None

    def woken(self) -> Iterator[Subscription[H]]:
        """Those to be looked at; the caller may stop anywhere and go on with another call.

        Channels take turns, `SHARE` subscriptions each: who waits on a small one is not behind 10,000 of a large one.
        """
        while self.woken_channels:
            share = 0
            for subscription in islice(self.woken_channels[0], SHARE):
                share += 1
                if subscription.holder is not None:
                    yield subscription
            if share < SHARE:
                self.woken_channels.popleft()
            else:
                self.woken_channels.rotate(-1)

    def pop_due(self, now: float) -> Subscription[H] | None:
        """The subscription with the earliest deadline, if it has come."""
        return self._by_deadline.pop_due(now)

    def pop_last(self) -> Subscription[H] | None:
        """The subscription with the latest deadline."""
        return self._by_deadline.pop_last()

    def release(self, subscription: Subscription[H]) -> H:
        """It is answered or abandoned: let nothing hold on to it; returns its holder."""
        holder = subscription.holder
        assert holder is not None
        subscription.holder = None
        self.count -= 1
        self.bytes -= subscription.selection.size
        deadline = subscription.deadline
        self._by_deadline.discard(deadline, subscription)
        for channel in subscription.channels:
            channel.subscribers -= 1
            waiting = channel.waiting
            if waiting is not None:
                waiting.discard(deadline, subscription)
                if not waiting:
                    channel.waiting = None
        return holder

    def check(self) -> None:
        """Assert the invariants: who waits has a holder and waits on each of its channels."""
        self._by_deadline.check()
        assert len(self._by_deadline) == self.count
        assert sum(subscription.selection.size for subscription in self._by_deadline) == self.bytes
        for subscription in self._by_deadline:
            assert subscription.holder is not None
            if not self.woken_channels:
                assert all(c.waiting is not None and subscription in c.waiting for c in subscription.channels)
