"""The rows of a replicated state: its tables with what it has once, as values; and which of them have changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from pushup.core.bounded_table import BoundedTable, Keys
from pushup.core.change_log import ChangeLog, Name
from pushup.core.channel import Touched
from pushup.core.channels import Channels
from pushup.core.cursor import NO_PAST, Cursor
from pushup.core.limits import Limits
from pushup.core.machine_rules import Rules
from pushup.core.members import Members
from pushup.core.message_cache import MessageCache
from pushup.core.producers import Producers
from pushup.core.revocations import Revocations
from pushup.core.snapshot import BOUNDED, CHANNELS, MESSAGES, Changes, Head, Snapshot, Stored, Table, Tables, stored
from pushup.core.webhooks import Webhooks


class StateRows:
    """What a replicated state consists of. Only entries change it (`ReplicatedState`).

    The epoch of its `cursor` is empty while none is known.
    """

    def __init__(self, limits: Limits, *, epoch: str = "", sequence: int = 0, time: float = 0.0) -> None:
        """An empty state, to which the entry `sequence + 1` of the epoch comes next."""
        self.rules = Rules(limits)
        """For others to read; only entries change them."""
        self.touched = Touched()
        """What the last entry has done to channels; valid until the next `apply`."""
        self.cursor = Cursor(epoch, sequence)
        """The last entry applied: where "from here on" begins."""
        self.time = time
        """The time of the last entry applied, seconds since the epoch."""
        self.past_epochs = NO_PAST
        """The names that this order had before; only entries change them."""
        self.erased_sequence = 0
        """The last entry that has erased something: what is stored may contain it until that is trimmed."""
        self.change_log = changes = ChangeLog(sequence)
        """Which rows have changed; off until `note_changes` is called."""
        self.channels = Channels(self.rules, changes.of(CHANNELS), self.touched)
        """For others to read; only entries change them."""
        self.cache = MessageCache(self.rules, self.channels, changes.of(MESSAGES))
        """As `channels`."""
        self.bounded: dict[str, BoundedTable[Any]] = {
            table.name: table(self.rules, changes.of(table.name)) for table in BOUNDED
        }
        """As `channels`."""
        self.keys = cast("Keys", self.bounded[Keys.name])
        self.revocations = cast("Revocations", self.bounded[Revocations.name])
        self.producers = cast("Producers", self.bounded[Producers.name])
        self.webhooks = cast("Webhooks", self.bounded[Webhooks.name])
        self.members = cast("Members", self.bounded[Members.name])
        self._tables: dict[str, Table] = {CHANNELS: self.channels, MESSAGES: self.cache, **self.bounded}

    @property
    def limits(self) -> Limits:
        return self.rules.limits

    @property
    def version(self) -> int:
        """The version of the state machine."""
        return self.rules.version

    @property
    def message_count(self) -> int:
        return len(self.cache)

    @property
    def head(self) -> Head:
        return Head(
            self.cursor.epoch,
            self.cursor.sequence,
            self.time,
            self.channels.last_id,
            self.channels.floor,
            self.rules.version,
            self.past_epochs.all,
            self.limits,
            self.erased_sequence,
        )

    def names(self) -> dict[str, list[Name]]:
        """By table, what identifies each row. O(their number), 0.01 us each."""
        return {name: table.names() for name, table in self._tables.items()}

    def rows(self, names: dict[str, list[Name]]) -> Iterator[Stored]:
        """These rows as they are stored and sent; the state may change meanwhile."""
        for table, some in names.items():
            for name in some:
                yield stored(table, name, self._tables[table].row(name))

    def snapshot(self) -> Snapshot:
        """The state as a value. O(all)."""
        tables = Tables()
        for table, rows in self._tables.items():
            for name in rows.names():
                if (row := rows.row(name)) is not None:
                    tables[table].put(row)
        return Snapshot(self.head, tables)

    def note_changes(self, after: int | None = None) -> None:
        """Record changes after this sequence, by default from now on, and drop the record of earlier ones."""
        self.change_log.start(self.cursor.sequence if after is None else after)

    @property
    def changed_count(self) -> int:
        """How many rows have changed; sequences, if these are more."""
        return max(len(self.change_log), self.cursor.sequence - self.change_log.start_sequence)

    def changes(self, after: int | None = None) -> Changes:
        """What has changed after this sequence, by default everything recorded. O(changes)."""
        after = self.change_log.start_sequence if after is None else after
        return Changes(self.head, tuple(self.rows(self.change_log.names(after))))

    def check(self) -> None:
        """Assert every invariant of every part. O(all); for tests."""
        self.channels.check()
        self.cache.check()
        self.webhooks.check()
        self.members.check()
