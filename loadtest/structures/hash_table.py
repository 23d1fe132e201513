"""The concurrent hash table: open addressing, double hashing, a lock at each slot (Roussev & Wu §3.5, Appendix).

    slot i of a key's probe sequence:  (h1 + i * h2) mod m,   h1 = key mod m,   h2 = 1 + key mod (m - 1)

h2 must be relatively prime to m, or a part of the table is never looked at (§4.1): a prime m makes it so. Nobody holds
a lock for longer than one slot takes. With n of m slots taken, alpha = n/m, an insertion needs at most 1/(1 - alpha)
probes on average (Theorem 1), and a search, which takes whatever it comes to first, at most 1/alpha (Theorem 2).

Two things differ from the Appendix. There a slot is read and then written, which is good for one that inserts; here
that is one step, good for any number. There an insertion into a full table looks at its first slot twice.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from threading import Lock
from typing import Generic, TypeVar

Item = TypeVar("Item")

RETRY_SECONDS = 0.5
"""After so long one looks again who found the table full, or empty; as in the Appendix. Nobody is woken."""


class Slot(Generic[Item]):
    """A reference that is read and written under a lock: the paper's `SynchronizedRef`."""

    __slots__ = ("_item", "_lock")

    def __init__(self) -> None:
        self._item: Item | None = None
        self._lock = Lock()

    def fill(self, item: Item) -> bool:
        """Put it here, unless there is something; say whether it was put."""
        with self._lock:
            if self._item is not None:
                return False
            self._item = item
            return True

    def empty(self) -> Item | None:
        """Take what is here."""
        with self._lock:
            item = self._item
            self._item = None
            return item


class HashTable(Generic[Item]):
    """Items in no order. Each call says how many probes it made, waiting not counted."""

    def __init__(self, capacity: int, *, retry_seconds: float = RETRY_SECONDS) -> None:
        """Raises: ValueError for a capacity that is no prime, or below 3."""
        if capacity < 3 or any(capacity % divisor == 0 for divisor in range(2, int(capacity**0.5) + 1)):
            raise ValueError("the capacity must be a prime, at least 3: a step has to come to all slots")
        self._slots: list[Slot[Item]] = [Slot() for _ in range(capacity)]
        self._retry_seconds = retry_seconds

    def insert(self, item: Item, key: int) -> int:
        """Put an item into the first empty slot of its key's probe sequence; waits while the table is full."""
        while True:
            for probes, position in enumerate(probe_sequence(key, len(self._slots)), 1):
                if self._slots[position].fill(item):
                    return probes
            time.sleep(self._retry_seconds)

    def take(self, key: int) -> tuple[Item, int]:
        """Take the first item in a key's probe sequence, whose item it may be; waits while the table is empty."""
        while True:
            for probes, position in enumerate(probe_sequence(key, len(self._slots)), 1):
                item = self._slots[position].empty()
                if item is not None:
                    return item, probes
            time.sleep(self._retry_seconds)


def probe_sequence(key: int, capacity: int) -> Iterator[int]:
    """All slots, each once, in this key's order."""
    key = abs(key)
    position = key % capacity
    step = 1 + key % (capacity - 1)
    for _ in range(capacity):
        yield position
        position = (position + step) % capacity
