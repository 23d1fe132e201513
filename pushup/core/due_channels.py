"""Channels by the second in which they are due, in an order that depends on nothing but the channels themselves.

A limit may cut the list of what is due anywhere, and every node must cut it at the same place, also one whose channels
come from a checkpoint, which keeps no order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from pushup.core.channel import Channel
from pushup.core.time_tree import TimeTree


class DueChannels:
    """Channels by `due`; those that are due in the same second by `key`.

    Adding in the order of the keys, the common case, keeps a second in order. One that is not is sorted when it is
    reached. `add` and `discard` cost O(1) at a second that has other channels, else O(log n).
    """

    def __init__(self, key: Callable[[Channel], Any]) -> None:
        self._key = key
        self._tree: TimeTree[Channel] = TimeTree()
        self._unsorted: set[int] = set()  # seconds that are not in order
        # The channels of the second `_next_due`, in reverse order, and some that have gone.
        self._next: list[Channel] = []
        self._next_due = 0

    def __iter__(self) -> Iterator[Channel]:
        """All channels in their order. O(n), and O(n log n) for the seconds that are not in order."""
        for due, channels in self._tree.places():
            yield from sorted(channels, key=self._key) if due in self._unsorted else channels

    @property
    def first_due(self) -> float | None:
        return self._tree.first_time

    def add(self, channel: Channel) -> None:
        due = channel.due
        last = self._tree.last_at(due)
        if last is not None and self._key(channel) < self._key(last):
            self._unsorted.add(due)
        if due == self._next_due:
            self._next = []
        self._tree.add(due, channel)

    def discard(self, channel: Channel) -> None:
        """Remove the channel, if it is there."""
        self._tree.discard(channel.due, channel)
        if self._unsorted and self._tree.last_at(channel.due) is None:
            self._unsorted.discard(channel.due)

    def first(self, time: float) -> Channel | None:
        """The first channel that is due at `time` or before; None if there is none."""
        due = self._tree.first_time
        if due is None or due > time:
            return None
        if due in self._unsorted:
            return self._smallest(int(due))
        return self._tree.first

    def _smallest(self, due: int) -> Channel:
        """The first channel of a second that is not in order. O(n log n) for the first one, then O(1)."""
        channels = self._tree.at(due)
        if due != self._next_due:
            self._next, self._next_due = [], due
        while self._next and self._next[-1] not in channels:
            self._next.pop()
        if not self._next:
            self._next = sorted(channels, key=self._key, reverse=True)
        return self._next[-1]

    def pop(self) -> Channel | None:
        """Remove and return some channel."""
        return self._tree.pop_due(math.inf)

    def check(self) -> None:
        """Assert the invariants."""
        self._tree.check()
        places = dict(self._tree.places())
        assert self._unsorted <= set(places)
        for due, channels in places.items():
            keys = [self._key(channel) for channel in channels]
            assert due in self._unsorted or keys == sorted(set(keys))
