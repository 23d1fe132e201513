"""What several logs promise, checked from outside: it knows only what publishers and subscribers were told.

Cursors are opaque here. Of an id it knows that it is `<epoch>-<sequence>`, and that an epoch belongs to one log.

| promise | here |
|---|---|
| an acknowledged message reaches every subscriber of its channels, or a gap covers it | `_check_delivered` |
| no message comes twice | `_check_message` |
| a gap is true: `lost` after a loss on that channel, `evicted` if enough came later | `_check_gap` |
| the order of each log, and of each channel for publications one after the other | `_check_message`, `_check_order` |
| the messages of one publication reach nobody in part | `_check_whole` |
| a refused publication changes nothing | `_check_message` |
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise


class BrokenPromise(Exception):
    """The promise is before the first colon."""


@dataclass
class Publication:
    name: str
    messages: dict[str, tuple[str, ...]]
    """The channels of each data."""
    began: int
    ids: tuple[str, ...] = ()
    acknowledged: int | None = None
    refused: bool = False


@dataclass
class Subscriber:
    name: str
    channels: tuple[str, ...]
    began: int
    is_earliest: bool
    answered: int | None = None
    """When it had its first answer: what is published from then on has to come."""
    received: list[tuple[str, str]] = field(default_factory=list)
    """The id and the data of each message."""
    data: set[str] = field(default_factory=set)
    last: dict[str, int] = field(default_factory=dict)
    """The last sequence of each epoch."""
    gaps: list[tuple[int, str, str]] = field(default_factory=list)
    """When, on which channel, and why."""


class Checker:
    def __init__(self, keep: int, *, allows_late: bool = False) -> None:
        """`allows_late`: a subscriber may be told of a loss from before it began."""
        self.now = 0
        self.publications: dict[str, Publication] = {}
        self.subscribers: dict[str, Subscriber] = {}
        self._keep = keep
        self._allows_late = allows_late
        self._of: dict[str, Publication] = {}
        self._data_of: dict[str, str] = {}
        self._losses: list[tuple[int, frozenset[str]]] = []

    # What happens.

    def publishes(self, name: str, messages: dict[str, tuple[str, ...]]) -> None:
        self.now += 1
        publication = self.publications[name] = Publication(name, messages, self.now)
        self._of |= dict.fromkeys(messages, publication)

    def acknowledged(self, name: str, ids: tuple[str, ...]) -> None:
        self.now += 1
        publication = self.publications[name]
        for id_, data in zip(ids, publication.messages, strict=True):
            self._note(id_, data)
        epochs = {id_.rpartition("-")[0] for id_ in ids}
        if len(epochs) > 1 or any(_sequence(b) != _sequence(a) + 1 for a, b in pairwise(ids)):
            raise BrokenPromise(f"whole: the ids of {name} are not next to each other: {ids}")
        publication.ids, publication.acknowledged = ids, self.now

    def refused(self, name: str) -> None:
        self.now += 1
        self.publications[name].refused = True

    def loses(self, channels: frozenset[str]) -> None:
        """What was on these channels may be lost."""
        self.now += 1
        self._losses.append((self.now, channels))

    def subscribes(self, name: str, channels: tuple[str, ...], *, is_earliest: bool) -> None:
        self.now += 1
        self.subscribers[name] = Subscriber(name, channels, self.now, is_earliest)

    def answered(
        self, name: str, messages: tuple[tuple[str, str, tuple[str, ...]], ...], gaps: tuple[tuple[str, str], ...]
    ) -> None:
        self.now += 1
        subscriber = self.subscribers[name]
        for channel, reason in gaps:
            self._check_gap(subscriber, channel, reason)
            subscriber.gaps.append((self.now, channel, reason))
        lost = {channel for channel, reason in gaps if reason == "lost"}
        for id_, data, channels in messages:
            self._check_message(subscriber, id_, data, channels, lost)
        subscriber.answered = subscriber.answered or self.now

    def end(self) -> None:
        """Everybody has read to the end."""
        for subscriber in self.subscribers.values():
            for publication in self.publications.values():
                for data, channels in publication.messages.items():
                    self._check_delivered(subscriber, publication, data, channels)
                self._check_whole(subscriber, publication)
            self._check_order(subscriber)

    # What was promised.

    def _note(self, id_: str, data: str) -> None:
        if self._data_of.setdefault(id_, data) != data:
            raise BrokenPromise(f"one order: {id_} is {self._data_of[id_]} and {data}")

    def _lost(self, channels: tuple[str, ...], since: int = 0) -> bool:
        return any(at > since and lost.intersection(channels) for at, lost in self._losses)

    def _check_message(
        self, subscriber: Subscriber, id_: str, data: str, channels: tuple[str, ...], lost: set[str]
    ) -> None:
        self._note(id_, data)
        publication = self._of.get(data)
        if publication is None:
            raise BrokenPromise(f"nothing else: {subscriber.name} received {data}, which nobody published")
        wanted = set(publication.messages[data]).intersection(subscriber.channels)
        if not channels or not wanted.issuperset(channels):
            raise BrokenPromise(f"nothing else: {subscriber.name} received {data} on {channels}")
        if publication.refused and not self._lost(publication.messages[data]):
            raise BrokenPromise(f"refused: {subscriber.name} received {data}, whose publication was refused")
        was_told = lost.union(c for _, c, reason in subscriber.gaps if reason == "lost")
        if data in subscriber.data and not was_told.intersection(wanted):
            raise BrokenPromise(f"once: {subscriber.name} received {data} twice")
        epoch = id_.rpartition("-")[0]
        if _sequence(id_) <= subscriber.last.get(epoch, -1) and not was_told.intersection(wanted):
            raise BrokenPromise(f"one order: {subscriber.name} received {id_} after {subscriber.last[epoch]}")
        subscriber.last[epoch] = _sequence(id_)
        subscriber.received.append((id_, data))
        subscriber.data.add(data)

    def _check_gap(self, subscriber: Subscriber, channel: str, reason: str) -> None:
        if channel not in subscriber.channels:
            raise BrokenPromise(f"a gap is true: {subscriber.name} was told of one on {channel}")
        if reason == "lost":
            if not self._lost((channel,), 0 if self._allows_late else subscriber.began):
                raise BrokenPromise(f"a gap is true: {subscriber.name} was told of a loss on {channel}; there was none")
        else:
            on_it = [data for p in self.publications.values() for data, c in p.messages.items() if channel in c]
            if all(data in subscriber.data for data in on_it) or len(on_it) <= self._keep:
                raise BrokenPromise(f"a gap is true: {subscriber.name} was told of one on {channel} ({reason})")

    def _check_delivered(
        self, subscriber: Subscriber, publication: Publication, data: str, channels: tuple[str, ...]
    ) -> None:
        wanted = set(channels).intersection(subscriber.channels)
        if not wanted or data in subscriber.data or publication.acknowledged is None:
            return
        if publication.began < (subscriber.answered or 0):
            if not subscriber.is_earliest or publication.acknowledged > subscriber.began:
                return  # it may have been before its time
            if self._lost(channels) or all(self._later(publication, c) >= self._keep for c in wanted):
                return
        for at, channel, reason in subscriber.gaps:
            if channel in wanted and at > publication.began:
                is_lost = reason == "lost" and self._lost((channel,))
                if is_lost or (reason == "evicted" and self._later(publication, channel, at) >= self._keep):
                    return
        raise BrokenPromise(
            f"delivered or covered by a gap: {subscriber.name} neither received {data} ({publication.ids}) on "
            f"{sorted(wanted)} nor was told of a gap"
        )

    def _later(self, publication: Publication, channel: str, until: int | None = None) -> int:
        """How many messages may have come to this channel after this publication."""
        return sum(
            channel in channels
            for p in self.publications.values()
            if p is not publication and (p.acknowledged or self.now) > publication.began
            if p.began < (until or self.now)
            for channels in p.messages.values()
        ) + sum(channel in channels for channels in publication.messages.values())

    def _check_whole(self, subscriber: Subscriber, publication: Publication) -> None:
        """Whoever received one message of a publication received the others on its channels, or was told of a gap."""
        mine = {d: c for d, c in publication.messages.items() if set(c).intersection(subscriber.channels)}
        got = mine.keys() & subscriber.data
        if not got or publication.began < (subscriber.answered or 0):
            return
        told = {channel for at, channel, _ in subscriber.gaps if at > publication.began}
        for data, channels in mine.items():
            if data not in got and not told.intersection(channels):
                raise BrokenPromise(f"whole: {subscriber.name} received {sorted(got)}, but not {data}")
        ids = [id_ for id_, data in subscriber.received if data in got]
        between = [id_ for id_, data in subscriber.received if data not in mine and _is_between(id_, ids)]
        if between:
            raise BrokenPromise(f"whole: {between} are between {ids}")

    def _check_order(self, subscriber: Subscriber) -> None:
        """What was published after the acknowledgement of another comes after it on each channel."""
        latest: dict[str, tuple[int, str]] = {}
        for _, data in subscriber.received:
            publication = self._of[data]
            for channel in publication.messages[data]:
                if channel not in subscriber.channels or self._lost((channel,)):
                    continue
                began, other = latest.get(channel, (0, ""))
                if publication.acknowledged is not None and publication.acknowledged < began:
                    raise BrokenPromise(f"one order: {subscriber.name} received {other} before {data} on {channel}")
                latest[channel] = max(latest.get(channel, (0, "")), (publication.began, data))


def _sequence(id_: str) -> int:
    return int(id_.rpartition("-")[2])


def _is_between(id_: str, ids: list[str]) -> bool:
    epoch = id_.rpartition("-")[0]
    sequences = [_sequence(other) for other in ids if other.rpartition("-")[0] == epoch]
    return bool(sequences) and min(sequences) < _sequence(id_) < max(sequences)
