"""Moving held polls to another state, a few at a time, so that no turn of the reactor takes long."""

from __future__ import annotations

import math
from typing import Generic

from pushup.core.poll_index import PollIndex
from pushup.core.state import ReplicatedState
from pushup.core.subscription import ChannelWaiters, H, Subscription


class PollMigration(Generic[H]):
    """Which held polls and names still refer to the state before.

    Each has a `generation`; new ones have the present one. Names are moved in turn, and the polls on them woken. A poll
    is moved when it is looked at, and its names with it.
    """

    def __init__(self, index: PollIndex[H], state: ReplicatedState) -> None:
        self._index = index
        self._state = state
        self._good = math.inf
        self.names: list[ChannelWaiters] = []
        """Those not moved in their turn yet."""
        self.is_under_way = False
        """Whether there may be polls that were not moved."""

    def begin(self, state: ReplicatedState) -> None:
        """All is to be moved to this state. O(names), but O(polls) if not all have been moved to the one before."""
        if self.is_under_way:
            for subscription in self._index:
                self.move(subscription)
        before, now = self._state.cursor.epoch, state.cursor.epoch
        self._good = math.inf if before == now else state.past_epochs.good_up_to(before)
        self._state = state
        self.names = self._index.begin_generation()
        self.is_under_way = True

    def end_good(self, sequence: int) -> None:
        """Polls that are moved from now on have lost entries if they have seen anything after `sequence`."""
        self._good = min(self._good, sequence)

    def move(self, subscription: Subscription[H]) -> None:
        """Have a poll and its names refer to the present state. O(its names)."""
        if subscription.generation != self._index.generation:
            for waiters in subscription.waiters:
                self.move_name(waiters)
            self._index.move(subscription, self._good, self._state.cursor.sequence)

    def move_name(self, waiters: ChannelWaiters) -> None:
        """Have a name refer to the present state."""
        if waiters.generation != self._index.generation:
            channels = self._state.channels
            channel = channels.remembered(waiters.name)
            missed = channels.floor if channel is None else channel.dropped_sequence
            self._index.move_name(waiters, missed, channel is None)

    def move_names(self, most: int) -> None:
        """Move the next names, and wake the polls on them."""
        for waiters in self.names[-most:]:
            if self._index.get(waiters.name) is waiters:  # else nobody has waited for it since
                self.move_name(waiters)
                self._index.wake(waiters.name)
        del self.names[-most:]

    def check(self) -> None:
        """Assert the invariants: where polls have been moved, so have their names."""
        index, generation = self._index, self._index.generation
        for subscription in index:
            if subscription.generation == generation:
                assert all(waiters.generation == generation for waiters in subscription.waiters)
            else:
                assert self.is_under_way
                assert self.names or index.has_woken
        for waiters in index.names:
            if waiters.generation == generation:
                is_missing = self._state.channels.remembered(waiters.name) is None
                assert waiters.is_awaited == is_missing, waiters.name
            else:
                assert waiters in self.names, waiters.name
