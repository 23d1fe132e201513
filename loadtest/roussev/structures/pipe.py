"""A pipe between two threads that carries any object, such as a socket (Roussev & Wu §3.6: "our own pipe class")."""

from __future__ import annotations

from threading import Condition
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Pipe(Generic[Item]):
    """A place for one item: `write` waits until it is empty, `read` until it is not.

    For one writing and one reading thread. They never wait at the same time, so one condition is enough.
    """

    def __init__(self) -> None:
        self._item: Item | None = None
        self._changed = Condition()

    def write(self, item: Item) -> None:
        with self._changed:
            while self._item is not None:
                self._changed.wait()
            self._item = item
            self._changed.notify()

    def read(self) -> Item:
        with self._changed:
            while self._item is None:
                self._changed.wait()
            item = self._item
            self._item = None
            self._changed.notify()
        return item
