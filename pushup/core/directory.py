"""The channels of a node by name and by id, and their lives: opened, renewed, closed, remembered, forgotten.

PushUp §3.3: a channel is created with a unique id and an expiry; publishing and renewing put the expiry off; an idle
channel is closed. A closed channel is remembered for as long as its messages would have been kept, so that a cursor
from before is told; `floor` is the highest sequence about which a forgotten channel could have told anything.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import islice, takewhile

from pushup.core.channel import Channel
from pushup.core.errors import Overloaded, UnknownChannel
from pushup.core.limits import Limits
from pushup.core.time_tree import TimeTree


def is_id(name: str) -> bool:
    """Names of digits only are ids."""
    return name.isascii() and name.isdigit()


class Directory:
    """All channels that live, are waited for, or are remembered."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._by_name: dict[str, Channel] = {}
        self._names_by_id: dict[int, str] = {}  # by id: one that is opened has the highest
        # Living channels by the whole second at which to look whether they have expired; one that was renewed
        # meanwhile is put back then, so that publishing does not touch the tree. Closed channels by when to forget.
        self._expiries: TimeTree[Channel] = TimeTree()
        self._closings: TimeTree[Channel] = TimeTree()
        self._closed = 0
        self.changed: dict[str, int] | None = None
        """Where somebody wants to know (`MessageQueue.changes`): the names of the channels whose shared state has
        changed, each with the sequence of the last time, in that order; who changes a channel notes it by `note`."""
        self.sequence = 0
        """Of the entry that is applied: its last place."""
        self.last_id = 0
        self.floor = 0

    def __len__(self) -> int:
        """How many channels live."""
        return len(self._names_by_id)

    @property
    def awaited_count(self) -> int:
        """How many channels do not live and are not remembered either, but are waited for."""
        return len(self._by_name) - len(self._names_by_id) - self._closed

    def __iter__(self) -> Iterator[Channel]:
        """The living channels."""
        return (channel for channel in self._by_name.values() if channel.living)

    def note(self, channel: Channel) -> None:
        """This channel's shared state changes."""
        if self.changed is not None:
            self.changed.pop(channel.name, None)
            self.changed[channel.name] = self.sequence

    def changed_after(self, sequence: int) -> list[str]:
        """Names of the channels that have changed since, the longest unchanged first. O(their number)."""
        newest_first = takewhile(lambda item: item[1] > sequence, reversed((self.changed or {}).items()))
        return [name for name, _ in newest_first][::-1]

    def note_from(self, sequence: int) -> None:
        """Note what changes after this sequence, and forget what has before. O(what is forgotten)."""
        changed = self.changed = self.changed or {}
        for name in list(takewhile(lambda name: changed[name] <= sequence, changed)):
            del changed[name]

    def remembers(self, name: str) -> Channel | None:
        """The channel of this very name, if it lives or its closing is remembered."""
        channel = self._by_name.get(name)
        return channel if channel is not None and (channel.living or channel.closed) else None

    def page(self, after: int, most: int | None) -> list[Channel]:
        """The living channels with an id after this one, `most` at most, by id. O(channels), 0.03 us each."""
        names = (name for id_, name in self._names_by_id.items() if id_ > after)
        return [self._by_name[name] for name in islice(names, most)]

    @property
    def next_time(self) -> float | None:
        """When `next_due` or `forget_due` may have something to do."""
        times = [t for t in (self._expiries.first_time, self._closings.first_time) if t is not None]
        return min(times, default=None)

    def find(self, name: str) -> Channel | None:
        """The living channel of this name or id. A channel without a name has its id as name."""
        channel = self._by_name.get(name)
        if channel is None and is_id(name):
            channel = self._by_name.get(self._names_by_id.get(int(name), ""))
        return channel if channel is not None and channel.id else None

    def wait_for(self, name: str) -> Channel:
        """The channel of this name or id to wait on; one that does not live yet is awaited.

        Raises: UnknownChannel for an id that does not live, and for any unknown name when channels are strict; but not
        for the name of a closed channel that is remembered (where there was no name, the id was that).
        """
        channel = self._by_name.get(name)
        if channel is not None and channel.id:
            return channel
        if is_id(name) and (by_id := self.find(name)) is not None:
            return by_id
        if channel is not None and channel.closed:
            return channel
        if self._limits.strict_channels or is_id(name):
            raise UnknownChannel(f"channel {name!r} does not exist", field="channel")
        if channel is None:
            channel = self._by_name[name] = Channel(name)
        channel.forget_up_to(self.floor, "expired")
        return channel

    def leave(self, channel: Channel) -> None:
        """Nobody subscribes to this channel any more: forget it, unless it lives or its closing is remembered."""
        if not channel.living and not channel.closed:
            self._by_name.pop(channel.name, None)

    def room_for(self, count: int) -> Overloaded | None:
        """Why so many more channels cannot be opened, if they cannot."""
        if len(self) + count <= self._limits.channels_limit:
            return None
        return Overloaded(f"channels_limit of {self._limits.channels_limit} is reached", retry_after=10)

    def open(self, name: str | None, ttl: float | None, time: float) -> Channel:
        """Let a channel live that does not; without a name it goes by its id."""
        # Ids come from the time, so that they are not given again after a restart that forgot everything.
        self.last_id = max(self.last_id + 1, int(time * 1000))
        if name is None:
            name = str(self.last_id)
        channel = self._by_name.get(name)
        if channel is None:
            channel = self._by_name[name] = Channel(name)
        assert not channel.living
        if channel.closed:
            self._closings.discard(channel.due, channel)
            self._closed -= 1
        else:
            channel.forget_up_to(self.floor, "expired")
        channel.id = self.last_id
        channel.ttl = ttl if ttl is not None else self._limits.channel_ttl_seconds
        self._names_by_id[channel.id] = name
        channel.expires = time + channel.ttl
        self._put(self._expiries, channel)
        self.note(channel)
        return channel

    def renew(self, channel: Channel, ttl: float | None, time: float) -> None:
        """Begin the channel's ttl anew, and change it where one is given."""
        if ttl is not None:
            channel.ttl = ttl
        channel.expires = time + channel.ttl
        self.note(channel)
        if channel.expires < channel.due:
            self._expiries.discard(channel.due, channel)
            self._put(self._expiries, channel)

    def close(self, channel: Channel, sequence: int, time: float) -> None:
        """End a channel's life and remember it; its messages are gone already."""
        del self._names_by_id[channel.id]
        self._expiries.discard(channel.due, channel)
        channel.id = 0
        channel.closed = channel.latest = sequence
        channel.expires = time + self._limits.retention_seconds
        self._put(self._closings, channel)
        self.note(channel)
        self._closed += 1
        if self._closed > self._limits.channels_limit:
            self.forget_due(math.inf)

    def next_due(self, time: float) -> Channel | None:
        """The living channel that is to be looked at next, if it is time: one step, for the caller to count.

        One that was renewed meanwhile is put off. One that is still `due` has expired; the caller closes it.
        """
        channel = self._expiries.pop_due(time)
        if channel is not None:
            self._put(self._expiries, channel)
            self.note(channel)
        return channel

    def forget_due(self, time: float) -> bool:
        """Forget the closed channel that was closed first, if it is time; whether there was one."""
        channel = self._closings.pop_due(time)
        if channel is None:
            return False
        self._closed -= 1
        self.floor = max(self.floor, channel.latest)
        channel.forget_all(self.floor)
        self.note(channel)
        if channel.subscribers == 0:
            self.leave(channel)
        return True

    def remembered(self) -> Iterator[Channel]:
        """The living channels and the closed ones, each in the order in which they are due."""
        yield from self._expiries
        yield from self._closings

    def restore(self, channels: Iterable[Channel]) -> None:
        """Put in the channels that `remembered` gave, in the same order."""
        for channel in channels:
            self._by_name[channel.name] = channel
            if channel.living:
                self._names_by_id[channel.id] = channel.name
                self._expiries.add(channel.due, channel)
            else:
                self._closings.add(channel.due, channel)
                self._closed += 1
        self._names_by_id = dict(sorted(self._names_by_id.items()))

    def _put(self, tree: TimeTree[Channel], channel: Channel) -> None:
        channel.due = math.ceil(channel.expires)
        tree.add(channel.due, channel)

    def check(self) -> None:
        """Assert the invariants of all channels."""
        assert {c.id: c.name for c in self} == self._names_by_id
        assert list(self._names_by_id) == sorted(self._names_by_id)
        expiries, closings = set(self._expiries), set(self._closings)
        assert len(closings) == len(self._closings) == self._closed <= self._limits.channels_limit
        for name, channel in self._by_name.items():
            channel.check()
            assert channel.name == name
            assert channel.living == (channel in expiries), name
            assert (channel.closed > 0 and not channel.living) == (channel in closings), name
            assert channel.living or channel.closed or channel.subscribers, name
