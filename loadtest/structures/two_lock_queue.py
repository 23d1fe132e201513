"""The two-lock concurrent queue (Roussev & Wu §3.4; Michael & Scott 1996, Figure 2).

A linked list whose first node is a dummy, so that one who puts and one who takes never write to the same node: each end
has a lock of its own. Michael and Scott's `dequeue` returns when the queue is empty; here it waits, as workers do. Only
then does one who puts need the other end's lock, to wake a worker.
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
    """First in, first out, without a bound. O(1); `take` waits while the queue is empty."""

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
        # One who waits says so before it looks; we look whether anybody waits after the item is in. One sees the other.
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
            first.item = None  # it is the dummy now
            self._head = first
        assert item is not None
        return item
