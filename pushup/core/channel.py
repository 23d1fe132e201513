"""A channel: a message stream (PushUp §3.2), with its cached messages in a time-keyed tree."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import attrgetter
from typing import Literal

from msgspec import Struct
from sortedcontainers import SortedKeyList

from pushup.core.message import MESSAGE_OVERHEAD_BYTES, Message
from pushup.core.poll import Selection

DropReason = Literal["expired", "evicted", "closed"]
"""Why a message is dropped: `pushup_messages_dropped_total` counts by these, and the gap says the same."""

GapReason = Literal[DropReason, "lost"]
"""Why a client gets a gap. `lost`: the order itself has lost entries."""

LIST_LIMIT = 2048
"""Up to this many messages a list serves as the tree: they arrive in order. Dropping the oldest takes 0.2 us then. In a
`SortedKeyList`, adding one and dropping one takes 1.6 us, and the list itself 0.6 KB."""

_place = attrgetter("time", "sequence")
_time = attrgetter("time")
_sequence = attrgetter("sequence")


class Channel(Struct, eq=False, gc=False):
    """One message stream.

    It is *open* from its creation to its closing. A closed channel is kept while clients with cursors from before the
    closing must still learn of it.

    Sequences (0: none):
    `newest_sequence`, `second_newest_sequence`: its last message, and the one before that.
    `dropped_sequence`: the highest message that may have been dropped, with the `reason`. It is an assumption if an
    earlier channel with this name may have been forgotten.
    `known_dropped_sequence`: the highest message that this replica has in fact dropped.
    `closed_sequence`: its last closing.
    `latest_sequence`: the highest of these; a cursor at or after it has nothing to read here.

    `bytes`: the data of its messages. `ttl`: in seconds. `expires`: when it closes or, once closed, is forgotten, in
    seconds since the epoch. `due`: the whole second at which to check that next.
    """

    name: str
    id: int = 0
    ttl: float = 0.0
    expires: float = 0.0
    due: int = 0
    newest_sequence: int = 0
    second_newest_sequence: int = 0
    dropped_sequence: int = 0
    known_dropped_sequence: int = 0
    reason: GapReason = "expired"
    closed_sequence: int = 0
    latest_sequence: int = 0
    bytes: int = 0
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
        self.second_newest_sequence = self.newest_sequence
        self.newest_sequence = self.latest_sequence = message.sequence

    def drop_oldest(self, reason: DropReason) -> Message:
        """Drop the oldest message, and remember that it existed. O(log n)."""
        assert self.messages
        message = self.messages.pop(0)
        message.holders -= 1
        self.bytes -= message.size - MESSAGE_OVERHEAD_BYTES
        self.dropped_sequence = self.known_dropped_sequence = message.sequence
        self.reason = reason
        if not self.messages:
            self.messages = None
        return message

    def drop_all(self, reason: DropReason) -> Sequence[Message]:
        """Drop all messages, and remember that they existed; returns them. O(k)."""
        messages = self.messages
        if messages is None:
            return ()
        for message in messages:
            message.holders -= 1
        self.messages, self.bytes = None, 0
        self.dropped_sequence = self.known_dropped_sequence = self.newest_sequence
        self.reason = reason
        return messages

    def assume_dropped(self, sequence: int) -> None:
        """Messages up to this sequence may have been dropped here: a new channel cannot know what preceded it."""
        self.dropped_sequence = self.latest_sequence = sequence

    def after(self, sequence: int, selection: Selection) -> Sequence[Message]:
        """The first cached messages after a sequence in the selection's time range, one more than its limit at most.

        Oldest first. The two keys of the tree, time and sequence, agree in their order, so either finds a place.
        O(log n + k).
        """
        messages = self.messages
        if messages is None or self.newest_sequence <= sequence:
            return ()
        whole = selection.start == 0 and selection.end == math.inf
        if whole and self.second_newest_sequence <= sequence:
            return (messages[-1],)  # a held poll has usually seen all but the newest
        first, last = bisect_right(messages, sequence, key=_sequence), len(messages)
        if not whole:
            first = max(first, bisect_left(messages, selection.start, key=_time))
            last = bisect_left(messages, selection.end, key=_time)
        return messages[first : min(last, first + selection.limit + 1)]

    def check(self) -> None:
        """Assert the invariants."""
        assert self.bytes == sum(m.size - MESSAGE_OVERHEAD_BYTES for m in self.messages or ())
        assert self.latest_sequence == max(self.newest_sequence, self.dropped_sequence, self.closed_sequence), self.name
        assert self.known_dropped_sequence <= self.dropped_sequence, self.name
        if self.messages is not None:
            if not isinstance(self.messages, list):
                self.messages._check()  # type: ignore[attr-defined]  # the stubs leave it out
            sequences = [m.sequence for m in self.messages]
            assert self.is_open
            assert sequences == sorted(set(sequences))
            assert self.dropped_sequence < sequences[0]
            assert sequences[-1] == self.newest_sequence
            assert all(self.name in m.channels for m in self.messages)
        elif self.newest_sequence:
            assert self.newest_sequence <= self.dropped_sequence
