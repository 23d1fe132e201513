"""The two-lock concurrent queue (Roussev & Wu §3.4; Michael & Scott 1996, Figure 2).

A linked list whose first node is a dummy, so that a producer and a consumer never write to the same node and each end
can have its own lock. Michael and Scott's `dequeue` returns when the queue is empty; here `take` waits, as workers do.
Only when one waits does a producer also need the other end's lock, to wake it.
"""

from __future__ import annotations

from threading import Condition, Lock
from typing import Generic, TypeVar

Item = TypeVar("Item")


class _Node(Generic[Item]):
    __slots__ = ("item", "next")

    def __init__(self, item: Item | None) -> None:
        self.item = item
        self.next: _Node[Item] | None = None


class TwoLockQueue(Generic[Item]):
    """Unbounded, first in, first out. O(1); `take` waits while the queue is empty."""

    def __init__(self) -> None:
        dummy: _Node[Item] = _Node(None)
        self._head = dummy
        self._head_lock = Lock()
        self._not_empty = Condition(self._head_lock)
        self._waiting = 0
        self._tail = dummy
        self._tail_lock = Lock()

    def put(self, item: Item) -> None:
        node = _Node(item)
        with self._tail_lock:
            last = self._tail
            last.next = node
            self._tail = node
        # A consumer announces that it waits, then looks for an item; we add the item, then look for waiting consumers.
        # So one of the two always sees the other.
        if self._waiting:
            with self._head_lock:
                self._not_empty.notify()

    def take(self) -> Item:
        with self._head_lock:
            self._waiting += 1
            while (first := self._head.next) is None:
                self._not_empty.wait()
            self._waiting -= 1
            item = first.item
            first.item = None  # this node is now the dummy
            self._head = first
        assert item is not None
        return item
