"""Going through a whole state a little at a time, so that a node can do other work in between."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge

from pushup.core.keys import Remembered
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


def all_keys(*states: ReplicatedState) -> Iterator[tuple[str, Remembered]]:
    """The idempotency keys of these states by sequence, as a new epoch begins with them.

    The states may differ from some entry on, so several keys may have one sequence. A key that is in several states is
    what the last of them says. The states may change meanwhile; keys of later entries are left out.
    """
    return merge(*[_keys(state, states[n:]) for n, state in enumerate(states, 1)], key=_sequence_of)


def _keys(state: ReplicatedState, others: tuple[ReplicatedState, ...]) -> Iterator[tuple[str, Remembered]]:
    last = state.cursor.sequence
    for name in state.keys.names():
        remembered = state.keys.get(name)
        if remembered is not None and remembered.sequence <= last and not any(other.keys.get(name) for other in others):
            yield name, remembered


def _sequence_of(item: tuple[str, Remembered]) -> int:
    return item[1].sequence


def take_apart(state: ReplicatedState) -> Iterator[None]:
    """Remove everything from a state that is not used any more, one thing for each item.

    To free a million objects at once takes long.
    """
    yield from state.channels.take_apart()
    yield from state.cache.take_apart()
    yield from state.keys.take_apart()
