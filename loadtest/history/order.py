"""Places in the order of everything, as far as cursors and ids show it.

An epoch can go on under another name: sequences continue, and cursors of the old name lead to the new one without a
loss. The checker learns that from what subscribers are told, and then counts both as one order. A later epoch has a
later name, unless the history says otherwise (`events.Begun`).
"""

from __future__ import annotations

from collections.abc import Iterable

from loadtest.history.events import BrokenPromise

Epoch = tuple[int, str]
"""An epoch's length and name: a later one is larger."""

Place = tuple[int, str, int]
"""A place in the order of everything: the first name of its order, and the sequence."""


class Order:
    """What is known of the epochs."""

    def __init__(self) -> None:
        self._before: dict[Epoch, Epoch] = {}
        self._last: dict[Epoch, Epoch] = {}  # the last known name of each order, by its first
        self._after: dict[str, str] = {}  # the epoch before, of each that has an earlier name than that

    def epoch(self, cursor: str) -> Epoch:
        """The epoch in a cursor or an id."""
        return self._named(cursor.rpartition("-")[0])

    def _named(self, name: str) -> Epoch:
        if name not in self._after:
            return len(name), name
        length, before = self._named(self._after[name])
        return length, f"{before}-{name}"  # after the one before, and before any with a later name

    def begins(self, name: str, after: str) -> None:
        """This epoch came after that one, whatever their names. Nothing of it is known yet."""
        if name != after and self._named(name) <= self._named(after):
            self._after[name] = after

    def place(self, cursor: str) -> Place:
        """The place of a cursor or an id."""
        return (*self.first_name(self.epoch(cursor)), int(cursor.rpartition("-")[2]))

    def first_name(self, epoch: Epoch) -> Epoch:
        """The first name of the order of an epoch; also of one that lies between two known names of an order."""
        while epoch in self._before:
            epoch = self._before[epoch]
        if epoch not in self._last:
            return next((first for first, last in self._last.items() if first < epoch < last), epoch)
        return epoch

    def put_back(self, end: str, known: Iterable[str]) -> None:
        """The order was put back to this cursor: what continues it continues no other epoch of these, if later."""
        for epoch in {self.epoch(cursor) for cursor in known}:
            if epoch > self.epoch(end) and self.first_name(epoch) == epoch:
                self._last.setdefault(epoch, epoch)

    def learn(self, after: str, earlier: Iterable[str]) -> None:
        """A cursor of an answer, and what it continues: the cursor before, and ids of messages."""
        epoch = self.first_name(self.epoch(after))
        for name in {cursor.rpartition("-")[0] for cursor in earlier}:
            other = self._named(name)
            first = self.first_name(other)
            if other > self.epoch(after):
                raise BrokenPromise(f"one order: {after} comes after {name}, and has an earlier epoch")
            if first != epoch:
                later, sooner = max(first, epoch), min(first, epoch)
                self._before[later] = sooner
                self._last[sooner] = max(
                    self._last.pop(later, later), self._last.get(sooner, sooner), self.epoch(after)
                )
                epoch = sooner
