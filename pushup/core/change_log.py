"""Which rows of the state have changed since some entry, so that only these have to be saved in a checkpoint."""

from __future__ import annotations

from itertools import takewhile

Name = str | int
"""What identifies a row in its table: a channel's name, a message's sequence."""


class ChangeLog:
    """Names of changed rows by table, each with the sequence of its last change. Off until `start` is called.

    `sequence` is the last sequence of the entry being applied; `ReplicatedState.apply` sets it.
    """

    def __init__(self, sequence: int) -> None:
        self.sequence = sequence
        self.start_sequence = sequence
        """Changes after this sequence are known."""
        self.is_on = False
        self._tables: dict[str, TableChanges] = {}

    def __len__(self) -> int:
        return sum([len(table) for table in self._tables.values()])

    def of(self, table: str) -> TableChanges:
        """The part of this table."""
        return self._tables.setdefault(table, TableChanges(self))

    def start(self, after: int) -> None:
        """Record changes after this sequence, and drop the record of earlier ones. O(dropped)."""
        self.is_on = True
        self.start_sequence = after
        for table in self._tables.values():
            table.drop(after)

    def stop(self) -> None:
        """Record nothing, until `start` is called again. O(recorded)."""
        self.is_on = False
        for table in self._tables.values():
            table.clear()

    def names(self, after: int) -> dict[str, list[Name]]:
        """By table, the rows changed after this sequence, the most recent last. O(their number)."""
        return {name: table.names(after) for name, table in self._tables.items()}


class TableChanges:
    """Those of one table."""

    def __init__(self, log: ChangeLog) -> None:
        self._log = log
        self._changed: dict[Name, int] = {}  # the most recently changed last

    def __len__(self) -> int:
        return len(self._changed)

    def note(self, name: Name) -> None:
        """Record that the entry being applied adds, changes or removes this row."""
        if self._log.is_on:
            self._changed.pop(name, None)
            self._changed[name] = self._log.sequence

    def drop(self, after: int) -> None:
        """Drop the record up to this sequence. O(dropped)."""
        for name in list(takewhile(lambda name: self._changed[name] <= after, self._changed)):
            del self._changed[name]

    def clear(self) -> None:
        """Drop the whole record."""
        self._changed = {}

    def names(self, after: int) -> list[Name]:
        """As that of `ChangeLog`."""
        newest_first = takewhile(lambda item: item[1] > after, reversed(self._changed.items()))
        return [name for name, _ in newest_first][::-1]
