"""Going through a whole state a little at a time, so that a node can do other work in between."""

from __future__ import annotations

from collections.abc import Iterator

from pushup.core.snapshot import ChannelSnapshot, emptied
from pushup.core.state import ReplicatedState


def open_channels(state: ReplicatedState) -> Iterator[ChannelSnapshot]:
    """The channels that are open now, as those of a new epoch.

    The state may change meanwhile; a channel that is closed before its turn is left out.
    """
    last_id = state.channels.last_id
    for name in state.channels.open_names():
        channel = state.channels.find(name)
        if channel is not None and channel.id <= last_id:
            yield emptied(ChannelSnapshot.of(channel))


def take_apart(state: ReplicatedState) -> Iterator[None]:
    """Remove everything from a state that is not used any more, one thing for each item.

    To free a million objects at once takes long.
    """
    yield from state.channels.take_apart()
    yield from state.cache.take_apart()
    yield from state.keys.take_apart()
