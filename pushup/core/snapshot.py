"""The shared state of a message queue as a value: a second node starts from one, and equal queues have equal ones."""

from __future__ import annotations

from msgspec import Raw, Struct
from msgspec.structs import replace

from pushup.core.channel import Channel, GapReason
from pushup.core.keys import Remembered
from pushup.core.message import Message


class ChannelSnapshot(Struct, frozen=True):
    """A channel that lives (`id` > 0) or is remembered; the fields of `Channel`."""

    name: str
    id: int
    ttl: float
    expires: float
    due: int
    newest: int
    dropped: int
    reason: GapReason
    closed: int

    @classmethod
    def of(cls, c: Channel) -> ChannelSnapshot:
        return cls(c.name, c.id, c.ttl, c.expires, c.due, c.newest, c.dropped, c.reason, c.closed)

    def restore(self) -> Channel:
        """A channel as that one was, without messages and subscriptions."""
        channel = Channel(self.name)
        channel.id, channel.ttl, channel.expires, channel.due = self.id, self.ttl, self.expires, self.due
        channel.newest, channel.dropped, channel.reason = self.newest, self.dropped, self.reason
        channel.closed = self.closed
        channel.latest = max(self.newest, self.dropped, self.closed)
        return channel


class MessageSnapshot(Struct, frozen=True):
    """A cached message; each of its channels that lives keeps it, unless it has dropped this sequence."""

    sequence: int
    time: float
    channels: tuple[str, ...]
    data: Raw

    @classmethod
    def of(cls, m: Message) -> MessageSnapshot:
        return cls(m.sequence, m.time, m.channels, m.data)

    def restore(self) -> Message:
        """That message; with a copy of its data, if that is a part of something larger, which it would hold on to."""
        return Message(self.sequence, self.time, self.channels, self.data.copy())


class Changes(Struct, frozen=True):
    """What has become different in a message queue since some entry: laid over the state of then it gives a snapshot.

    `channels` are those that changed, `forgotten` names that are to be left out; `messages` and `keys` are the new
    ones, and of the old those count from `first_message` and `first_key` on (sequences; 0 is all).
    """

    epoch: str
    sequence: int
    time: float
    last_id: int
    floor: int
    channels: tuple[ChannelSnapshot, ...]
    forgotten: tuple[str, ...]
    messages: tuple[MessageSnapshot, ...]
    first_message: int
    keys: tuple[tuple[str, Remembered], ...]
    first_key: int


class Snapshot(Struct, frozen=True):
    """All of a message queue but its subscriptions, which are each node's own. Everything in its order."""

    epoch: str
    sequence: int
    time: float
    last_id: int
    floor: int
    channels: tuple[ChannelSnapshot, ...]
    messages: tuple[MessageSnapshot, ...]
    keys: tuple[tuple[str, Remembered], ...]


def new_epoch(state: Snapshot, epoch: str) -> Changes:
    """What makes an empty queue one that begins a new epoch: the channels that live, and nothing in them."""
    return Changes(
        epoch=epoch,
        sequence=0,
        time=state.time,
        last_id=state.last_id,
        floor=0,
        channels=tuple([replace(c, newest=0, dropped=0, reason="expired", closed=0) for c in state.channels if c.id]),
        forgotten=(),
        messages=(),
        first_message=1,
        keys=(),
        first_key=1,
    )
