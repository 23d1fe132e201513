"""Going through a whole state a little at a time, so that a node can do other work in between."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from pushup.core.snapshot import Head
from pushup.core.state import ReplicatedState
from pushup.core.tables import CHANNELS, Stored, stored


def head_of_new_epoch(epoch: str, *states: ReplicatedState) -> Head:
    """What an epoch begins with that continues none of these states; its limits and version are those of the last.

    It begins at the highest sequence, so that the rows are older than what comes, as they are everywhere else.
    """
    return replace(
        states[-1].head,
        epoch=epoch,
        sequence=max(state.cursor.sequence for state in states),
        time=max(state.time for state in states),
        last_id=max(state.channels.last_id for state in states),
        floor=0,
        past_epochs=(),
    )


def rows_of_new_epoch(*states: ReplicatedState) -> Iterator[Stored]:
    """The rows of the same: the open channels of the last state, no messages, and the bounded tables of all states.

    A row that is in several states is what the last of them says. The states may change meanwhile: a channel that is
    closed before its turn, and rows of later entries, are left out.
    """
    channels, last_id = states[-1].channels, states[-1].channels.last_id
    ends = [(state, state.cursor.sequence) for state in states]
    for name in channels.names():
        channel = channels.row(name)
        if channel is not None and 0 < channel.id <= last_id:
            emptied = replace(channel, dropped_sequence=0, reason="expired", closed_sequence=0)
            yield stored(CHANNELS, name, emptied)
    for number, (state, end) in enumerate(ends, 1):
        for table in state.bounded.values():
            others = [other.bounded[table.name] for other in states[number:]]
            for name in table.names():
                row = table.row(name)
                if row is not None and row.sequence <= end and not any(other.row(name) for other in others):
                    yield stored(table.name, name, row)


def take_apart(state: ReplicatedState) -> Iterator[None]:
    """Remove everything from a state that is not used any more, one thing for each item.

    To free a million objects at once takes long.
    """
    yield from state.channels.take_apart()
    yield from state.cache.take_apart()
    for table in state.bounded.values():
        yield from table.take_apart()
