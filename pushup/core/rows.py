"""Rows: the replicated state as values. Each knows what identifies it in its table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import chain
from typing import Any, Protocol

from msgspec import Raw, Struct, field

from pushup.core.change_log import Name
from pushup.core.channel import Attributes, Channel, GapReason, Message
from pushup.core.shelves import Shelf

BUCKET = 512
"""Rows of a table that share a dict. To enlarge a single dict of 700,000 takes 30 ms."""


class Row(Protocol):
    """A row of any table."""

    @property
    def row_name(self) -> Name:
        """What identifies it in its table."""


class ChannelRow(Struct, frozen=True, omit_defaults=True, gc=False, forbid_unknown_fields=True):
    """A channel that is open (`id` > 0) or remembered; the fields of `Channel`."""

    name: str
    id: int
    ttl: float
    expires: float
    due: int
    dropped_sequence: int = field(name="dropped")
    reason: GapReason
    closed_sequence: int = field(name="closed")
    erased_sequence: int = field(name="erased", default=0)

    @classmethod
    def of(cls, c: Channel) -> ChannelRow:
        ends = (c.closed_sequence, c.erased_sequence)
        return cls(c.name, c.id, c.ttl, c.expires, c.due, c.dropped_sequence, c.reason, *ends)

    @property
    def row_name(self) -> str:
        return self.name

    def restore(self) -> Channel:
        """That channel without its messages."""
        channel = Channel(self.name)
        channel.id, channel.ttl, channel.expires, channel.due = self.id, self.ttl, self.expires, self.due
        channel.dropped_sequence, channel.reason = self.dropped_sequence, self.reason
        channel.closed_sequence, channel.erased_sequence = self.closed_sequence, self.erased_sequence
        channel.latest_sequence = max(self.dropped_sequence, self.closed_sequence, self.erased_sequence)
        return channel


class MessageRow(Struct, frozen=True, omit_defaults=True, gc=False, forbid_unknown_fields=True):
    """A cached message, with the names of its shelf; its channels keep it as `Channel.keeps` says."""

    sequence: int
    time: float
    channels: tuple[str, ...]
    data: Raw
    attributes: Attributes | None = None
    retention_class: str = field(name="class", default="")
    owner: str = ""
    traceparent: str = ""

    @classmethod
    def of(cls, m: Message) -> MessageRow:
        more = (m.shelf.retention_class.name, m.shelf.owner, m.traceparent)
        return cls(m.sequence, m.time, m.channels, m.data, m.attributes, *more)

    @property
    def row_name(self) -> int:
        return self.sequence

    def restore(self, shelf: Shelf) -> Message:
        """That message, with a copy of its data, which may be part of a larger buffer that should be freed."""
        data, attributes = self.data.copy(), self.attributes
        return Message(self.sequence, self.time, self.channels, data, attributes, shelf, traceparent=self.traceparent)


class Rows:
    """Rows of one table, in any order. Adding or removing one never takes long, however many there are."""

    __slots__ = ("_buckets",)

    def __init__(self, rows: Iterable[Any] = ()) -> None:
        self._buckets: dict[int, dict[Name, Any]] = {}
        for row in rows:
            self.put(row)

    def __len__(self) -> int:
        return sum(map(len, self._buckets.values()))

    def __iter__(self) -> Iterator[Any]:
        return chain.from_iterable([bucket.values() for bucket in self._buckets.values()])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rows) and self._buckets == other._buckets

    __hash__ = None  # type: ignore[assignment]  # they change

    def __repr__(self) -> str:
        return f"Rows({list(self.in_order())})"

    def put(self, row: Row) -> None:
        """Add a row, or put it in the place of the one with its name."""
        name = row.row_name
        self._buckets.setdefault(_bucket_of(name), {})[name] = row

    def remove(self, name: Name) -> None:
        """Remove the row with this name, if it is there."""
        number = _bucket_of(name)
        bucket = self._buckets.get(number, {})
        bucket.pop(name, None)
        if not bucket:
            self._buckets.pop(number, None)

    def in_order(self) -> Iterator[Any]:
        """The rows by `_place`. They must not change meanwhile."""
        for rows in self.sorting():
            yield from rows

    def sorting(self) -> Iterator[Iterable[Any]]:
        """The rows by `_place`, in parts. A part is empty when something was sorted, which takes a moment."""
        runs = []
        for number in sorted(self._buckets):
            run = sorted(self._buckets[number].values(), key=_place)
            if isinstance(run[0].row_name, int):  # numbers are in the order of their buckets
                yield run
            else:
                runs.append(run)
                yield ()
        yield merge(*runs, key=_place)

    def free_some(self) -> bool:
        """Remove one bucket; returns whether there was any."""
        if self._buckets:
            self._buckets.popitem()
        return bool(self._buckets)


def _place(row: Any) -> tuple[Any, ...]:
    """A sort key, in whose order tables take rows from a checkpoint: by sequence, and by name if several have the same.

    Open channels come by id, and then closed ones by their closing.
    """
    if isinstance(row, ChannelRow):
        return (0, row.id) if row.id else (1, row.closed_sequence, row.name)
    return row.sequence, row.row_name


def _bucket_of(name: Name) -> int:
    return name // BUCKET if isinstance(name, int) else hash(name) % BUCKET
