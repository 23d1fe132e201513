"""A tree of things that are due at some time: the B-tree of PushUp §3.2, by `sortedcontainers`.

Subscriptions lie in one by deadline, channels by expiry, idempotency keys by age. Things due at the same time share
one place and keep the order in which they came, so callers who round their times get a shallow tree. A tree of one,
as most channels have, is two attributes and no tree at all (a `SortedDict` takes 1.9 KB).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, TypeVar

from sortedcontainers import SortedDict

T = TypeVar("T")

LARGE_PLACE = 64
"""So many items at one time lie in an `OrderedDict`. A dict takes 45 bytes less for an item, but finds its first one by
passing over all that were taken out before."""


class TimeTree(Generic[T]):
    """Hashable items by time, earliest first; an item may lie at several times, but once at each.

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
        """Take the item out of its place at `time`; nothing happens when it is not there."""
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
        """Take out the earliest item that is due at `now` or before."""
        places = self._places
        if places is None:
            if self._lone is None or self._time > now:
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
        """Take out the latest item; of those at one time, the one that came last."""
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
        """Assert the invariants: no empty place, and never a lone item beside places."""
        if self._places is not None:
            self._places._check()  # type: ignore[attr-defined]  # the stubs leave it out
            assert self._lone is None
            assert all(self._places.values())
