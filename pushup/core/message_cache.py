"""All cached messages of a node, each once, and what bounds them: age, number and bytes (PushUp §3.2).

How long messages are kept differs between channels (`Limits.channels`). So the messages of each class of retention are
on shelves of their own, one for each publisher. Every shelf expires at its own front. When the cache is full, the
oldest message goes of the publisher that takes most in the class that takes most for its share: whoever publishes very
much loses their own history first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter

from pushup.core.change_log import Name, TableChanges
from pushup.core.channel import Channel, DropReason, Message
from pushup.core.channels import Channels
from pushup.core.drops import Drops
from pushup.core.machine_rules import EPHEMERAL, Retention, Rules
from pushup.core.rows import MessageRow
from pushup.core.shelves import BySequence, RetentionClass, Shelf

EVICT_AT_MOST = 1000
"""Messages that a new one drives out of channels, some 4 ms; usually it is one. What exceeds the limits then is left to
the next."""


class MessageCache:
    """The messages that channels keep."""

    def __init__(self, rules: Rules, channels: Channels, changes: TableChanges) -> None:
        self._rules = rules
        self._channels = channels
        self._changes = changes
        # By sequence, for rows, and for neighbours on a shelf. Messages are only ever appended.
        self._messages: BySequence[Message] = BySequence()
        self.get: Callable[[int], Message | None] = self._messages.get
        """The message with this sequence."""
        self.classes: dict[str, RetentionClass] = {}
        """By name, those that have messages."""
        self.bytes = 0
        """Of all but ephemeral messages."""
        self.drops = Drops()
        """What was dropped; a node replaces this, to go on when it changes states."""

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def next_time(self) -> float | None:
        """When a message is due to expire next."""
        shelves = [(kept, shelf) for kept in self.classes.values() for shelf in kept.shelves.values()]
        return min([self._at(shelf.first).time + kept.retention.seconds for kept, shelf in shelves], default=None)

    def age(self, now: float) -> float:
        """Seconds since the oldest message was published; 0 if there is none. O(1)."""
        return now - self._messages.oldest.time if self._messages else 0.0

    def use_limits(self) -> None:
        """The rules have other limits now. O(classes)."""
        for kept in self.classes.values():
            kept.retention = self._rules.retention(kept.name)

    # Messages come.

    def shelf(self, channels: Sequence[Channel], owner: str, *, is_ephemeral: bool) -> Shelf:
        """Where a new message on these channels belongs. Of several channels, the longest retention decides."""
        if is_ephemeral:
            retention = self._rules.retention(EPHEMERAL)
        else:
            retention = self._channels.retention(channels[0])
            for channel in channels[1:]:
                other = self._channels.retention(channel)
                if other.seconds > retention.seconds:
                    retention = other
        return self._shelf(retention.name, owner, retention)

    def add(self, message: Message, channels: Sequence[Channel]) -> None:
        """Keep a new message on its channels, and evict what exceeds the limits. O(log n) per channel, O(classes and
        owners) if bytes do.

        Each channel evicts at most two messages, and both its class and all together as many as reach twice the new
        message's size. That is more than it adds: limits that have become smaller are reached a little at a time.
        """
        self._messages.add(message.sequence, message)
        self._changes.note(message.sequence)
        left = EVICT_AT_MOST
        for channel in channels:
            channel.keep(message)
            most = self._channels.retention(channel).messages
            count = len(channel.messages or ()) - channel.ephemeral_count
            enough = max(most, count - 2)
            while count > enough and left > 0:
                self.drops.limit = "retention_messages"
                left -= self._drop_front(channel, "evicted")
                count = len(channel.messages or ()) - channel.ephemeral_count
        kept, size, limit = message.shelf.retention_class, message.size, self._rules.limits.retention_bytes
        counts = self.drops.publishers[kept.name, message.shelf.owner]
        counts.messages += 1
        counts.bytes += size
        if kept.bytes + size > kept.retention.bytes:
            left -= self._make_room(size, kept.retention.bytes, kept, left)
        if self.bytes + size > limit and not kept.is_ephemeral:
            self._make_room(size, limit, None, left)
        self._put(message)

    def _make_room(self, size: int, limit: float, only: RetentionClass | None, most: int) -> int:
        """Evict for a new message of this size, which is on no shelf yet: from this class, or from all durable ones.

        Whoever takes most gives way for the whole of it. Returns how many messages channels have dropped. At `most` it
        stops, and when `only` has become empty: then nothing is used.
        """
        used = before = self.bytes if only is None else only.bytes
        kept, shelf, gone = only, None, 0
        self.drops.limit = "retention_bytes" if only is None else f"retention_bytes of {only.name}*"
        while used + size > limit and used > max(0, before - 2 * size) and gone < most:
            if kept is None or not kept.shelves:
                kept = self._fullest()
            if shelf is None or not shelf.first:
                shelf = kept.largest
            gone += self._drop_oldest(shelf, "evicted", most - gone)
            used = self.bytes if only is None else only.bytes
        return gone

    def _fullest(self) -> RetentionClass:
        """The class that takes most for its share; the same in every replica."""
        durable = [kept for kept in self.classes.values() if not kept.is_ephemeral]
        return durable[0] if len(durable) == 1 else max(durable, key=attrgetter("load"))

    def restore(self, row: MessageRow, channels: Sequence[Channel]) -> None:
        """Add a message from a snapshot, newer than all that are here."""
        name = row.retention_class
        message = row.restore(self._shelf(name, row.owner, self._rules.retention(name)))
        self._messages.add(message.sequence, message)
        for channel in channels:
            channel.keep(message)
        self._put(message)

    # Rows.

    def shelves(self, owner: str) -> list[Shelf]:
        """Those of this owner, in the same order in every replica. O(classes)."""
        return [kept.shelves[owner] for _, kept in sorted(self.classes.items()) if owner in kept.shelves]

    def names(self) -> list[Name]:
        """The sequences of all messages. O(their number)."""
        return self._messages.sequences()

    def row(self, name: Name) -> MessageRow | None:
        """The message with this sequence as a value."""
        assert isinstance(name, int)
        message = self._messages.get(name)
        return None if message is None else MessageRow.of(message)

    # Messages go.

    def expire(self, time: float, most: int) -> int:
        """Drop what is due at `time` until `most` is reached; returns how much: a message counts for each channel."""
        gone = 0
        for _, kept in sorted(self.classes.items()):  # in the same order in every replica
            horizon = time - kept.retention.seconds
            for _, shelf in sorted(kept.shelves.items()):
                while gone < most and shelf.first and self._at(shelf.first).time <= horizon:
                    gone += self._drop_oldest(shelf, "expired", most - gone)
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

    def _drop_oldest(self, shelf: Shelf, reason: DropReason, most: int) -> int:
        """Drop the shelf's oldest message from its channels, and what they keep from before it.

        Returns how many messages channels have dropped. It is at least 1, so that loops end even in a state that was
        restored from damaged rows. At `most` it stops; another call goes on.
        """
        message = self._at(shelf.first)
        if shelf.retention_class.is_ephemeral:
            return self.drop(message, "expired")
        gone = 0
        for name in message.channels:
            channel = self._channels.find(name)
            if channel is not None and (messages := channel.messages):
                while gone < most and messages and messages[0].sequence <= message.sequence:
                    gone += self._drop_front(channel, reason)
        return gone or 1

    def _drop_front(self, channel: Channel, reason: DropReason) -> int:
        """Drop the oldest message of a channel. Returns how many messages channels have dropped.

        An ephemeral one goes from all of its channels: nothing else says that this one has dropped it.
        """
        assert channel.messages
        message = channel.messages[0]
        if message.shelf.retention_class.is_ephemeral:
            return self.drop(message, "expired")
        self._channels.note(channel)
        channel.drop_oldest(reason)
        self._release(message, reason)
        return 1

    def drop(self, message: Message, reason: DropReason) -> int:
        """Drop one message, which is ephemeral or erased. Returns how many channels have dropped it, or 1."""
        gone = 0
        for name in message.channels:
            channel = self._channels.find(name)
            if channel is not None and channel.drop(message, reason):
                if not message.shelf.retention_class.is_ephemeral:
                    self._channels.note(channel)
                self._release(message, reason)
                gone += 1
        return gone or 1

    def _release(self, message: Message, reason: DropReason) -> None:
        """A channel has dropped this message; with the last one, it goes."""
        if message.holders == 0:
            self._take(message)
            self._messages.remove(message.sequence)
            self._changes.note(message.sequence)
            if not message.shelf.retention_class.is_ephemeral:
                self.drops.add(message, reason)

    # Shelves.

    def _shelf(self, name: str, owner: str, retention: Retention) -> Shelf:
        """The shelf of this owner in the class with this name; a new one is put in with its first message."""
        kept = self.classes.get(name) or RetentionClass(name, retention)
        return kept.shelves.get(owner) or Shelf(kept, owner)

    def _at(self, sequence: int) -> Message:
        message = self._messages.get(sequence)
        assert message is not None
        return message

    def _put(self, message: Message) -> None:
        """Put the newest message on its shelf."""
        shelf = message.shelf
        if shelf.last:
            message.before = shelf.last
            self._at(shelf.last).after = message.sequence
        else:
            shelf.first = message.sequence
            shelf.retention_class.shelves[shelf.owner] = shelf
            self.classes[shelf.retention_class.name] = shelf.retention_class
        shelf.last = message.sequence
        self._count(shelf, message.size)

    def _take(self, message: Message) -> None:
        """Take a message off its shelf."""
        shelf = message.shelf
        if message.before:
            self._at(message.before).after = message.after
        else:
            shelf.first = message.after
        if message.after:
            self._at(message.after).before = message.before
        else:
            shelf.last = message.before
        self._count(shelf, -message.size)
        kept = shelf.retention_class
        if not shelf.first:
            del kept.shelves[shelf.owner]
            if not kept.shelves:
                del self.classes[kept.name]

    def _count(self, shelf: Shelf, size: int) -> None:
        shelf.bytes += size
        shelf.retention_class.bytes += size
        if not shelf.retention_class.is_ephemeral:
            self.bytes += size

    def check(self) -> None:
        """Assert the invariants: every message is kept by as many channels as it says, and the bytes add up."""
        shelves = [shelf for kept in self.classes.values() for shelf in kept.shelves.values()]
        found = []
        for shelf in shelves:
            before, sequence, size = 0, shelf.first, 0
            while sequence:
                message = self._at(sequence)
                assert message.shelf is shelf
                assert message.before == before < sequence
                found.append(sequence)
                before, sequence, size = sequence, message.after, size + message.size
            assert shelf.last == before > 0
            assert shelf.bytes == size
        assert sorted(found) == self.names()
        for kept in self.classes.values():
            assert kept.bytes == sum(shelf.bytes for shelf in kept.shelves.values())
        assert self.bytes == sum(kept.bytes for kept in self.classes.values() if not kept.is_ephemeral)
        for message in self._messages:
            channels = [channel for channel in map(self._channels.find, message.channels) if channel is not None]
            holders = [channel for channel in channels if channel.messages and message in channel.messages]
            assert message.holders == len(holders) > 0
            assert holders == [channel for channel in channels if channel.keeps(message.sequence)]
