"""A tree of items by the time they are due: the B-tree of PushUp §3.2, built on `sortedcontainers`.

Subscriptions are kept in such trees by deadline. Items due at the same time share one place, in the order in which they
were added, so callers that round their times get a shallow tree. A tree with one item, the common case, is two
attributes and no tree at all (a `SortedDict` takes 1.9 KB).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, TypeVar

from sortedcontainers import SortedDict

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
