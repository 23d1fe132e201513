"""Moving held polls to another state, a few at a time, so that no turn of the reactor takes long."""

from __future__ import annotations

import math
from typing import Generic

from pushup.core.state import ReplicatedState
from pushup.core.subscription import EPOCH_ENDED, H, Subscription
from pushup.core.waiters import Waiters
from pushup.core.waiting import Waiting


class Moving(Generic[H]):
    """Which held polls and names still refer to the state before.

    Each has a `generation`; new ones have the present one. Names are moved in turn, and the polls on them woken. A poll
    is moved when it is looked at, and its names with it.
    """

    def __init__(self, waiting: Waiting[H], state: ReplicatedState) -> None:
        self._waiting = waiting
        self._state = state
        self._good = math.inf
        self.names: list[Waiters] = []
        """Those not moved in their turn yet."""
        self.is_under_way = False
        """Whether there may be polls that were not moved."""

    def begin(self, state: ReplicatedState) -> None:
        """All is to be moved to this state. All polls have been moved to the one before. O(names), 0.01 us each."""
        before, now = self._state.cursor.epoch, state.cursor.epoch
        self._good = math.inf if before == now else state.past_epochs.good_up_to(before)
        self._state = state
        self._waiting.generation += 1
        self.names = list(self._waiting.names)
        self.is_under_way = True

    def end_good(self, sequence: int) -> None:
        """Polls that are moved from now on have seen what the order does not contain if it is after this."""
        self._good = min(self._good, sequence)

    def move(self, subscription: Subscription[H]) -> bool:
        """Have a poll refer to the present state; returns False if it already does. O(its names)."""
        if subscription.generation == self._waiting.generation:
            return False
        subscription.generation = self._waiting.generation
        subscription.looked = -1
        if subscription.seen > self._good:
            subscription.seen = EPOCH_ENDED
        for waiters in subscription.waiters:
            self.move_name(waiters)
        return True

    def move_name(self, waiters: Waiters) -> None:
        """Have a name refer to the present state."""
        if waiters.generation != self._waiting.generation:
            waiters.generation = self._waiting.generation
            channels = self._state.channels
            channel = channels.remembered(waiters.name)
            waiters.missed_sequence = channels.floor if channel is None else channel.dropped_sequence
            self._waiting.set_awaited(waiters, channel is None)

    def move_names(self, most: int) -> None:
        """Move the next names, and wake the polls on them."""
        for waiters in self.names[-most:]:
            if self._waiting.get(waiters.name) is waiters:  # else nobody has waited for it meanwhile
                self.move_name(waiters)
                self._waiting.wake(waiters.name)
        del self.names[-most:]

    def check(self) -> None:
        """Assert the invariants: where polls have been moved, so have their names."""
        waiting, generation = self._waiting, self._waiting.generation
        for subscription in waiting:
            if subscription.generation == generation:
                assert all(waiters.generation == generation for waiters in subscription.waiters)
            else:
                assert self.is_under_way
                assert self.names or waiting.woken_names
        for waiters in waiting.names:
            if waiters.generation == generation:
                is_missing = self._state.channels.remembered(waiters.name) is None
                assert waiters.is_awaited == is_missing, waiters.name
            else:
                assert waiters in self.names, waiters.name
