"""A table of what an order has at its sequences, which grows without a pause."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

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

    def onward(self, after: int) -> Iterator[T]:
        """The values at higher sequences, by sequence; the table must not change meanwhile."""
        first = after // PART
        for number, part in self._parts.items():
            if number > first:
                yield from part.values()
            elif number == first:
                yield from [value for sequence, value in part.items() if sequence > after]

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

    def after(self, sequence: int) -> list[T]:
        """The values at higher sequences, by sequence. O(their number)."""
        newest_first: list[T] = []
        for part in reversed(self._parts.values()):
            for at, value in reversed(part.items()):
                if at <= sequence:
                    return newest_first[::-1]
                newest_first.append(value)
        return newest_first[::-1]
