"""All cached messages of a node, each once, and what bounds them: age, number and bytes (PushUp §3.2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import get_args

from pushup.core.by_sequence import BySequence
from pushup.core.change_log import Name, TableChanges
from pushup.core.channel import Channel, DropReason
from pushup.core.channels import Channels
from pushup.core.message import Message
from pushup.core.rows import MessageRow
from pushup.core.rules import Rules


class Cache:
    """The messages that channels keep, oldest first."""

    def __init__(self, rules: Rules, channels: Channels, changes: TableChanges) -> None:
        self._rules = rules
        self._channels = channels
        self._changes = changes
        # Messages are only ever appended; the channels' trees are for finding them.
        self._messages: BySequence[Message] = BySequence()
        self.bytes = 0
        self.dropped: dict[DropReason, int] = dict.fromkeys(get_args(DropReason), 0)
        """Messages dropped so far; a node replaces this, to go on counting when it changes states."""

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def oldest_time(self) -> float | None:
        return self._messages.oldest.time if self._messages else None

    def add(self, message: Message, channels: Iterable[Channel]) -> None:
        """Keep a new message on its channels, and evict what exceeds the limits. O(log n) per channel.

        Each channel evicts at most two messages, and all together as many as reach twice the new message's size. That
        is more than it adds, so that limits that have become smaller are reached without much work at once.
        """
        limits = self._rules.limits
        self._messages.add(message.sequence, message)
        self._changes.note(message.sequence)
        self.bytes += message.size
        for channel in channels:
            channel.keep(message)
            evicted = 0
            while len(channel.messages or ()) > limits.retention_messages and evicted < 2:
                self._release(channel.drop_oldest("evicted"), "evicted")
                evicted += 1
        enough = self.bytes - 2 * message.size
        while self.bytes > limits.retention_bytes and self.bytes > enough and len(self._messages) > 1:
            self._drop_oldest("evicted")

    def names(self) -> list[Name]:
        """The sequences of all messages. O(their number)."""
        return self._messages.sequences()

    def row(self, name: Name) -> MessageRow | None:
        """The message with this sequence as a value."""
        assert isinstance(name, int)
        message = self._messages.get(name)
        return None if message is None else MessageRow.of(message)

    def restore(self, message: Message, channels: Iterable[Channel]) -> None:
        """Add a message from a snapshot, newer than all that are here."""
        self._messages.add(message.sequence, message)
        self.bytes += message.size
        for channel in channels:
            channel.keep(message)

    def expire(self, time: float, most: int) -> int:
        """Drop messages published at `time` or before until `most` is reached; returns how much it was.

        A message counts once for each of its channels.
        """
        gone = 0
        while gone < most and self._messages and (oldest := self._messages.oldest).time <= time:
            self._drop_oldest("expired")
            gone += len(oldest.channels)
        return gone

    def drop_channel(self, channel: Channel) -> None:
        """Drop all messages of a channel that is being closed. O(k)."""
        for message in channel.drop_all("closed"):
            self._release(message, "closed")

    def take_apart(self) -> Iterator[None]:
        """As that of `Channels`."""
        while self._messages:
            self._messages.remove(self._messages.oldest.sequence)
            yield

    def _drop_oldest(self, reason: DropReason) -> None:
        """Drop the oldest message, which is also the oldest of each channel that still keeps it."""
        message = self._messages.oldest
        for name in message.channels:
            channel = self._channels.find(name)
            if channel is not None and channel.messages and channel.messages[0] is message:
                self._channels.note(channel)
                self._release(channel.drop_oldest(reason), reason)

    def _release(self, message: Message, reason: DropReason) -> None:
        if message.holders == 0:
            self._messages.remove(message.sequence)
            self._changes.note(message.sequence)
            self.bytes -= message.size
            self.dropped[reason] += 1

    def check(self) -> None:
        """Assert the invariants: every message is kept by as many channels as it says, and the bytes add up."""
        assert self.bytes == sum(m.size for m in self._messages)
        for message in self._messages:
            holders = [
                channel
                for channel in map(self._channels.find, message.channels)
                if channel is not None and channel.messages and message in channel.messages
            ]
            assert message.holders == len(holders) > 0
