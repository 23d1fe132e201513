"""A channel: a message stream (PushUp §3.2), with its cached messages and its waiting subscriptions, each in a tree."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Literal

from sortedcontainers import SortedKeyList

from pushup.core.message import MESSAGE_OVERHEAD_BYTES, Message
from pushup.core.poll import Selection
from pushup.core.time_tree import TimeTree

GapReason = Literal["expired", "evicted", "closed", "lost"]

LIST_LIMIT = 512
"""Up to so many messages a list is all the tree there is: they come in order, and a `SortedKeyList` takes 0.6 KB."""

_place = attrgetter("time", "sequence")
_time = attrgetter("time")
_sequence = attrgetter("sequence")


class Channel:
    """One message stream.

    It *lives* from its creation to its closing. One that does not live is still here while somebody waits for it, or
    while its closing must be remembered for cursors that are older.

    Sequences: `newest` is its last message and `second` the one before, `dropped` the highest message no longer kept
    (with the `reason`), `closed` its last closing, `latest` the highest of them: a cursor at or after it has nothing to
    learn here. `dropped` may be assumed, where a former life is forgotten; `missed` is what was dropped for certain,
    which is all that one who has waited here since before it can have missed.
    `subscribers`: how many subscriptions know it, those woken and not yet answered too; they are no more in `waiting`.
    `bytes`: the data of its messages. Times: `ttl` in seconds; `expires` in seconds since the epoch, when it closes, or
    once closed is forgotten; `due` the whole second at which the directory looks at it next.
    """

    __slots__ = (
        "bytes", "closed", "dropped", "due", "expires", "id", "latest", "messages", "missed", "name", "newest",
        "reason", "second", "subscribers", "ttl", "waiting",
    )  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name = name
        self.id = 0
        self.ttl = 0.0
        self.expires = 0.0
        self.due = 0
        self.newest = 0
        self.second = 0
        self.dropped = 0
        self.missed = 0
        self.reason: GapReason = "expired"
        self.closed = 0
        self.latest = 0
        self.subscribers = 0
        self.bytes = 0
        # Both trees are made when they are needed: most channels have one subscription, and no or few messages.
        self.messages: list[Message] | SortedKeyList[Message, tuple[float, int]] | None = None
        # What waits are subscriptions, which know their channels; to the channel they are just things with a deadline.
        self.waiting: TimeTree[Any] | None = None

    @property
    def living(self) -> bool:
        return self.id != 0

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
        self.second = self.newest
        self.newest = self.latest = message.sequence

    def drop_oldest(self, reason: GapReason) -> Message:
        """Let the oldest message go, and remember that it was there. O(log n)."""
        assert self.messages
        message = self.messages.pop(0)
        message.holders -= 1
        self.bytes -= message.size - MESSAGE_OVERHEAD_BYTES
        self.forget_up_to(message.sequence, reason)
        self.missed = message.sequence
        if not self.messages:
            self.messages = None
        return message

    def forget_up_to(self, sequence: int, reason: GapReason) -> None:
        """Remember that messages up to `sequence` are not kept here (any more)."""
        if sequence > self.dropped:
            self.dropped = sequence
            self.reason = reason
            self.latest = max(self.latest, sequence)

    def forget_all(self, floor: int) -> None:
        """Be as one that never lived, but for those who still subscribe to it and have not seen its closing."""
        self.missed = self.closed
        self.closed = self.newest = self.second = 0
        self.dropped = self.latest = floor
        self.reason = "expired"

    def after(self, sequence: int, selection: Selection) -> Sequence[Message]:
        """The first cached messages after a sequence in the selection's time range, one more than its limit at most.

        Oldest first. The two keys of the tree, time and sequence, agree in their order, so either finds a place.
        O(log n + k).
        """
        messages = self.messages
        if messages is None or self.newest <= sequence:
            return ()
        whole = selection.start == 0 and selection.end == math.inf
        if whole and self.second <= sequence:
            return (messages[-1],)  # who waited has seen all but the newest
        first, last = bisect_right(messages, sequence, key=_sequence), len(messages)
        if not whole:
            first = max(first, bisect_left(messages, selection.start, key=_time))
            last = bisect_left(messages, selection.end, key=_time)
        return messages[first : min(last, first + selection.limit + 1)]

    def check(self) -> None:
        """Assert the invariants."""
        assert self.bytes == sum(m.size - MESSAGE_OVERHEAD_BYTES for m in self.messages or ())
        assert self.latest == max(self.newest, self.dropped, self.closed), self.name
        assert self.missed <= self.dropped, self.name
        if self.messages is not None:
            if not isinstance(self.messages, list):
                self.messages._check()  # type: ignore[attr-defined]  # the stubs leave it out
            sequences = [m.sequence for m in self.messages]
            assert self.living
            assert sequences == sorted(set(sequences))
            assert self.dropped < sequences[0]
            assert sequences[-1] == self.newest
            assert all(self.name in m.channels for m in self.messages)
        elif self.newest:
            assert self.newest <= self.dropped
        if self.waiting is not None:
            self.waiting.check()
            assert 0 < len(self.waiting) <= self.subscribers
