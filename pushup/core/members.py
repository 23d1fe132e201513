"""Who follows which channel: the members of channels with presence (decision 39).

`Here` adds a member, and `Leave` removes one. In between, `Away` and `Gone` only ask: the member leaves if no node
answers with `Here` before `leaves_at`. What changes is told by a message on the channel.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import islice

from msgspec import UNSET, Raw, Struct, UnsetType, json
from msgspec.structs import replace
from sortedcontainers import SortedList

from pushup.core.attendance import NULL, Attendance, Key
from pushup.core.bounded_table import BoundedTable
from pushup.core.change_log import TableChanges
from pushup.core.machine_rules import Rules

GONE_AT_MOST = 1000
"""Members of a node that one entry asks about."""


class Member(Struct, frozen=True, omit_defaults=True, gc=False, forbid_unknown_fields=True):
    """A subject follows a channel since `time`, by the node `holder`. `leaves_at`: 0 if nobody asks. Unix time."""

    channel: str
    subject: str
    data: Raw
    sequence: int
    time: float
    holder: str
    leaves_at: float = 0.0

    @property
    def key(self) -> Key:
        return self.channel, self.subject

    @property
    def row_name(self) -> str:
        return row_name(self.key)


def row_name(key: Key) -> str:
    return "\n".join(key)  # names of channels have no control characters


class View(Struct, frozen=True):
    """A member as clients see it; `since`: Unix time."""

    subject: str
    since: float
    data: Raw


def view(member: Member) -> View:
    return View(member.subject, member.time, member.data)


class ChannelPresence(Struct, frozen=True, omit_defaults=True):
    """Who follows a channel as of the cursor; `members` is left out if there are too many."""

    channel: str
    cursor: str
    count: int
    members: tuple[View, ...] | UnsetType = UNSET


class Delta(Struct, omit_defaults=True):
    """What a message says: the number of members and, unless there are too many, who has come, changed and gone."""

    count: int
    joins: list[View] = []
    updates: list[View] = []
    leaves: list[str] = []

    @property
    def is_empty(self) -> bool:
        return not (self.joins or self.updates or self.leaves)


class Members(BoundedTable[Member]):
    """All of them. `limit`: beyond it, nobody joins."""

    name = "members"
    row_type = Member

    def __init__(self, rules: Rules, changes: TableChanges) -> None:
        super().__init__(rules, changes)
        self._by_channel: dict[str, dict[str, None]] = {}  # their names, in the order of joining
        self._by_holder: dict[str, SortedList[str]] = {}  # of those that nobody asks about
        self._leaving: SortedList[tuple[float, str]] = SortedList()

    @property
    def limit(self) -> int:
        return self._rules.limits.members_limit

    @property
    def seconds(self) -> float:
        return math.inf

    def rank(self, row: Member) -> tuple[int, ...]:
        return (int(row.time * 1000),)

    @property
    def is_full(self) -> bool:
        return len(self._rows) >= self.limit

    @property
    def holders(self) -> list[str]:
        """The nodes that have members about whom nobody asks."""
        return list(self._by_holder)

    def held_by(self, node: str) -> list[Key]:
        """The members of this node about whom nobody asks."""
        return [self._rows[name].key for name in self._by_holder.get(node, ())]

    def member(self, key: Key) -> Member | None:
        return self._rows.get(row_name(key))

    def count(self, channel: str) -> int:
        return len(self._by_channel.get(channel, ()))

    def of_channel(self, channel: str) -> list[Member]:
        """In the order in which they joined."""
        return [self._rows[name] for name in self._by_channel.get(channel, ())]

    def due(self, time: float, most: int) -> list[Key]:
        """Up to so many that may leave at this time."""
        first = islice(self._leaving, most)
        return [self._rows[name].key for at, name in first if at <= time]

    @property
    def next_leave(self) -> float | None:
        """When the next may leave."""
        return self._leaving[0][0] if self._leaving else None

    # Changes, each by an entry.

    def here(self, node: str, given: Attendance, sequence: int, time: float, delta: Delta) -> None:
        """This subject follows by this node."""
        before = self.member(given.key)
        if before is None:
            if not self.is_full:
                row = Member(given.channel, given.subject, given.data.copy(), sequence, time, node)
                self._set(row)
                delta.joins.append(view(row))
            return
        is_new = given.data not in (NULL, before.data)
        if is_new or before.leaves_at or before.holder != node:
            row = replace(before, holder=node, leaves_at=0.0, data=given.data.copy() if is_new else before.data)
            self._set(row)
            if is_new:
                delta.updates.append(view(row))

    def away(self, node: str, keys: Iterable[Key], leaves_at: float, *, is_closed: bool) -> list[Member]:
        """These members of this node, or of any if their pages closed, may leave then; returns those that may."""
        found = []
        for key in keys:
            row = self.member(key)
            if row is not None and (is_closed or (row.holder == node and not row.leaves_at)):
                row = replace(row, leaves_at=min(leaves_at, row.leaves_at or leaves_at))
                self._set(row)
                found.append(row)
        return found

    def gone(self, node: str, leaves_at: float) -> list[Member]:
        """As `away`, for members of this node: the first ones by name, so that they are the same on every node."""
        names = list(islice(self._by_holder.get(node, ()), GONE_AT_MOST))
        return self.away(node, [self._rows[name].key for name in names], leaves_at, is_closed=False)

    def leave(self, key: Key, time: float, delta: Delta) -> None:
        """This member leaves, if its time has come."""
        row = self.member(key)
        if row is not None and 0 < row.leaves_at <= time:
            self._forget(row)
            name, names = row.row_name, self._by_channel[row.channel]
            del self._rows[name], names[name]
            if not names:
                del self._by_channel[row.channel]
            self._changes.note(name)
            delta.leaves.append(row.subject)

    def message(self, channel: str, before: int, delta: Delta) -> Raw | None:
        """What to tell the channel that had so many members before; None: nothing."""
        delta.count = count = self.count(channel)
        limit = self._rules.limits.presence_limit
        if count > limit:
            return None if before > limit and _rounded(count) == _rounded(before) else Raw(b'{"count":%d}' % count)
        return None if delta.is_empty else Raw(json.encode(delta))

    # Rows.

    def take_apart(self) -> Iterator[None]:
        yield from super().take_apart()
        for parts in (self._by_channel, self._by_holder):
            while parts:
                parts.popitem()
                yield

    def _note(self, row: Member) -> None:
        name = row.row_name
        self._by_channel.setdefault(row.channel, {})[name] = None
        if row.leaves_at:
            self._leaving.add((row.leaves_at, name))
        else:
            if (held := self._by_holder.get(row.holder)) is None:
                held = self._by_holder[row.holder] = SortedList()
            held.add(name)

    def _forget(self, row: Member) -> None:
        """It keeps its place among the members of its channel, unless it leaves."""
        name = row.row_name
        if row.leaves_at:
            self._leaving.remove((row.leaves_at, name))
        else:
            held = self._by_holder[row.holder]
            held.remove(name)
            if not held:
                del self._by_holder[row.holder]

    def check(self) -> None:
        """Assert the invariants. O(all); for tests."""
        again = Members(self._rules, self._changes)
        for row in self._rows.values():
            again.restore(row)
        assert self._by_holder == again._by_holder
        assert self._by_channel == again._by_channel
        assert all(list(names) == list(again._by_channel[channel]) for channel, names in self._by_channel.items())
        assert self._leaving == again._leaving


def _rounded(count: int) -> tuple[str, int]:
    """A number as its first two digits say it."""
    text = str(count)
    return text[:2], len(text)
