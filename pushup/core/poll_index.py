"""Where each held poll is: by name, to be woken; by deadline, to be answered in time (PushUp §3.2).

This is the life of a subscription. All of its fields are written here, and nowhere else.

| state | where it is |
|---|---|
| waiting | in the tree of each of its names, and by deadline |
| woken | by deadline, and still in the iterator of a woken name, or left over by it |
| over | nowhere: `holder` is None |

| event | from | to | method |
|---|---|---|---|
| a poll arrives, and there is nothing for it | | waiting | `hold` |
| an entry touches one of its names | waiting | woken | `wake` |
| it is looked at: there is nothing for it, or it is a stream | woken | waiting, `seen` moves on | `wait_on` |
| it is answered: with messages, at its deadline, in a drain | waiting, woken | over | `release` |
| its client leaves | waiting, woken | over | `release` |
| the order has lost what it has seen | waiting, woken | woken, `seen` is `EPOCH_ENDED` | `lose` |
| it is looked at after the node got another state (`poll_migration`) | any | the same, `generation` is new | `move` |

Waking a name removes its whole tree in one step, however many wait in it; they are then answered in slices, so that no
turn of the reactor takes long. A poll that arrives in between waits in a new tree.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Generic

from pushup.core.channel import Channel
from pushup.core.poll import Poll
from pushup.core.subscription import EPOCH_ENDED, ChannelWaiters, H, Subscription
from pushup.core.time_tree import TimeTree

SHARE = 32
"""Subscriptions of one name that are looked at before those of another name get their turn."""


class PollIndex(Generic[H]):
    """All held subscriptions of a node, and the names on which they wait."""

    def __init__(self) -> None:
        self._by_name: dict[str, ChannelWaiters] = {}
        self._by_deadline: TimeTree[Subscription[H]] = TimeTree()
        self._woken: deque[Iterator[Subscription[H]]] = deque()  # one for each woken name
        self._ahead: TimeTree[Subscription[H]] = TimeTree()  # by `seen`
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
    def names(self) -> Iterator[ChannelWaiters]:
        return iter(self._by_name.values())

    @property
    def has_woken(self) -> bool:
        return bool(self._woken)

    @property
    def next_deadline(self) -> float | None:
        return self._by_deadline.first_time

    def get(self, name: str) -> ChannelWaiters | None:
        return self._by_name.get(name)

    # The life of a subscription.

    def hold(self, poll: Poll, channels: Sequence[Channel], seen: int, deadline: float, holder: H) -> Subscription[H]:
        """A new subscription that waits on these channels until its deadline."""
        found = []
        for channel in channels:
            waiters = self._by_name.get(channel.name) or self._add_name(channel)
            waiters.subscribers += 1
            found.append(waiters)
        subscription = Subscription(poll.selection, tuple(found), seen, deadline, holder, self.generation, poll.stays)
        self._by_deadline.add(deadline, subscription)
        self.count += 1
        self.bytes += poll.selection.size
        self._wait(subscription)
        return subscription

    def wake(self, name: str) -> None:
        """Let `woken` return all that wait on this name, the nearest deadline first. O(1)."""
        waiters = self._by_name.get(name)
        if waiters is not None and waiters.tree is not None:
            self._woken.append(iter(waiters.tree))
            waiters.tree = None

    def woken(self) -> Iterator[Subscription[H]]:
        """The subscriptions to look at; the caller may stop anywhere and continue with another call.

        Names take turns, `SHARE` subscriptions each: a small channel does not wait behind 10,000 of a large one.
        """
        while self._woken:
            share = 0
            for subscription in islice(self._woken[0], SHARE):
                share += 1
                if subscription.holder is not None:
                    yield subscription
            if share < SHARE:
                self._woken.popleft()
            else:
                self._woken.rotate(-1)

    def wait_on(self, subscription: Subscription[H], last: int) -> None:
        """It was looked at when `last` was the last entry: have it wait for the next one."""
        if subscription.seen < last:
            subscription.seen = last
        self._wait(subscription)

    def release(self, subscription: Subscription[H]) -> H:
        """It is answered, or its client has left; returns its holder."""
        holder = subscription.holder
        assert holder is not None
        subscription.holder = None
        self.count -= 1
        self.bytes -= subscription.selection.size
        deadline = subscription.deadline
        self._by_deadline.discard(deadline, subscription)
        if self._ahead:
            self._ahead.discard(subscription.seen, subscription)
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

    def lose(self, ahead: list[tuple[int, Subscription[H]]], end: int) -> None:
        """The order ended at `end`, some time after `ahead` was made: wake those that had seen more, unless over."""
        lost = [subscription for seen, subscription in ahead if seen > end and subscription.holder is not None]
        for subscription in lost:
            self._ahead.discard(subscription.seen, subscription)
            subscription.seen = EPOCH_ENDED
        if lost:
            self._woken.append(iter(lost))

    def move(self, subscription: Subscription[H], good: float, last: int) -> None:
        """Have it refer to the present state, whose last entry is `last` and which lacks what came after `good`."""
        subscription.generation = self.generation
        if subscription.seen > good:
            subscription.seen = EPOCH_ENDED
        elif subscription.seen > last:
            self.note_ahead(subscription)

    def pop_due(self, now: float) -> Subscription[H] | None:
        """The subscription with the earliest deadline, if it has come; the caller releases it."""
        return self._by_deadline.pop_due(now)

    def pop_last(self) -> Subscription[H] | None:
        """The subscription with the latest deadline; the caller releases it."""
        return self._by_deadline.pop_last()

    def _wait(self, subscription: Subscription[H]) -> None:
        """Put it into the tree of each of its names, where it may be already."""
        for waiters in subscription.waiters:
            if waiters.tree is None:
                waiters.tree = TimeTree()
            waiters.tree.add(subscription.deadline, subscription)

    # Those whose clients have seen more than this node; usually there are none.

    @property
    def has_ahead(self) -> bool:
        return bool(self._ahead)

    def ahead(self) -> list[tuple[int, Subscription[H]]]:
        """Those ahead of this node, with what each has seen now. O(their number)."""
        return [(subscription.seen, subscription) for subscription in self._ahead]

    def note_ahead(self, subscription: Subscription[H]) -> None:
        """It has seen more than this node."""
        self._ahead.add(subscription.seen, subscription)

    def drop_reached(self, last: int) -> None:
        """Forget that some were ahead: this node has reached `last`."""
        while self._ahead.pop_due(last) is not None:
            pass

    # Names.

    def begin_generation(self) -> list[ChannelWaiters]:
        """The node has another state; returns all names. O(names), 0.01 us each."""
        self.generation += 1
        self._ahead = TimeTree()
        return list(self._by_name.values())

    def move_name(self, waiters: ChannelWaiters, missed: int, is_awaited: bool) -> None:
        """Have a name refer to the present state: something may have been dropped up to `missed`."""
        waiters.generation = self.generation
        waiters.missed_sequence = missed
        self.set_awaited(waiters, is_awaited)

    def set_awaited(self, waiters: ChannelWaiters, is_awaited: bool) -> None:
        """Note whether the name has no channel now."""
        if is_awaited and not waiters.subscribers:
            del self._by_name[waiters.name]
        else:
            self.awaited_count += is_awaited - waiters.is_awaited
            waiters.is_awaited = is_awaited

    def _add_name(self, channel: Channel) -> ChannelWaiters:
        """The waiters of a name on which nobody waits yet; the caller adds the first."""
        name = channel.name
        is_awaited = channel.id == 0 and channel.closed_sequence == 0
        if is_awaited:
            self.awaited_count += 1
        waiters = self._by_name[name] = ChannelWaiters(name, is_awaited, self.generation)
        return waiters

    def check(self, last: int) -> None:
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
            if not self._woken:
                assert all(w.tree is not None and subscription in list(w.tree) for w in subscription.waiters)
        assert set(self._ahead) == {s for s in self if s.seen > last and s.generation == self.generation}
