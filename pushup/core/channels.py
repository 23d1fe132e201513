"""The channels by name and by id: opened, renewed, closed, remembered and forgotten.

PushUp §3.3: a channel is created with a unique id and an expiry; publishing and renewing extend it; an idle channel is
closed. A closed channel is remembered for as long as its messages would have been kept (less if very many are closed),
so that clients with older cursors learn of it. After that one number is left, the `floor`: the highest sequence at
which any forgotten channel could have had something for a reader.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import Any

from sortedcontainers import SortedKeyList

from pushup.core.change_log import Name, TableChanges
from pushup.core.channel import Channel, Touched
from pushup.core.commands import Draft
from pushup.core.errors import BadRequest, Overloaded, PushUpError, UnknownChannel
from pushup.core.machine_rules import Retention, Rules
from pushup.core.rows import ChannelRow


def is_id(name: str) -> bool:
    """Whether this is a channel's id rather than its name: digits only."""
    return name.isascii() and name.isdigit()


def unknown_channel(name: str, field: str = "channel") -> UnknownChannel:
    """The error for a name or id that no open channel has."""
    if is_id(name):
        text = f"no channel has the id {name}; a name must not be digits only, so use one such as user:{name}"
        return UnknownChannel(text, field=field)
    return UnknownChannel(f"channel {name!r} does not exist", field=field)


class Channels:
    """All channels that are open, or closed and still remembered."""

    def __init__(self, rules: Rules, changes: TableChanges, touched: Touched) -> None:
        self._rules = rules
        self._changes = changes
        self._touched = touched
        self._by_name: dict[str, Channel] = {}
        self.remembered: Callable[[str], Channel | None] = self._by_name.get
        """The channel with exactly this name, whether it is open or closed."""
        self._names_by_id: dict[int, str] = {}  # in order of the ids, because a new channel has the highest
        # Open channels by the whole second at which to check whether they have expired. One that was renewed meanwhile
        # is put back then, so that publishing does not touch the list. Closed channels by the second at which to forget
        # them. A limit may cut a second anywhere, so its channels are in the same order in every replica (decision 13).
        self._expiries: SortedKeyList[Channel, Any] = SortedKeyList(key=attrgetter("due", "id"))
        self._closings: SortedKeyList[Channel, Any] = SortedKeyList(key=attrgetter("due", "closed_sequence", "name"))
        self.last_id = 0
        self.floor = 0

    def __len__(self) -> int:
        """The number of open channels."""
        return len(self._names_by_id)

    def __iter__(self) -> Iterator[Channel]:
        """The open channels."""
        for channel in self._by_name.values():
            if channel.is_open:
                yield channel

    # Reading.

    def find(self, name: str) -> Channel | None:
        """The open channel with this name or id. A channel created without a name has its id as its name."""
        channel = self._by_name.get(name)
        if channel is None and is_id(name):
            channel = self._by_name.get(self._names_by_id.get(int(name), ""))
        return channel if channel is not None and channel.id else None

    def name_of(self, name: str) -> str:
        """The name of the open channel with this name or id; where there is none, what was given."""
        found = self.find(name)
        return name if found is None else found.name

    def get(self, name: str) -> Channel:
        """The open channel with this name or id. Raises: UnknownChannel."""
        channel = self.find(name)
        if channel is None:
            raise unknown_channel(name)
        return channel

    def resolve(self, name: str) -> Channel:
        """The channel that a poll for this name or id reads.

        A channel that does not exist reads as empty, with everything up to the `floor` possibly dropped; it is not
        kept here.
        Raises: UnknownChannel for an unknown id and, with `strict_channels`, for any unknown name. The name of a closed
        channel is known for as long as that is remembered.
        """
        channel = self._by_name.get(name) or self.find(name)
        if channel is not None:
            return channel
        if self._rules.limits.strict_channels or is_id(name):
            raise unknown_channel(name)
        return self.absent(name)

    def resolve_all(self, names: tuple[str, ...]) -> tuple[tuple[Channel, ...], int, bool]:
        """As `resolve` for each; the highest `latest_sequence` among them, and whether all are open."""
        if len(names) == 1:
            channel = self.remembered(names[0]) or self.resolve(names[0])
            return (channel,), channel.latest_sequence, channel.id != 0
        # A channel may be asked for by its name and by its id.
        found = tuple({channel.name: channel for channel in map(self.resolve, names)}.values())
        return found, max(c.latest_sequence for c in found), all(c.is_open for c in found)

    def absent(self, name: str) -> Channel:
        """A stand-in for a channel that does not exist: empty, with everything up to the `floor` possibly dropped."""
        return Channel(name, dropped_sequence=self.floor, latest_sequence=self.floor)

    def page(self, after: int = 0, most: int | None = None) -> list[Channel]:
        """Open channels with an id above `after`, at most `most`, by id. O(channels), 0.03 us each."""
        found: list[Channel] = []
        for id_, name in self._names_by_id.items():
            if id_ > after:
                if len(found) == most:
                    break
                found.append(self._by_name[name])
        return found

    def retention(self, channel: Channel) -> Retention:
        """How its messages are kept."""
        found = channel.retention
        if found is None or not found.is_current:
            found = channel.retention = self._rules.retention(channel.name)
        return found

    # Changing.

    def note(self, channel: Channel) -> None:
        """The entry being applied has changed this channel."""
        self._changes.note(channel.name)

    def room_for(self, count: int, drafts: Iterable[Draft] = ()) -> PushUpError | None:
        """The error if so many more channels, which `drafts` need, cannot be opened; None if they can."""
        limit = self._rules.limits.channels_limit
        if len(self) + count <= limit:
            return None
        needed = len({self.name_of(name) for draft in drafts for name in draft.channels})
        if needed > limit:  # then there will be no room, whatever closes
            return BadRequest(f"channels_limit is {limit}, and these are {needed} channels", field="channels")
        return Overloaded(f"channels_limit of {limit} is reached", retry_after=10)

    def open(self, name: str | None, ttl: float | None, time: float) -> Channel:
        """Open a channel that is not open; without a name it is named by its id."""
        # Ids come from the time, so that a restart that lost everything does not issue them again.
        self.last_id = max(self.last_id + 1, int(time * 1000))
        if name is None:
            name = str(self.last_id)
        channel = self._by_name.get(name)
        if channel is None:
            channel = self._by_name[name] = self.absent(name)
        else:
            assert not channel.is_open
            self._closings.remove(channel)
        channel.id = self.last_id
        channel.ttl = ttl if ttl is not None else self.retention(channel).channel_ttl
        self._names_by_id[channel.id] = name
        channel.expires = time + channel.ttl
        self._put(self._expiries, channel)
        self._changes.note(name)
        self._touched.opened.append(channel)
        return channel

    def renew(self, channel: Channel, ttl: float | None, time: float) -> None:
        """Restart the channel's ttl, and change it if one is given."""
        if ttl is not None:
            channel.ttl = ttl
        channel.expires = time + channel.ttl
        self._changes.note(channel.name)
        if channel.expires < channel.due:
            self._expiries.remove(channel)
            self._put(self._expiries, channel)

    def close(self, channel: Channel, sequence: int, time: float) -> None:
        """Close a channel whose messages have been dropped, and remember the closing.

        If more closings are remembered than channels may be open, the oldest are forgotten: two for each, so that a
        limit that has become smaller is reached without much work at once. What this very entry has closed stays; its
        sequence may also be that of a message.
        """
        del self._names_by_id[channel.id]
        self._expiries.discard(channel)  # `next_due` has taken those that have expired
        channel.id = 0
        channel.closed_sequence = channel.latest_sequence = sequence
        channel.expires = time + self.retention(channel).seconds
        self._put(self._closings, channel)
        self._changes.note(channel.name)
        self._touched.woken.append(channel)
        for _ in range(min(2, len(self._closings) - self._rules.limits.channels_limit)):
            self.forget_due(math.inf, sequence)

    # Expiring.

    @property
    def next_time(self) -> float | None:
        """When `next_due` or `forget_due` may have something to do."""
        return min([channels[0].due for channels in (self._expiries, self._closings) if channels], default=None)

    def next_due(self, time: float) -> Channel | None:
        """The next open channel whose `due` has come, with a new one; None if there is none.

        If the new `due` has come as well, the channel has expired, and the caller must close it. Otherwise it was
        renewed.
        """
        if not self._expiries or self._expiries[0].due > time:
            return None
        channel = self._expiries.pop(0)
        channel.due = math.ceil(channel.expires)
        if channel.due > time:
            self._expiries.add(channel)
            self._changes.note(channel.name)
        return channel

    def forget_due(self, time: float, sequence: int) -> bool:
        """Forget the channel that was closed first, if its time has come. Returns whether it had.

        What the entry with this sequence has closed stays, as in `close`.
        """
        closings = self._closings
        if not closings or closings[0].due > time or closings[0].closed_sequence == sequence:
            return False
        channel = closings.pop(0)
        self.floor = max(self.floor, channel.latest_sequence)
        del self._by_name[channel.name]
        self._changes.note(channel.name)
        self._touched.forgotten.append(channel)
        return True

    # Snapshots.

    def names(self) -> list[Name]:
        """Of all channels, open or closed. O(their number), 0.01 us each."""
        return list(self._by_name)

    def row(self, name: Name) -> ChannelRow | None:
        """The channel with exactly this name, open or closed, as a value."""
        channel = self._by_name.get(str(name))
        return None if channel is None else ChannelRow.of(channel)

    def restore(self, channel: Channel) -> None:
        """Put in a channel from a snapshot; the open ones by id."""
        self._by_name[channel.name] = channel
        if channel.is_open:
            self._names_by_id[channel.id] = channel.name
            self._expiries.add(channel)
        else:
            self._closings.add(channel)

    def take_apart(self) -> Iterator[None]:
        """Remove everything, one thing for each item: freeing all at once takes long."""
        for by_key in (self._by_name, self._names_by_id):
            while by_key:
                by_key.popitem()
                yield
        for channels in (self._expiries, self._closings):
            while channels:
                channels.pop()
                yield

    def _put(self, channels: SortedKeyList[Channel, Any], channel: Channel) -> None:
        channel.due = math.ceil(channel.expires)
        channels.add(channel)

    def check(self) -> None:
        """Assert the invariants of all channels."""
        assert {c.id: c.name for c in self} == self._names_by_id
        assert list(self._names_by_id) == sorted(self._names_by_id)
        for channels in (self._expiries, self._closings):
            channels._check()  # type: ignore[attr-defined]  # the stubs leave it out
        expiries, closings = set(self._expiries), set(self._closings)
        for name, channel in self._by_name.items():
            channel.check()
            assert channel.name == name
            assert channel.is_open == (channel in expiries), name
            assert channel.is_open != (channel in closings), name
            assert channel.is_open or channel.closed_sequence, name
