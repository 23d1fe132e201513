"""Tables that keep the last rows for some time: the form of every part of the state but channels and messages.

The idempotency keys are one (`Keys`). To add another, write a subclass in a module of its own, and add it to `BOUNDED`
in `pushup.core.snapshot`. Snapshots, checkpoints, journals and the transfer to another process then contain it, it
expires with everything else, and a new epoch keeps it.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from msgspec import Struct

from pushup.core.change_log import Name, TableChanges
from pushup.core.commands import Published
from pushup.core.machine_rules import Rules
from pushup.core.rows import Row


class TimedRow(Row, Protocol):
    """A row of a bounded table, with the first sequence and the time of the entry that put it there."""

    @property
    def sequence(self) -> int: ...
    @property
    def time(self) -> float: ...


R = TypeVar("R", bound=TimedRow)


class BoundedTable(Generic[R]):
    """Rows by name, the one that was put there first first."""

    name: ClassVar[str]
    row_type: ClassVar[type[Any]]

    def __init__(self, rules: Rules, changes: TableChanges) -> None:
        self._rules = rules
        self._changes = changes
        self._rows: OrderedDict[Name, R] = OrderedDict()

    @property
    def limit(self) -> int:
        """The most rows."""
        raise NotImplementedError

    @property
    def seconds(self) -> float:
        """How long a row is kept after its time; `inf`: it does not expire."""
        return self._rules.longest_seconds

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, name: Name) -> R | None:
        """The row with this name, as a value."""
        return self._rows.get(name)

    def rows(self) -> Mapping[Name, R]:
        """All rows by name, to be read a few at a time. Meanwhile rows may be dropped, and others added."""
        return self._rows

    def put(self, row: R) -> None:
        """Add the newest row, or put it in the place of one with its name. Beyond the limit, the oldest two go."""
        self._keep(row)
        for _ in range(min(2, len(self._rows) - self.limit)):
            self._drop_oldest()

    def rank(self, row: R) -> tuple[int, ...]:
        """Of two rows with one name, in states that a new epoch comes from, that with the higher rank stays."""
        return ()

    @property
    def next_time(self) -> float | None:
        """When the oldest row is due to go."""
        if not self._rows or self.seconds == math.inf:
            return None
        return next(iter(self._rows.values())).time + self.seconds

    def expire(self, time: float, most: int) -> None:
        """Drop at most `most` rows that are due at `time`."""
        horizon = time - self.seconds
        while most > 0 and self._rows and next(iter(self._rows.values())).time <= horizon:
            self._drop_oldest()
            most -= 1

    def _keep(self, row: R) -> None:
        self._set(row)
        self._rows.move_to_end(row.row_name)

    def _set(self, row: R) -> None:
        """Put this row in the place of the one with its name, or behind all others."""
        name = row.row_name
        if (before := self._rows.get(name)) is not None:
            self._forget(before)
        self._rows[name] = row
        self._note(row)
        self._changes.note(name)

    def _note(self, row: R) -> None:
        """Enter a row in the indexes that a table may have."""

    def _forget(self, row: R) -> None:
        """Take it out of them: another one takes its place. (No table with indexes uses `put`, or expires.)"""

    def _drop_oldest(self) -> None:
        name, _ = self._rows.popitem(last=False)
        self._changes.note(name)

    # Snapshots.

    def names(self) -> list[Name]:
        """All names, the oldest row first. O(their number), 0.01 us each."""
        return list(self._rows)

    def restore(self, row: R) -> None:
        """Add a row from a checkpoint; they come by sequence."""
        self._rows[row.row_name] = row
        self._note(row)

    def take_apart(self) -> Iterator[None]:
        """Remove everything, one thing for each item: freeing all at once takes long."""
        while self._rows:
            self._rows.popitem()
            yield


class Remembered(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A publication with a key: the fields of its `Published`, and the `fingerprint` of what was published."""

    key: str
    epoch: str
    sequence: int
    count: int
    time: float
    fingerprint: str

    @classmethod
    def of(cls, key: str, outcome: Published, fingerprint: str) -> Remembered:
        return cls(key, outcome.epoch, outcome.sequence, outcome.count, outcome.time, fingerprint)

    @property
    def outcome(self) -> Published:
        return Published(self.epoch, self.sequence, self.count, self.time)

    @property
    def row_name(self) -> str:
        return self.key


class Keys(BoundedTable[Remembered]):
    """The last publications with a key."""

    name = "keys"
    row_type = Remembered

    @property
    def limit(self) -> int:
        return self._rules.limits.keys_limit
