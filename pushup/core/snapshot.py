"""The replicated state as a value: another node starts from one, and equal states have equal snapshots.

Journals and Redis keep these values as JSON, so the field names are a file format.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Raw, Struct, field
from msgspec.structs import replace

from pushup.core.channel import Channel, GapReason
from pushup.core.keys import Remembered
from pushup.core.limits import Limits
from pushup.core.message import Attributes, Message
from pushup.core.past_epochs import PastEpoch
from pushup.core.rules import LATEST_VERSION


class ChannelSnapshot(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A channel that is open (`id` > 0) or remembered; the fields of `Channel`."""

    name: str
    id: int
    ttl: float
    expires: float
    due: int
    newest_sequence: int = field(name="newest")
    dropped_sequence: int = field(name="dropped")
    reason: GapReason
    closed_sequence: int = field(name="closed")

    @classmethod
    def of(cls, c: Channel) -> ChannelSnapshot:
        return cls(
            c.name, c.id, c.ttl, c.expires, c.due, c.newest_sequence, c.dropped_sequence, c.reason, c.closed_sequence
        )

    def restore(self) -> Channel:
        """That channel without its messages."""
        channel = Channel(self.name)
        channel.id, channel.ttl, channel.expires, channel.due = self.id, self.ttl, self.expires, self.due
        channel.newest_sequence, channel.dropped_sequence = self.newest_sequence, self.dropped_sequence
        channel.closed_sequence, channel.reason = self.closed_sequence, self.reason
        channel.latest_sequence = max(self.newest_sequence, self.dropped_sequence, self.closed_sequence)
        return channel


class MessageSnapshot(Struct, frozen=True, omit_defaults=True, gc=False, forbid_unknown_fields=True):
    """A cached message; each of its open channels keeps it, unless it has dropped this sequence."""

    sequence: int
    time: float
    channels: tuple[str, ...]
    data: Raw
    attributes: Attributes | None = None

    @classmethod
    def of(cls, m: Message) -> MessageSnapshot:
        return cls(m.sequence, m.time, m.channels, m.data, m.attributes)

    def restore(self) -> Message:
        """That message, with a copy of its data, which may be part of a larger buffer that should be freed."""
        return Message(self.sequence, self.time, self.channels, self.data.copy(), self.attributes)


class Changes(Struct, frozen=True, forbid_unknown_fields=True):
    """What has changed in the replicated state since some entry: what turns a snapshot of then into one of now.

    `channels` are those that changed, `forgotten` the names to remove; `messages` and `keys` are the new ones. Of the
    old messages and keys, those before the sequences `first_message` and `first_key` are to be removed.
    """

    epoch: str
    sequence: int
    time: float
    last_id: int
    floor: int
    version: int
    past_epochs: tuple[PastEpoch, ...]
    limits: Limits
    channels: tuple[ChannelSnapshot, ...]
    forgotten: tuple[str, ...]
    messages: tuple[MessageSnapshot, ...]
    first_message: int
    keys: tuple[tuple[str, Remembered], ...]
    first_key: int


class Snapshot(Struct, frozen=True):
    """The whole replicated state, everything in its order: channels as `place_when_due` says, the others by age."""

    epoch: str
    sequence: int
    time: float
    last_id: int
    floor: int
    version: int
    past_epochs: tuple[PastEpoch, ...]
    limits: Limits
    channels: Sequence[ChannelSnapshot]
    messages: Sequence[MessageSnapshot]
    keys: Sequence[tuple[str, Remembered]]


def place_when_due(channel: ChannelSnapshot) -> tuple[bool, int, int, int, str]:
    """A sort key: the open channels by `due` and id, then the closed ones by `due`, `closed_sequence` and name."""
    if channel.id:
        return False, channel.due, channel.id, 0, ""
    return True, channel.due, 0, channel.closed_sequence, channel.name


def place_among_channels(channel: ChannelSnapshot) -> tuple[bool, int, int, str]:
    """A sort key: the open channels by id, then the closed ones by `closed_sequence` and name."""
    if channel.id:
        return False, channel.id, 0, ""
    return True, 0, channel.closed_sequence, channel.name


def empty_snapshot(epoch: str, limits: Limits) -> Snapshot:
    """A state of the latest version, to which the first entry of the epoch comes next."""
    return Snapshot(
        epoch=epoch,
        sequence=0,
        time=0.0,
        last_id=0,
        floor=0,
        version=LATEST_VERSION,
        past_epochs=(),
        limits=limits,
        channels=(),
        messages=(),
        keys=(),
    )


def new_epoch(state: Snapshot, epoch: str) -> Changes:
    """What a new epoch begins with: all but the messages of this state, and its closed channels.

    It begins at the same sequence, so that the keys are older than what comes, as they are everywhere else.
    """
    return Changes(
        epoch=epoch,
        sequence=state.sequence,
        time=state.time,
        last_id=state.last_id,
        floor=0,
        version=state.version,
        past_epochs=(),
        limits=state.limits,
        channels=tuple([emptied(c) for c in state.channels if c.id]),
        forgotten=(),
        messages=(),
        first_message=state.sequence + 1,
        keys=tuple(state.keys),
        first_key=state.keys[0][1].sequence if state.keys else state.sequence + 1,
    )


def emptied(channel: ChannelSnapshot) -> ChannelSnapshot:
    """The channel as a new epoch begins with it."""
    return replace(channel, newest_sequence=0, dropped_sequence=0, reason="expired", closed_sequence=0)
