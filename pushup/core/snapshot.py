"""The replicated state as a value: a head, and the tables with their rows.

Another node starts from a snapshot, and equal states have equal ones. Rows are stored and sent in one form: a key and
JSON. Journals and Redis keep these values, so the field names are a file format.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import msgspec
from msgspec import Raw, Struct, ValidationError, field

from pushup.core.bounded_table import BoundedTable, Keys
from pushup.core.change_log import Name
from pushup.core.cursor import PastEpoch
from pushup.core.limits import Limits
from pushup.core.machine_rules import LATEST_VERSION
from pushup.core.members import Members
from pushup.core.producers import Producers
from pushup.core.revocations import Revocations
from pushup.core.rows import ChannelRow, MessageRow, Row, Rows
from pushup.core.webhooks import Webhooks

CHANNELS, MESSAGES = "channels", "messages"

BOUNDED: list[type[BoundedTable[Any]]] = [Keys, Revocations, Producers, Webhooks, Members]
"""The tables that keep rows for some time. A new one is added here, and written in a module of its own."""

encode = msgspec.json.Encoder().encode

REMOVED = Raw(b"null")


class Table(Protocol):
    """The live rows of one table of the state."""

    @property
    def next_time(self) -> float | None:
        """When something in it is due to expire next."""

    def names(self) -> list[Name]:
        """What identifies each row. O(their number), 0.01 us each."""

    def row(self, name: Name) -> Row | None:
        """This row as a value; None if there is none by now."""


class Stored(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A row as it is stored and sent: its key, `TABLE/NAME`, and its JSON; `null` if it was removed."""

    key: str
    body: Raw

    @property
    def is_removed(self) -> bool:
        return self.body == REMOVED


def stored(table: str, name: Name, row: Any) -> Stored:
    """`row`: None if it was removed."""
    return Stored(f"{table}/{name}", Raw(encode(row)))


class Tables:
    """The rows of all tables."""

    __slots__ = ("_by_name", "decoders")

    def __init__(self) -> None:
        kinds = {CHANNELS: ChannelRow, MESSAGES: MessageRow} | {table.name: table.row_type for table in BOUNDED}
        self._by_name = {name: Rows() for name in kinds}
        self.decoders = {name: msgspec.json.Decoder(kind) for name, kind in kinds.items()}
        """What reads the rows of each table."""

    def __getitem__(self, table: str) -> Rows:
        return self._by_name[table]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tables) and self._by_name == other._by_name

    __hash__ = None  # type: ignore[assignment]  # they change

    def __repr__(self) -> str:
        return repr(self._by_name)

    def all(self) -> list[Rows]:
        return list(self._by_name.values())

    def add(self, key: str, body: bytes | Raw) -> None:
        """Take a row that was stored. Raises: msgspec.DecodeError."""
        table, name = self._split(key)
        row = self.decoders[table].decode(body)
        if str(row.row_name) != name:
            raise ValidationError(f"Invalid value: the row at {key!r} is called {row.row_name!r}")
        self._by_name[table].put(row)

    def take(self, rows: Iterable[Stored]) -> None:
        """Take rows that were sent, or remove them. Raises: msgspec.DecodeError."""
        for row in rows:
            if row.is_removed:
                table, name = self._split(row.key)
                self._by_name[table].remove(int(name) if table == MESSAGES else name)
            else:
                self.add(row.key, row.body)

    def _split(self, key: str) -> tuple[str, str]:
        table, _, name = key.partition("/")
        if table not in self._by_name:
            raise ValidationError(f"Invalid value: there is no table {table!r}")
        return table, name


class Head(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a state has once: the last entry applied, with its time, and what its entries are carried out by."""

    epoch: str
    sequence: int
    time: float
    last_id: int
    floor: int
    version: int
    past_epochs: tuple[PastEpoch, ...]
    limits: Limits
    erased_sequence: int = field(name="erased", default=0)


class Changes(Struct, frozen=True, forbid_unknown_fields=True):
    """What has changed in the replicated state since some entry: what turns a snapshot of then into one of now."""

    head: Head
    rows: tuple[Stored, ...]


class Snapshot(Struct, frozen=True):
    """The whole replicated state."""

    head: Head
    tables: Tables

    @property
    def channels(self) -> tuple[ChannelRow, ...]:
        """O(all), for tests."""
        return tuple(self.tables[CHANNELS].in_order())

    @property
    def messages(self) -> tuple[MessageRow, ...]:
        """O(all), for tests."""
        return tuple(self.tables[MESSAGES].in_order())


def empty_head(epoch: str, limits: Limits) -> Head:
    """That of a state of the latest version, to which the first entry of the epoch comes next."""
    return Head(epoch, 0, 0.0, 0, 0, LATEST_VERSION, (), limits)
