"""Entries that change who follows a channel (`members`), and the messages that tell it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Raw

from pushup.core.attendance import Away, Gone, Here, Key, Leave
from pushup.core.channels import is_id
from pushup.core.commands import Entry
from pushup.core.members import Delta
from pushup.core.state_rows import StateRows

Tell = Callable[[str, Raw, int], None]
"""Publishes these data on the channel, in this place."""


def here(state: StateRows, command: Here, entry: Entry, tell: Tell) -> None:
    """Those who follow become members, if their channels exist or can be opened; members stay in any case."""
    state.touched.answered = command
    given = {member.key: member for member in command.members}
    for sequence, (channel, keys) in enumerate(_by_channel(given), entry.sequence):
        can_be_told = _can_be_told(state, channel)
        delta, before = Delta(0), state.members.count(channel)
        for key in sorted(keys):  # as a checkpoint has those who join together
            if can_be_told or state.members.member(key) is not None:
                state.members.here(command.node, given[key], sequence, entry.time, delta)
        _changed(state, channel, before, delta, sequence, entry, tell)


def leave(state: StateRows, command: Leave, entry: Entry, tell: Tell) -> None:
    """Those whose time has come leave. A closed channel is opened to tell it: a page may have its members from then."""
    for sequence, (channel, keys) in enumerate(_by_channel(command.members), entry.sequence):
        delta, before = Delta(0), state.members.count(channel)
        for key in keys:
            state.members.leave(key, entry.time, delta)
        _changed(state, channel, before, delta, sequence, entry, tell)


def ask(state: StateRows, command: Away | Gone, time: float) -> None:
    """Those who are said to be away may leave later."""
    members, leaves_at = state.members, time + command.seconds
    if isinstance(command, Away):
        is_closed = command.is_closed
        found = members.away(command.node, command.members, leaves_at, is_closed=is_closed)
    else:
        is_closed, found = False, members.gone(command.node, leaves_at)
    state.touched.asked += [(member.key, is_closed) for member in found]


def _by_channel(keys: Iterable[Key]) -> Iterable[tuple[str, list[Key]]]:
    """Each channel in the order of its place in the entry."""
    found: dict[str, list[Key]] = {}
    for key in keys:
        found.setdefault(key[0], []).append(key)
    return found.items()


def _can_be_told(state: StateRows, channel: str) -> bool:
    if state.channels.find(channel) is not None:
        return True
    return not (state.limits.strict_channels or is_id(channel)) and state.channels.room_for(1) is None


def _changed(
    state: StateRows, channel: str, before: int, delta: Delta, sequence: int, entry: Entry, tell: Tell
) -> None:
    """Tell the channel, and have the application told of its first member, or that the last one has left."""
    if _can_be_told(state, channel) and (data := state.members.message(channel, before, delta)) is not None:
        tell(channel, data, sequence)
    is_occupied = state.members.count(channel) > 0
    if is_occupied != (before > 0) and state.rules.retention(channel).occupancy_webhooks:
        id_ = f"occupancy-{entry.epoch}-{sequence}"
        state.webhooks.occupied(id_, sequence, entry.time, channel, is_occupied=is_occupied)
