"""What became of a message: whether it is kept or why it was dropped, and what a reader at some cursor gets of it."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from pushup.core.channel import DropReason, GapReason
from pushup.core.cursor import Cursor, sequence_in
from pushup.core.poll import Selection
from pushup.core.reading import read
from pushup.core.state import ReplicatedState

Fate = Literal["kept", "dropped", "forgotten", "ahead", "lost"]
"""`forgotten`: it was dropped so long ago that this node does not know why; or it was no message. `ahead`: this node
has not applied its entry yet. `lost`: the order continued without it."""


class Drop(Struct, frozen=True, omit_defaults=True):
    """Why the last channel dropped it; `limit`: the setting that has driven it out. `time`: seconds since the epoch."""

    reason: DropReason
    time: float
    limit: str = ""


class ChannelView(Struct, frozen=True):
    """What a poll of this channel from the reader's cursor gets: the message (`delivers`); the `gap` that covers it."""

    channel: str
    delivers: bool
    gap: GapReason | None


class Reader(Struct, frozen=True):
    """A client's cursor. `has_passed`: it is at the message or after it."""

    cursor: str
    has_passed: bool
    channels: tuple[ChannelView, ...]


class Applied(Struct, frozen=True, omit_defaults=True):
    """Whether a node has applied the message's entry.

    Its report at the time `not_at` did not have it, and that at the time `by` had; None: not known. `cursor`: the last
    that it has reported, `seen_at` this time. `is_alive`: it still reports. Seconds since the epoch.
    """

    id: str
    name: str
    cursor: str
    seen_at: float
    is_alive: bool
    applied: bool
    not_at: float | None = None
    by: float | None = None


class Trace(Struct, frozen=True, omit_defaults=True):
    """All that one node knows of a message.

    `time`: when it was published; `bytes`: of its data; `key`: the name of the publisher's key. `kept_by`: those of its
    channels that keep it. `dropped_before`: when what is forgotten was dropped at the latest. `acknowledged`: whether
    this node answered the publisher; None: not known. `traceparent`: that of its publication. Seconds since the epoch.
    """

    id: str
    fate: Fate
    channels: tuple[str, ...] = ()
    kept_by: tuple[str, ...] = ()
    time: float | None = None
    bytes: int | None = None
    key: str = ""
    dropped: Drop | None = None
    dropped_before: float | None = None
    node: str = ""
    acknowledged: bool | None = None
    traceparent: str = ""
    nodes: tuple[Applied, ...] = ()
    reader: Reader | None = None


def trace(state: ReplicatedState, message: Cursor, reader: Cursor | None = None) -> Trace | None:
    """What this state knows of the message with this id, and of a client at the cursor `reader`.

    None if there is no such message: its id is of another order, or its entry is no publication. Ephemeral messages
    that have gone leave no trace.
    """
    last, past = state.cursor, state.past_epochs
    place = past.translate(message, last.epoch)
    if message.sequence == 0:
        return None
    if place.epoch != last.epoch:
        return Trace(str(message), "lost") if past.good_up_to(message.epoch) >= 0 else None
    sequence, drops = place.sequence, state.cache.drops
    if sequence > last.sequence:
        return Trace(str(message), "ahead", reader=_reader(state, reader, sequence, ()))
    id_ = f"{past.at(sequence, last.epoch)}-{sequence}"
    if (kept := state.cache.get(sequence)) is not None:
        channels = [state.channels.find(name) for name in kept.channels]
        kept_by = tuple([c.name for c in channels if c is not None and c.keeps(sequence)])
        size, owner = len(memoryview(kept.data)), kept.shelf.owner
        view = _reader(state, reader, sequence, kept.channels)
        return Trace(
            id_, "kept", kept.channels, kept_by, kept.time, size, owner, reader=view, traceparent=kept.traceparent
        )
    if (gone := drops.find(sequence)) is not None:
        drop = Drop(gone.reason, gone.dropped_at, gone.limit)
        view = _reader(state, reader, sequence, gone.channels)
        return Trace(
            id_, "dropped", gone.channels, (), gone.time, gone.bytes, gone.owner, drop, reader=view,
            traceparent=gone.traceparent,
        )  # fmt: skip
    if sequence > drops.forgotten_sequence:
        return None
    before = drops.forgotten_at
    return Trace(id_, "forgotten", dropped_before=before, reader=_reader(state, reader, sequence, ()))


def _reader(state: ReplicatedState, cursor: Cursor | None, sequence: int, channels: tuple[str, ...]) -> Reader | None:
    """What a client at this cursor gets of the message with this sequence."""
    if cursor is None:
        return None
    past, last = state.past_epochs, state.cursor
    here = past.translate(cursor, last.epoch)
    after = here.sequence if here.epoch == last.epoch else past.good_up_to(cursor.epoch)
    views = []
    for name in channels:
        channel = state.channels.remembered(name) or state.channels.absent(name)
        answer = read((channel,), Selection((name,), limit=1), cursor, last, 0, past=past)
        gap = next((gap.reason for gap in answer.gaps if sequence_in(gap.until) >= sequence), None)
        is_kept = channel.keeps(sequence) and state.cache.get(sequence) is not None
        views.append(ChannelView(name, is_kept and after < sequence, gap))
    return Reader(str(cursor), after >= sequence, tuple(views))
