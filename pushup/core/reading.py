"""Reading: the answer to a poll. Made from the replicated state alone, so that equal polls get equal answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import merge
from operator import attrgetter

from msgspec.structs import asdict

from pushup.core.answer import Answer, Gap, Received
from pushup.core.channel import Channel, GapReason, Message
from pushup.core.cursor import NO_PAST, Cursor, PastEpochs, Start
from pushup.core.poll import Selection

RECEIVED_OVERHEAD_BYTES = 320
"""What a message takes in an answer besides its data, for each of its names: a name has at most 255 bytes."""


def read(
    channels: Sequence[Channel],
    selection: Selection,
    cursor: Cursor | Start,
    last: Cursor,
    limit_bytes: int,
    *,
    past: PastEpochs = NO_PAST,
    missed: Sequence[int] | None = None,
) -> Answer:
    """The answer for a client at `cursor` when the node has applied all entries up to `last`.

    This decides whether a client gets a gap. `missed` is for a poll that was held: for each
    channel, the highest sequence that its client can have missed. Without it, anything that the channel may have
    dropped after the cursor is a gap.

    What was erased is a gap up to the last of it, although messages before that may still be kept, and are delivered.

    A gap is reported to every cursor before its end, so again on each page until a chain has passed it. Reporting it on
    the last such page only would lose it: that page may come from a node that has not yet dropped what earlier pages
    passed.

    A client without a cursor gets everything cached, and misses nothing. `past`: the names that the epoch had before; a
    cursor of one of them is the same place under the present name, as long as it is not beyond where that began. One
    that is beyond it has seen everything up to there: its client gets what came after that, and a gap for each channel.
    Any other cursor of another epoch says nothing about this one: its client gets everything cached, and the gaps.
    """
    gaps: tuple[Gap, ...] = ()
    closed: tuple[str, ...] = ()
    if isinstance(cursor, Start):
        after = last.sequence if cursor is Start.NOW else 0
    elif (cursor := past.translate(cursor, last.epoch)).epoch != last.epoch:
        after = past.good_up_to(cursor.epoch)
        ends = [max(c.dropped_sequence, c.erased_sequence, after, 0) for c in channels]
        gaps = tuple([_gap(c, "lost", last, end) for c, end in zip(channels, ends, strict=True)])
    else:
        after = cursor.sequence
        for n, channel in enumerate(channels):
            end, reason = channel.dropped_sequence if missed is None else missed[n], channel.reason
            if channel.erased_sequence > end:
                end, reason = channel.erased_sequence, "deleted"
            if end > after:
                gaps = (*gaps, _gap(channel, reason, last, end))
            if channel.closed_sequence > after:
                closed = (*closed, channel.name)
    messages, upto = _take(channels, selection, after, last.epoch, past, limit_bytes)
    sequence = max(after, last.sequence) if upto is None else upto
    return Answer(f"{last.epoch}-{sequence}", messages, upto is not None, gaps, closed)


def _gap(channel: Channel, reason: GapReason, last: Cursor, end: int) -> Gap:
    """The gap of a channel that keeps everything after the sequence `end`."""
    return Gap(channel.name, reason, f"{last.epoch}-{end}")


def _take(
    channels: Sequence[Channel], selection: Selection, after: int, now: str, past: PastEpochs, limit_bytes: int
) -> tuple[tuple[Received, ...], int | None]:
    """The first messages after `after`; and the last one's sequence if there are more."""
    taken: list[Received] = []
    size = upto = 0
    for message in channels[0].after(after, selection) if len(channels) == 1 else _merged(channels, selection, after):
        names = tuple([c.name for c in channels if c.name in message.channels])
        if message.holders < len(message.channels):  # some have dropped it: their gaps do not end before it
            names = tuple([c.name for c in channels if c.name in names and c.keeps(message.sequence)])
        size += len(memoryview(message.data)) + RECEIVED_OVERHEAD_BYTES * len(names)
        if taken and (len(taken) >= selection.limit or size > limit_bytes):
            return tuple(taken), upto
        upto = message.sequence
        epoch = now if upto > past.sequence else past.at(upto, now)
        if message.attributes is None:
            taken.append(Received(f"{epoch}-{upto}", message.time, names, message.data))
        else:
            attributes = asdict(message.attributes)
            taken.append(Received(f"{epoch}-{upto}", message.time, names, message.data, **attributes))
    return tuple(taken), None


def _merged(channels: Sequence[Channel], selection: Selection, after: int) -> Iterator[Message]:
    """The messages of all the channels, sorted by time, each once (PushUp §3.3, batch subscription)."""
    last = 0
    for message in merge(*[c.after(after, selection) for c in channels], key=attrgetter("sequence")):
        if message.sequence > last:
            last = message.sequence
            yield message
