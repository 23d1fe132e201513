"""A tree of items by the time they are due: the B-tree of PushUp §3.2, built on `sortedcontainers`.

Subscriptions are kept in such trees by deadline, channels by expiry. Items due at the same time share one place, in the
order in which they were added, so callers that round their times get a shallow tree. A tree with one item, the common
case, is two attributes and no tree at all (a `SortedDict` takes 1.9 KB).

`DueChannels` has the channels of such a tree in an order that depends on nothing but the channels themselves. A limit
may cut the list of what is due anywhere, and every node must cut it at the same place, also one whose channels come
from a checkpoint, which keeps no order.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Generic, TypeVar

from sortedcontainers import SortedDict

from pushup.core.channel import Channel

T = TypeVar("T")

LARGE_PLACE = 64
"""From this many items at one time on, they are kept in an `OrderedDict`. A dict takes 45 bytes less per item, but to
find its first one it skips over all that were removed before."""


class TimeTree(Generic[T]):
    """Hashable items by time, earliest first; an item may be at several times, but only once at each.

    Cost: `add`, `discard`, `pop_due` and `pop_last` O(1) at a time that has (further) items, else O(log n).
    """

    __slots__ = ("_lone", "_places", "_time")

    def __init__(self) -> None:
        self._time = 0.0
        self._lone: T | None = None
        self._places: SortedDict[float, dict[T, None]] | None = None

    def __bool__(self) -> bool:
        return self._lone is not None or bool(self._places)

    def __len__(self) -> int:
        """O(number of distinct times)."""
        if self._places is None:
            return 0 if self._lone is None else 1
        return sum(map(len, self._places.values()))

    def __iter__(self) -> Iterator[T]:
        """The items, earliest first; the tree must not change meanwhile."""
        if self._places is not None:
            for place in self._places.values():
                yield from place
        elif self._lone is not None:
            yield self._lone

    @property
    def first_time(self) -> float | None:
        """When the earliest item is due."""
        if self._places:
            return float(self._places.keys()[0])
        return None if self._lone is None else self._time

    @property
    def first(self) -> T | None:
        """The earliest item."""
        return next(iter(self._places.peekitem(0)[1])) if self._places else self._lone

    def last_at(self, time: float) -> T | None:
        """The item that was added last at this time."""
        if self._places is not None:
            place = self._places.get(time)
            return None if place is None else next(reversed(place))
        return self._lone if self._time == time else None

    def places(self) -> Iterable[tuple[float, Iterable[T]]]:
        """The times and the items at each, earliest first; the tree must not change meanwhile."""
        if self._places is not None:
            return self._places.items()
        return () if self._lone is None else ((self._time, (self._lone,)),)

    def at(self, time: float) -> Collection[T]:
        """The items at this time, in the order in which they were added; valid until the tree changes."""
        if self._places is not None:
            return self._places.get(time, ())
        return () if self._lone is None or self._time != time else (self._lone,)

    def add(self, time: float, item: T) -> None:
        places = self._places
        if places is None:
            if self._lone is None or (self._lone is item and self._time == time):
                self._time, self._lone = time, item
                return
            places = self._places = SortedDict({self._time: {self._lone: None}})
            self._lone = None
        place = places.get(time)
        if place is None:
            places[time] = {item: None}
        else:
            place[item] = None
            if len(place) == LARGE_PLACE and type(place) is dict:
                places[time] = OrderedDict(place)

    def discard(self, time: float, item: T) -> None:
        """Remove the item from `time`, if it is there."""
        places = self._places
        if places is None:
            if self._lone is item and self._time == time:
                self._lone = None
            return
        place = places.get(time)
        if place is not None:
            place.pop(item, None)
            if not place:
                del places[time]

    def pop_due(self, now: float) -> T | None:
        """Remove and return the earliest item that is due at `now` or before."""
        places = self._places
        if places is None:
            if self._time > now:
                return None
            item, self._lone = self._lone, None
            return item
        if not places or places.keys()[0] > now:
            return None
        time, place = places.peekitem(0)
        item = next(iter(place))
        del place[item]
        if not place:
            del places[time]
        return item

    def pop_last(self) -> T | None:
        """Remove and return the latest item; of several at one time, the one added last."""
        places = self._places
        if places is None:
            item, self._lone = self._lone, None
            return item
        if not places:
            return None
        time, place = places.peekitem(-1)
        item, _ = place.popitem()
        if not place:
            del places[time]
        return item

    def check(self) -> None:
        """Assert the invariants: no empty place, and never both a lone item and places."""
        if self._places is not None:
            self._places._check()  # type: ignore[attr-defined]  # the stubs leave it out
            assert self._lone is None
            assert all(self._places.values())


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
