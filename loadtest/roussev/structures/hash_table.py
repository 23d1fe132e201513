"""The concurrent hash table: open addressing, double hashing, a lock per slot (Roussev & Wu §3.5, Appendix).

    slot i of a key's probe sequence:  (h1 + i * h2) mod m,   h1 = key mod m,   h2 = 1 + key mod (m - 1)

h2 must be relatively prime to m, or part of the table is never probed (§4.1); a prime m ensures that. A lock is held
only while one slot is read and written. With n of m slots taken, alpha = n/m, an insertion needs at most 1/(1 - alpha)
probes on average (Theorem 1). A search takes the first item it finds, after at most 1/alpha probes (Theorem 2).

There are two differences from the Appendix. It reads a slot and then writes it, which is safe for one inserting thread;
here that is one atomic step, safe for any number. And its insertion into a full table probes the first slot twice.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from threading import Lock
from typing import Generic, TypeVar

Item = TypeVar("Item")

RETRY_SECONDS = 0.5
"""Delay before searching a full or empty table again; from the Appendix. Nothing wakes the thread earlier."""


class Slot(Generic[Item]):
    """A reference that is read and written under a lock: the paper's `SynchronizedRef`."""

    __slots__ = ("_item", "_lock")

    def __init__(self) -> None:
        self._item: Item | None = None
        self._lock = Lock()

    def fill(self, item: Item) -> bool:
        """Store an item if the slot is empty; returns whether it was stored."""
        with self._lock:
            if self._item is not None:
                return False
            self._item = item
            return True

    def empty(self) -> Item | None:
        """Remove and return the slot's item, if any."""
        with self._lock:
            item = self._item
            self._item = None
            return item


class HashTable(Generic[Item]):
    """An unordered collection. Each call reports how many probes it made in its last round."""

    def __init__(self, capacity: int, *, retry_seconds: float = RETRY_SECONDS) -> None:
        """Raises: ValueError if the capacity is not prime, or below 3."""
        if capacity < 3 or any(capacity % divisor == 0 for divisor in range(2, int(capacity**0.5) + 1)):
            raise ValueError("the capacity must be a prime number of at least 3, so that probes reach every slot")
        self._slots: list[Slot[Item]] = [Slot() for _ in range(capacity)]
        self._retry_seconds = retry_seconds

    def insert(self, item: Item, key: int) -> int:
        """Store an item in the first empty slot of its key's probe sequence; waits while the table is full."""
        while True:
            for probes, position in enumerate(probe_sequence(key, len(self._slots)), 1):
                if self._slots[position].fill(item):
                    return probes
            time.sleep(self._retry_seconds)

    def take(self, key: int) -> tuple[Item, int]:
        """Take the first item in a key's probe sequence, whatever its own key; waits while the table is empty."""
        while True:
            for probes, position in enumerate(probe_sequence(key, len(self._slots)), 1):
                item = self._slots[position].empty()
                if item is not None:
                    return item, probes
            time.sleep(self._retry_seconds)


def probe_sequence(key: int, capacity: int) -> Iterator[int]:
    """Yield every slot once, in this key's order."""
    key = abs(key)
    position = key % capacity
    step = 1 + key % (capacity - 1)
    for _ in range(capacity):
        yield position
        position = (position + step) % capacity
