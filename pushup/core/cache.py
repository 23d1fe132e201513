"""All cached messages of a node, each once, and what bounds them: age, number and bytes (PushUp §3.2)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from itertools import takewhile

from pushup.core.channel import Channel, GapReason
from pushup.core.limits import Limits
from pushup.core.message import Message


class Cache:
    """The messages that channels keep, oldest first."""

    def __init__(self, limits: Limits, find: Callable[[str], Channel | None], note: Callable[[Channel], None]) -> None:
        """`find` gives the channel of a name, if it lives; `note` is told of those that lose messages."""
        self._limits = limits
        self._find = find
        self._note = note
        # Messages only ever come at the end; the channels' trees are for looking things up in them.
        self._messages: OrderedDict[int, Message] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def oldest_time(self) -> float | None:
        return self._oldest().time if self._messages else None

    @property
    def oldest_sequence(self) -> int | None:
        return self._oldest().sequence if self._messages else None

    def messages(self, after: int = 0) -> list[Message]:
        """Those after this sequence, oldest first. O(their number)."""
        newest_first = takewhile(lambda message: message.sequence > after, reversed(self._messages.values()))
        return list(newest_first)[::-1]

    def add(self, message: Message, channels: Iterable[Channel]) -> None:
        """Keep a new message on its channels, and let go what is too much. O(log n) a channel."""
        self._messages[message.sequence] = message
        self.bytes += message.size
        for channel in channels:
            channel.keep(message)
            while len(channel.messages or ()) > self._limits.retention_messages:
                self._release(channel.drop_oldest("evicted"))
        while self.bytes > self._limits.retention_bytes and len(self._messages) > 1:
            self._drop_oldest("evicted")

    def restore(self, message: Message, channels: Iterable[Channel]) -> None:
        """Put in a message from a snapshot, newer than all that are here."""
        self._messages[message.sequence] = message
        self.bytes += message.size
        for channel in channels:
            channel.keep(message)

    def expire(self, time: float, most: int) -> int:
        """Let go of at most `most` messages that were published at `time` or before; returns how many went."""
        gone = 0
        while gone < most and self._messages and self._oldest().time <= time:
            self._drop_oldest("expired")
            gone += 1
        return gone

    def drop_channel(self, channel: Channel) -> None:
        """Let go of all messages of a channel that closes. O(k log n)."""
        while channel.messages:
            self._release(channel.drop_oldest("closed"))

    def _oldest(self) -> Message:
        return next(iter(self._messages.values()))

    def _drop_oldest(self, reason: GapReason) -> None:
        """The oldest message of the node is the oldest of each channel that still keeps it."""
        message = self._oldest()
        for name in message.channels:
            channel = self._find(name)
            if channel is not None and channel.messages and channel.messages[0] is message:
                self._note(channel)
                self._release(channel.drop_oldest(reason))

    def _release(self, message: Message) -> None:
        if message.holders == 0:
            del self._messages[message.sequence]
            self.bytes -= message.size

    def check(self) -> None:
        """Assert the invariants: every message is kept by as many channels as it says, and the bytes add up."""
        assert self.bytes == sum(m.size for m in self._messages.values())
        for message in self._messages.values():
            holders = [
                channel
                for channel in map(self._find, message.channels)
                if channel is not None and channel.messages and message in channel.messages
            ]
            assert message.holders == len(holders) > 0
