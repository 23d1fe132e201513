"""What the application has to be told: which subjects have not read a message in time (decision 38), and that a channel
is occupied or vacated (decision 39).

A row waits until its message is due; entries of type `Read` take subjects out of it meanwhile. Then it is ready: a node
claims it, calls the application, and removes it. A claim that ends without that makes the row ready again, so a node
that dies and an application that fails are the same here.

| row | `attempts` | `is_ready` | `next` |
|---|---|---|---|
| waits for readers | 0 | no | when it is ready |
| ready | any | yes | when it is given up |
| claimed | at least 1 | no | when it is ready again |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, product
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace
from sortedcontainers import SortedList

from pushup.core.bounded_table import BoundedTable
from pushup.core.change_log import TableChanges
from pushup.core.channel import Unread
from pushup.core.commands import Draft
from pushup.core.errors import BadRequest, Overloaded, PushUpError
from pushup.core.machine_rules import Rules

CLAIM_SECONDS = 15.0
"""How long the first claim lasts; each further one twice as long as the one before."""

CLAIM_LIMIT_SECONDS = 600.0
"""The longest claim."""

READY_SECONDS = 86_400.0
"""A row that nobody claims for so long goes: no node has a `webhook_url` any more."""

OCCUPANCY_SECONDS = 5.0
"""A channel whose members come back, or leave again, within this time was not vacated, or not occupied."""

Type = Literal["message.unread", "channel.occupied", "channel.vacated"]


class Webhook(Struct, frozen=True, omit_defaults=True, gc=False, forbid_unknown_fields=True):
    """A message that `subjects` have not read, or that says that its channel has members now, or none any more.

    `time`: when it was published; `next` as above; Unix time.
    """

    id: str
    sequence: int
    time: float
    channels: tuple[str, ...]
    subjects: tuple[str, ...]
    next: float
    attempts: int = 0
    is_ready: bool = False
    type: Type = "message.unread"

    @property
    def row_name(self) -> str:
        return self.id

    @property
    def size(self) -> int:
        """What counts against `unread_limit`."""
        return len(self.subjects) * len(self.channels) or 1

    @property
    def waits(self) -> bool:
        """Whether reading it now is in time."""
        return self.attempts == 0 and not self.is_ready


class Webhooks(BoundedTable[Webhook]):
    """All of them. None is dropped for another: a full table refuses."""

    name = "webhooks"
    row_type = Webhook

    def __init__(self, rules: Rules, changes: TableChanges) -> None:
        super().__init__(rules, changes)
        self._times: SortedList[tuple[float, str]] = SortedList()
        self._ready: dict[str, None] = {}
        # Those that wait, by subject and channel, in their order, each with its sequence.
        self._by_reader: dict[tuple[str, str], dict[str, int]] = {}
        self._occupancy: dict[str, str] = {}  # by channel, the row that waits and says that it is occupied or vacated
        self._size = 0

    @property
    def limit(self) -> int:
        """The most subjects, each counted for each channel of its message, and changes of channels."""
        return self._rules.limits.unread_limit

    def rank(self, row: Webhook) -> tuple[int, ...]:
        return row.attempts, row.is_ready, -len(row.subjects)

    @property
    def waits(self) -> bool:
        """Whether any message waits for readers."""
        return bool(self._by_reader)

    def why_not(self, drafts: Iterable[Draft]) -> PushUpError | None:
        """The error if these messages cannot all wait for readers."""
        new = sum([len(d.channels) * len(d.unread.subjects) for d in drafts if d.unread is not None])
        if new > self.limit:
            return BadRequest(f"unread_limit is {self.limit}, and subjects times channels are {new} here", field="for")
        if self._size + new > self.limit:
            return Overloaded(f"unread_limit of {self.limit} is reached; nothing was published", retry_after=60)
        return None

    def add(self, id_: str, sequence: int, time: float, channels: tuple[str, ...], unread: Unread) -> None:
        """A message was published, and waits for readers."""
        self._set(Webhook(id_, sequence, time, channels, unread.subjects, time + unread.after))

    def occupied(self, id_: str, sequence: int, time: float, channel: str, *, is_occupied: bool) -> None:
        """A channel has its first member, or none any more: tell that later, unless the opposite comes first."""
        if (before := self._occupancy.get(channel)) is not None:
            self.remove(before)
            return
        if self._size >= self.limit:
            return  # the application does not take calls
        kind: Type = "channel.occupied" if is_occupied else "channel.vacated"
        self._set(Webhook(id_, sequence, time, (channel,), (), time + OCCUPANCY_SECONDS, type=kind))

    def unread_by(self, subject: str, channels: Iterable[str], sequence: int) -> Iterator[str]:
        """What a subject has read now who has seen these channels up to this sequence. O(channels + taken)."""
        found: set[str] = set()
        for channel in channels:
            for id_, number in self._by_reader.get((subject, channel), {}).items():
                if number > sequence:
                    break
                if id_ not in found:
                    found.add(id_)
                    yield id_

    def read(self, subject: str, ids: Sequence[str]) -> None:
        """This subject has read these messages; those that no longer wait for it do not change."""
        for id_ in ids:
            row = self._rows.get(id_)
            if row is not None and row.waits and subject in row.subjects:
                left = tuple([other for other in row.subjects if other != subject])
                if not left:
                    self.remove(id_)
                    continue
                self._forget_readers(row, (subject,))
                self._rows[id_] = replace(row, subjects=left)
                self._changes.note(id_)

    def ready(self, most: int) -> list[str]:
        """The ids of up to so many that can be claimed."""
        return list(islice(self._ready, most))

    def claim(self, ids: Sequence[str], now: float) -> tuple[str, ...]:
        """Claim those of these that are ready, and return them."""
        claimed = tuple([id_ for id_ in dict.fromkeys(ids) if id_ in self._ready])
        for id_ in claimed:
            row = self._rows[id_]
            seconds = min(CLAIM_SECONDS * 2.0**row.attempts, CLAIM_LIMIT_SECONDS)
            self._set(replace(row, attempts=row.attempts + 1, is_ready=False, next=now + seconds))
        return claimed

    def remove(self, id_: str) -> int:
        """Nobody needs to be told of this message, if anybody was to be. Returns its `size`."""
        if (row := self._rows.pop(id_, None)) is None:
            return 0
        self._forget(row)
        self._changes.note(id_)
        return row.size

    @property
    def next_time(self) -> float | None:
        return self._times[0][0] if self._times else None

    def expire(self, time: float, most: int) -> None:
        """Make those ready that are due, and drop those that nobody has claimed; at most about so many readers."""
        while most > 0 and self._times and self._times[0][0] <= time:
            row = self._rows[self._times[0][1]]
            if row.is_ready:
                self.remove(row.id)
            else:
                self._set(replace(row, is_ready=True, next=time + READY_SECONDS))
            most -= row.size

    def take_apart(self) -> Iterator[None]:
        yield from super().take_apart()
        while self._by_reader:
            self._by_reader.popitem()
            yield

    def _note(self, row: Webhook) -> None:
        self._times.add((row.next, row.id))
        self._size += row.size
        if row.is_ready:
            self._ready[row.id] = None
        elif row.waits and row.type != "message.unread":
            self._occupancy[row.channels[0]] = row.id
        elif row.waits:
            for reader in product(row.subjects, row.channels):
                self._by_reader.setdefault(reader, {})[row.id] = row.sequence

    def _forget(self, row: Webhook) -> None:
        self._times.remove((row.next, row.id))
        self._ready.pop(row.id, None)
        if row.waits and row.type == "message.unread":
            self._forget_readers(row, row.subjects)
            return
        self._size -= row.size
        if row.waits:
            del self._occupancy[row.channels[0]]

    def _forget_readers(self, row: Webhook, subjects: Sequence[str]) -> None:
        """The row waits for these no longer."""
        self._size -= len(subjects) * len(row.channels)
        for reader in product(subjects, row.channels):
            ids = self._by_reader[reader]
            del ids[row.id]
            if not ids:
                del self._by_reader[reader]

    def check(self) -> None:
        """Assert the invariants. O(all); for tests."""
        again = Webhooks(self._rules, self._changes)
        for row in self._rows.values():
            again.restore(row)
        assert self._times == again._times
        assert self._ready.keys() == again._ready.keys()
        assert {r: list(ids.items()) for r, ids in self._by_reader.items()} == {
            r: list(ids.items()) for r, ids in again._by_reader.items()
        }
        assert self._size == again._size
        assert self._occupancy == again._occupancy
