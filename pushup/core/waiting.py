"""The subscriptions that wait: by name, to be woken, and by deadline, to be answered in time (PushUp §3.2).

Waking a name removes its whole tree in one step, however many wait in it; they are then answered in slices, so that no
turn of the reactor takes long. A poll that arrives meanwhile waits in a new tree.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Generic

from pushup.core.channel import Channel
from pushup.core.poll import Poll
from pushup.core.subscription import H, Subscription
from pushup.core.time_tree import TimeTree
from pushup.core.waiters import Waiters

SHARE = 32
"""Subscriptions of one name that are looked at before those of another name get their turn."""


class Waiting(Generic[H]):
    """All held subscriptions of a node."""

    def __init__(self) -> None:
        self._by_name: dict[str, Waiters] = {}
        self._by_deadline: TimeTree[Subscription[H]] = TimeTree()
        self.woken_names: deque[Iterator[Subscription[H]]] = deque()
        """The subscriptions to look at, an iterator for each woken name; empty when there are none."""
        self.count = 0
        self.bytes = 0
        """What the held subscriptions count against `held_limit_bytes`."""
        self.awaited_count = 0
        """Names that subscriptions wait for although no channel has them."""
        self.generation = 0
        """That of new subscriptions and names."""

    def __iter__(self) -> Iterator[Subscription[H]]:
        return iter(self._by_deadline)

    @property
    def names(self) -> Iterator[Waiters]:
        return iter(self._by_name.values())

    @property
    def next_deadline(self) -> float | None:
        return self._by_deadline.first_time

    def get(self, name: str) -> Waiters | None:
        return self._by_name.get(name)

    def hold(self, poll: Poll, channels: Sequence[Channel], seen: int, deadline: float, holder: H) -> Subscription[H]:
        """A new subscription that waits on these channels until its deadline."""
        found = []
        for channel in channels:
            waiters = self._by_name.get(channel.name) or self._add_waiters(channel)
            waiters.subscribers += 1
            found.append(waiters)
        subscription = Subscription(poll.selection, tuple(found), seen, deadline, holder, self.generation, poll.stays)
        self._by_deadline.add(deadline, subscription)
        self.count += 1
        self.bytes += poll.selection.size
        self.wait(subscription)
        return subscription

    def wait(self, subscription: Subscription[H]) -> None:
        """Put the subscription into the tree of each of its names; also after it was woken, if it stays."""
        for waiters in subscription.waiters:
            if waiters.tree is None:
                waiters.tree = TimeTree()
            waiters.tree.add(subscription.deadline, subscription)

    def _add_waiters(self, channel: Channel) -> Waiters:
        """The `Waiters` of a name on which nobody waits yet; the caller adds the first."""
        name = channel.name
        is_awaited = channel.id == 0 and channel.closed_sequence == 0
        if is_awaited:
            self.awaited_count += 1
        waiters = self._by_name[name] = Waiters(name, is_awaited, self.generation)
        return waiters

    def wake(self, name: str) -> None:
        """Let `woken` return all that wait on this name, the nearest deadline first. O(1)."""
        waiters = self._by_name.get(name)
        if waiters is not None and waiters.tree is not None:
            self.woken_names.append(iter(waiters.tree))
            waiters.tree = None

    def set_awaited(self, waiters: Waiters, is_awaited: bool) -> None:
        """Note whether the name has no channel now."""
        if is_awaited and not waiters.subscribers:
            del self._by_name[waiters.name]
        else:
            self.awaited_count += is_awaited - waiters.is_awaited
            waiters.is_awaited = is_awaited

    def woken(self) -> Iterator[Subscription[H]]:
        """The subscriptions to look at; the caller may stop anywhere and continue with another call.

        Names take turns, `SHARE` subscriptions each: a small channel does not wait behind 10,000 of a large one.
        """
        while self.woken_names:
            share = 0
            for subscription in islice(self.woken_names[0], SHARE):
                share += 1
                if subscription.holder is not None:
                    yield subscription
            if share < SHARE:
                self.woken_names.popleft()
            else:
                self.woken_names.rotate(-1)

    def pop_due(self, now: float) -> Subscription[H] | None:
        """The subscription with the earliest deadline, if it has come."""
        return self._by_deadline.pop_due(now)

    def pop_last(self) -> Subscription[H] | None:
        """The subscription with the latest deadline."""
        return self._by_deadline.pop_last()

    def release(self, subscription: Subscription[H]) -> H:
        """Remove a subscription that is answered or abandoned; returns its holder."""
        holder = subscription.holder
        assert holder is not None
        subscription.holder = None
        self.count -= 1
        self.bytes -= subscription.selection.size
        deadline = subscription.deadline
        self._by_deadline.discard(deadline, subscription)
        for waiters in subscription.waiters:
            tree = waiters.tree
            if tree is not None:  # else it was woken
                tree.discard(deadline, subscription)
                if not tree:
                    waiters.tree = None
            waiters.subscribers -= 1
            if waiters.is_awaited and not waiters.subscribers:
                del self._by_name[waiters.name]
                self.awaited_count -= 1
        return holder

    def check(self) -> None:
        """Assert the invariants: every held subscription has a holder and waits on each of its names."""
        self._by_deadline.check()
        assert len(self._by_deadline) == self.count
        assert sum(subscription.selection.size for subscription in self._by_deadline) == self.bytes
        assert sum(waiters.is_awaited for waiters in self.names) == self.awaited_count
        assert sum(w.subscribers for w in self.names) == sum(len(s.waiters) for s in self._by_deadline)
        for name, waiters in self._by_name.items():
            waiters.check()
            assert waiters.name == name
        for subscription in self._by_deadline:
            assert subscription.holder is not None
            assert all(self._by_name[w.name] is w for w in subscription.waiters)
            if not self.woken_names:
                assert all(w.tree is not None and subscription in list(w.tree) for w in subscription.waiters)
