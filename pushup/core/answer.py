"""Answers: what a poll gets. Made from the cache alone, so that equal polls get the very same answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import merge
from operator import attrgetter

from msgspec import Raw, Struct

from pushup.core.channel import Channel, GapReason
from pushup.core.cursor import Cursor, Start
from pushup.core.message import Message
from pushup.core.poll import Selection

RECEIVED_OVERHEAD_BYTES = 320
"""What a message takes in an answer beside its data, for each name: a name has at most 255 bytes."""


class Received(Struct, frozen=True):
    """A message as one subscriber gets it; `channels`: of those it asked for, `time`: seconds since the epoch."""

    id: str
    time: float
    channels: tuple[str, ...]
    data: Raw


class Gap(Struct, frozen=True):
    """Messages of a channel after the client's cursor are not kept any more."""

    channel: str
    reason: GapReason


class Answer(Struct, frozen=True):
    """What a poll gets; its fields are the JSON of the HTTP interface (docs/http.md).

    `more`: there is more at once. `closed`: channels that were closed after the client's cursor.
    """

    cursor: str
    messages: tuple[Received, ...]
    more: bool
    gaps: tuple[Gap, ...]
    closed: tuple[str, ...]

    @property
    def tells_something(self) -> bool:
        """Whether there is anything in it but a new cursor."""
        return bool(self.messages or self.gaps or self.closed)


def read(
    channels: Sequence[Channel],
    selection: Selection,
    cursor: Cursor | Start,
    last: Cursor,
    limit_bytes: int,
    *,
    held: bool = False,
) -> Answer:
    """The answer for a client at `cursor` when the node has applied all entries up to `last`.

    `held`: it has waited on these channels since it was there, so that no gap need be assumed.

    A gap is told to every cursor before its end, so again on each page until a chain has passed it. Leaving it to the
    page that gets there would lose it: that may come from a node which has not dropped yet what earlier pages passed.

    A client without a cursor gets all that is cached, and to it nothing is missing. A cursor of another epoch says
    nothing about this one: its client gets all that is cached, and a gap for each channel.
    """
    gaps: tuple[Gap, ...] = ()
    closed: tuple[str, ...] = ()
    after = 0
    if isinstance(cursor, Start):
        after = last.sequence if cursor is Start.NOW else 0
    elif cursor.epoch != last.epoch:
        gaps = tuple(Gap(c.name, "lost") for c in channels)
    else:
        after = cursor.sequence
        for channel in channels:
            if (channel.missed if held else channel.dropped) > after:
                gaps = (*gaps, Gap(channel.name, channel.reason))
            if channel.closed > after:
                closed = (*closed, channel.name)
    messages, upto = _take(channels, selection, after, last.epoch, limit_bytes)
    sequence = max(after, last.sequence) if upto is None else upto
    return Answer(f"{last.epoch}-{sequence}", messages, upto is not None, gaps, closed)


def _take(
    channels: Sequence[Channel], selection: Selection, after: int, epoch: str, limit_bytes: int
) -> tuple[tuple[Received, ...], int | None]:
    """The first messages after `after`; and where they end, if there are more."""
    taken: list[Received] = []
    size = upto = 0
    for message in channels[0].after(after, selection) if len(channels) == 1 else _merged(channels, selection, after):
        names = tuple([c.name for c in channels if c.name in message.channels])
        size += len(memoryview(message.data)) + RECEIVED_OVERHEAD_BYTES * len(names)
        if taken and (len(taken) >= selection.limit or size > limit_bytes):
            return tuple(taken), upto
        upto = message.sequence
        taken.append(Received(f"{epoch}-{upto}", message.time, names, message.data))
    return tuple(taken), None


def _merged(channels: Sequence[Channel], selection: Selection, after: int) -> Iterator[Message]:
    """The messages of all the channels, sorted by time, each once (PushUp §3.3, batch subscription)."""
    last = 0
    for message in merge(*(c.after(after, selection) for c in channels), key=attrgetter("sequence")):
        if message.sequence > last:
            last = message.sequence
            yield message
