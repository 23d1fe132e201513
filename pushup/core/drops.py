"""The messages that were dropped lately, and why: `pushup why` asks for them, and metrics count them by publisher.

Each node keeps its own record. It is no part of the replicated state: a node that starts knows nothing from before.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import get_args

from pushup.core.channel import MESSAGE_OVERHEAD_BYTES, Dropped, DropReason, Message

REMEMBERED_DROPS = 50_000
"""Dropped messages that a node remembers, some 12 MB; at 100 messages a second, those of 8 minutes."""


class Counts:
    """What one publisher has published in one class, and what was evicted of it."""

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0
        """As they count against `retention_bytes`."""
        self.evicted = {"retention_bytes": 0, "retention_messages": 0}
        """Messages, by the limit that has driven them out."""


class Drops:
    """Those of one node, without ephemeral messages."""

    def __init__(self) -> None:
        self.counts: dict[DropReason, int] = dict.fromkeys(get_args(DropReason), 0)
        """Messages dropped so far, by reason."""
        self.publishers: defaultdict[tuple[str, str], Counts] = defaultdict(Counts)
        """By class and owner; with what was ephemeral."""
        self.time = 0.0
        """The time of the entry that is being applied."""
        self.limit = ""
        """The setting that evicts messages now; that of a class has the class's name behind it."""
        self.forgotten_sequence = 0
        """What was dropped up to this sequence may be missing here; nothing that comes after it is."""
        self.forgotten_at = 0.0
        """What is missing was dropped by then."""
        self._messages: deque[Dropped] = deque()

    def add(self, message: Message, reason: DropReason) -> None:
        """The last channel has dropped this message. O(1)."""
        self.counts[reason] += 1
        messages = self._messages
        if len(messages) >= REMEMBERED_DROPS:
            oldest = messages.popleft()
            self.forgotten_sequence = max(self.forgotten_sequence, oldest.sequence)
            self.forgotten_at = oldest.dropped_at
        limit, shelf = "retention_seconds" if reason == "expired" else "", message.shelf
        if reason == "evicted":
            limit = self.limit
            self.publishers[shelf.retention_class.name, shelf.owner].evicted[limit.partition(" ")[0]] += 1
        size = message.size - MESSAGE_OVERHEAD_BYTES
        sequence, time, channels, traceparent = message.sequence, message.time, message.channels, message.traceparent
        dropped = Dropped(sequence, time, channels, shelf.owner, size, reason, limit, self.time, traceparent)
        messages.append(dropped)

    def find(self, sequence: int) -> Dropped | None:
        """The message with this sequence, if it was dropped and is remembered. O(remembered), some 3 to 16 ms."""
        return next((message for message in self._messages if message.sequence == sequence), None)

    def skip(self, sequence: int, time: float, *, forget: bool) -> None:
        """The node continues from a state as of this sequence and time: what was dropped before that is not known.

        `forget`: it is of another order.
        """
        self.forgotten_sequence, self.forgotten_at = sequence, time
        if forget:
            self._messages.clear()
