"""A channel: a message stream (PushUp §3.2), with its cached messages in a time-keyed tree; and what a message is.

A message is one published value, stored once for all of its channels (docs/internals/architecture.md). What a publisher
may add to channels and data is one value, `Attributes`. It travels whole, from the body of a publication through the
log or the journal into every cache. Another attribute is added here, and checked in `net.api.publishing`.

`Touched` says what an entry has done to channels, for those who hold polls on them.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import attrgetter
from typing import Literal

from msgspec import Raw, Struct
from sortedcontainers import SortedKeyList

from pushup.core.attendance import Here, Key
from pushup.core.machine_rules import Retention
from pushup.core.poll import Selection
from pushup.core.shelves import Shelf

DropReason = Literal["expired", "evicted", "closed", "deleted"]
"""Why a message is dropped: `pushup_messages_dropped_total` counts by these, and the gap says the same."""

GapReason = Literal[DropReason, "lost"]
"""Why a client gets a gap. `lost`: the order itself has lost entries."""

MESSAGE_OVERHEAD_BYTES = 1024
"""What a message takes besides its data: the object, its place in two trees, its names. Measured: 0.6-1.0 KiB."""

LIST_LIMIT = 2048
"""Up to this many messages a list serves as the tree: they arrive in order. Dropping the oldest takes 0.2 us then. In a
`SortedKeyList`, adding one and dropping one takes 1.6 us, and the list itself 0.6 KB."""

_place = attrgetter("time", "sequence")
_time = attrgetter("time")
_sequence = attrgetter("sequence")


# `gc=False`, as for snapshots: with a million of them, looking for cycles, in which they cannot be, takes long.
class Attributes(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """What a message may have. Where clients see a message, they are fields of it."""

    event: str = ""
    """A name for clients that dispatch on one."""
    ephemeral: bool = False
    """It is of use only at once: kept for some seconds, in memory of its own, and then dropped without a gap."""


class Unread(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """Which of these subjects have not read a message so many seconds `after` it, the application is told."""

    after: float
    subjects: tuple[str, ...]


def attributes_of(given: Attributes) -> Attributes | None:
    """Those of something that has them among its fields; None if it has none, as most."""
    if given.event or given.ephemeral:
        return Attributes(event=given.event, ephemeral=given.ephemeral)
    return None


class Message(Struct, eq=False, gc=False):
    """One published value with its place in the order.

    `data` is JSON text as the publisher wrote it; it is never decoded, so a number keeps all its digits. `size`: the
    bytes that count against `retention_bytes`. `holders`: how many channels still keep the message; the cache drops it
    with the last one. `before`, `after`: the sequences of its neighbours on its shelf; 0: none. `traceparent`: that of
    its publication.
    """

    sequence: int
    time: float
    channels: tuple[str, ...]
    data: Raw
    attributes: Attributes | None
    shelf: Shelf
    before: int = 0
    after: int = 0
    holders: int = 0
    size: int = 0
    traceparent: str = ""

    def __post_init__(self) -> None:
        self.size = len(memoryview(self.data)) + MESSAGE_OVERHEAD_BYTES

    @property
    def is_ephemeral(self) -> bool:
        return self.attributes is not None and self.attributes.ephemeral


class Dropped(Struct, frozen=True, gc=False):
    """A message that its last channel has dropped.

    `time`: when it was published; `bytes`: of its data; `limit`: the setting that has driven it out, if one has;
    `dropped_at`: the time of the entry that has dropped it. Times in seconds since the epoch.
    """

    sequence: int
    time: float
    channels: tuple[str, ...]
    owner: str
    bytes: int
    reason: DropReason
    limit: str
    dropped_at: float
    traceparent: str


class Channel(Struct, eq=False, gc=False):
    """One message stream.

    It is *open* from its creation to its closing. A closed channel is kept while clients with cursors from before the
    closing must still learn of it.

    Sequences (0: none):
    `dropped_sequence`: the highest message that may have been dropped, with the `reason`. It is an assumption if an
    earlier channel with this name may have been forgotten. The channel keeps every message after it, and none before:
    ephemeral messages are dropped without a trace.
    `known_dropped_sequence`: the highest message that this replica has in fact dropped.
    `erased_sequence`: the highest message that was erased from it; what is before that may still be kept.
    `closed_sequence`: its last closing.
    `latest_sequence`: a cursor at or after it has nothing to read here.

    `bytes`: the data of its messages. `ephemeral_count`: how many of them are ephemeral. `ttl`: in seconds. `expires`:
    when it closes or, once closed, is forgotten, in seconds since the epoch. `due`: the whole second at which to check
    that next. `retention`: as `Channels.retention` has found it.
    """

    name: str
    id: int = 0
    ttl: float = 0.0
    expires: float = 0.0
    due: int = 0
    dropped_sequence: int = 0
    known_dropped_sequence: int = 0
    erased_sequence: int = 0
    reason: GapReason = "expired"
    closed_sequence: int = 0
    latest_sequence: int = 0
    bytes: int = 0
    ephemeral_count: int = 0
    retention: Retention | None = None
    # Made when it is needed: most channels have few messages or none.
    messages: list[Message] | SortedKeyList[Message, tuple[float, int]] | None = None

    @property
    def is_open(self) -> bool:
        return self.id != 0

    @property
    def is_remembered(self) -> bool:
        """Whether it exists, open or closed. One that does not is a stand-in for reading (`Channels.absent`)."""
        return self.id != 0 or self.closed_sequence != 0

    def keep(self, message: Message) -> None:
        """Add the newest message. O(log n)."""
        messages = self.messages
        if messages is None:
            self.messages = [message]
        elif isinstance(messages, list) and len(messages) < LIST_LIMIT:
            messages.append(message)
        else:
            if isinstance(messages, list):
                messages = self.messages = SortedKeyList(messages, key=_place)
            messages.add(message)
        message.holders += 1
        self.bytes += message.size - MESSAGE_OVERHEAD_BYTES
        if message.attributes is not None:
            self.ephemeral_count += message.is_ephemeral
        if message.sequence > self.erased_sequence:  # else it is restored, and a later one was erased
            self.latest_sequence = message.sequence

    def keeps(self, sequence: int) -> bool:
        """Whether it keeps this message, one of its own that is still cached."""
        return sequence > self.dropped_sequence and sequence >= self.closed_sequence

    def drop_oldest(self, reason: DropReason) -> Message:
        """Drop the oldest message, and remember that it existed unless it was ephemeral. O(log n)."""
        assert self.messages
        return self._dropped(self.messages.pop(0), reason)

    def drop(self, message: Message, reason: DropReason) -> bool:
        """Drop this one message, which is ephemeral or erased, if it keeps it. Returns whether it did. O(log n)."""
        messages = self.messages or []
        if messages and messages[0] is message:  # usually
            messages.pop(0)
        else:
            place = bisect_left(messages, message.sequence, key=_sequence)
            if place == len(messages) or messages[place] is not message:
                return False
            del messages[place]
        self._dropped(message, reason)
        return True

    def drop_all(self, reason: DropReason) -> Sequence[Message]:
        """Drop all messages, and remember that they existed; returns them. O(k)."""
        messages, self.messages = self.messages or (), None
        for message in messages:
            self._dropped(message, reason)
        return messages

    def _dropped(self, message: Message, reason: DropReason) -> Message:
        """This message was removed."""
        message.holders -= 1
        self.bytes -= message.size - MESSAGE_OVERHEAD_BYTES
        if message.attributes is not None and message.is_ephemeral:
            self.ephemeral_count -= 1
        elif reason == "deleted":
            self.erased_sequence = max(self.erased_sequence, message.sequence)
        else:
            self.dropped_sequence = self.known_dropped_sequence = message.sequence
            self.reason = reason
        if not self.messages:
            self.messages = None
        return message

    def after(self, sequence: int, selection: Selection) -> Sequence[Message]:
        """The first cached messages after a sequence in the selection's time range, one more than its limit at most.

        Oldest first. The two keys of the tree, time and sequence, agree in their order, so either finds a place.
        O(log n + k).
        """
        messages = self.messages
        if messages is None or messages[-1].sequence <= sequence:
            return ()
        whole = selection.start == 0 and selection.end == math.inf
        if whole and (len(messages) == 1 or messages[-2].sequence <= sequence):
            return (messages[-1],)  # a held poll has usually seen all but the newest
        first, last = bisect_right(messages, sequence, key=_sequence), len(messages)
        if not whole:
            first = max(first, bisect_left(messages, selection.start, key=_time))
            last = bisect_left(messages, selection.end, key=_time)
        return messages[first : min(last, first + selection.limit + 1)]

    def check(self) -> None:
        """Assert the invariants."""
        assert self.bytes == sum(m.size - MESSAGE_OVERHEAD_BYTES for m in self.messages or ())
        known = (self.dropped_sequence, self.erased_sequence, self.closed_sequence)
        assert self.latest_sequence >= max(known), self.name
        assert self.ephemeral_count == sum(m.is_ephemeral for m in self.messages or ())
        assert self.known_dropped_sequence <= self.dropped_sequence, self.name
        if self.messages is not None:
            if not isinstance(self.messages, list):
                self.messages._check()  # type: ignore[attr-defined]  # the stubs leave it out
            sequences = [m.sequence for m in self.messages]
            assert self.is_open
            assert sequences == sorted(set(sequences))
            assert self.dropped_sequence < sequences[0]
            assert sequences[-1] <= self.latest_sequence
            assert all(self.name in m.channels for m in self.messages)


class Touched:
    """What an entry did that concerns polls: channels with something new, channels that came or went, revocations."""

    __slots__ = ("answered", "asked", "continued_after", "forgotten", "opened", "revoked", "woken")

    def __init__(self) -> None:
        self.woken: list[Channel] = []
        """Published to, or closed."""
        self.opened: list[Channel] = []
        self.forgotten: list[Channel] = []
        """As they were when they were forgotten."""
        self.continued_after: int | None = None
        """If the order has a new epoch name: the last sequence up to which cursors of the old one are valid."""

        self.answered: Here | None = None
        """Who follows by some node."""
        self.asked: list[tuple[Key, bool]] = []
        """Members that may leave, and whether their pages have closed."""
        self.revoked: str | None = None
        """The name of the revocation that was added: `sub:` or `jti:`, and the subject or token."""

    def clear(self) -> None:
        self.woken.clear()
        self.continued_after = None
        self.revoked = None
        self.answered = None
        if self.asked:
            self.asked.clear()
        if self.opened:
            self.opened.clear()
        if self.forgotten:
            self.forgotten.clear()
