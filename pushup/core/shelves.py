"""How cached messages are filed: all of them by sequence, and those of each class of retention by their publishers."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import Generic, TypeVar

from pushup.core.machine_rules import EPHEMERAL, Retention

T = TypeVar("T")

PART = 512
"""Sequences that share one dict. To enlarge a single dict of 700,000 takes 30 ms; to find the first item of a dict that
was emptied from its beginning takes as long as what was removed, so parts are small."""


class BySequence(Generic[T]):
    """Values by sequence. A new one has a higher sequence than all that are here; any may be removed. All cost O(1)."""

    __slots__ = ("_count", "_parts")

    def __init__(self) -> None:
        self._parts: dict[int, dict[int, T]] = {}  # by sequence // PART, none of them empty
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        """The values by sequence; the table must not change meanwhile."""
        for part in self._parts.values():
            yield from part.values()

    @property
    def oldest(self) -> T:
        """The value with the lowest sequence. Raises: StopIteration if there is none."""
        return next(iter(next(iter(self._parts.values())).values()))

    def add(self, sequence: int, value: T) -> None:
        number = sequence // PART
        part = self._parts.get(number)
        if part is None:
            self._parts[number] = {sequence: value}
        else:
            part[sequence] = value
        self._count += 1

    def remove(self, sequence: int) -> None:
        """Raises: KeyError if there is none."""
        number = sequence // PART
        part = self._parts[number]
        del part[sequence]
        self._count -= 1
        if not part:
            del self._parts[number]

    def get(self, sequence: int) -> T | None:
        part = self._parts.get(sequence // PART)
        return None if part is None else part.get(sequence)

    def sequences(self) -> list[str | int]:
        """All sequences, lowest first. O(their number), 0.01 us each."""
        found: list[str | int] = []
        for part in self._parts.values():
            found.extend(part)
        return found


class RetentionClass:
    """All messages of one class: the shelves of those who have published them."""

    def __init__(self, name: str, retention: Retention) -> None:
        """`retention`: that of another class if policies have this one no longer."""
        self.name = name
        self.is_ephemeral = name == EPHEMERAL
        self.retention = retention
        self.shelves: dict[str, Shelf] = {}
        """By owner; none is empty."""
        self.bytes = 0

    @property
    def largest(self) -> Shelf:
        """The shelf that takes most; the same in every replica."""
        shelves = list(self.shelves.values())
        return shelves[0] if len(shelves) == 1 else max(shelves, key=attrgetter("bytes", "owner"))

    @property
    def load(self) -> tuple[float, str]:
        """A sort key: what its messages take for its share."""
        return self.bytes / self.retention.share, self.name


class Shelf:
    """The messages of one class that one owner has published, oldest first: a list that the messages themselves link.

    `owner`: the name of the key that they were published with; empty if it has none.
    """

    def __init__(self, retention_class: RetentionClass, owner: str) -> None:
        self.retention_class = retention_class
        self.owner = owner
        self.first = self.last = 0
        """The sequences of its messages at both ends; 0 if it is empty."""
        self.bytes = 0
