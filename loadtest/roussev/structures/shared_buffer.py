"""The classic producer-consumer buffer: a fixed circular array with one lock (Roussev & Wu §3.3)."""

from __future__ import annotations

from threading import Condition, Lock
from typing import Generic, TypeVar

Item = TypeVar("Item")


class SharedBuffer(Generic[Item]):
    """First in, first out. O(1); `put` waits while the buffer is full, `take` while it is empty."""

    def __init__(self, capacity: int) -> None:
        """Raises: ValueError for a capacity below 1."""
        if capacity < 1:
            raise ValueError("the capacity must be at least 1")
        self._places: list[Item | None] = [None] * capacity
        self._put_at = 0
        self._take_at = 0
        self._count = 0
        lock = Lock()
        self._not_full = Condition(lock)
        self._not_empty = Condition(lock)

    def put(self, item: Item) -> None:
        with self._not_full:
            while self._count == len(self._places):
                self._not_full.wait()
            self._places[self._put_at] = item
            self._put_at = (self._put_at + 1) % len(self._places)
            self._count += 1
            self._not_empty.notify()

    def take(self) -> Item:
        with self._not_empty:
            while self._count == 0:
                self._not_empty.wait()
            item = self._places[self._take_at]
            self._places[self._take_at] = None
            self._take_at = (self._take_at + 1) % len(self._places)
            self._count -= 1
            self._not_full.notify()
        assert item is not None
        return item
