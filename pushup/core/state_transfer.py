"""Moving a whole state in steps, so that a node can do other work in between.

It is handed to another process in pieces, while it goes on changing; restored from a snapshot; turned into what a new
epoch begins with; and taken apart when it is not used any more.

What was read may change before the end. So it is read in rounds: everything, then what has changed during the first
round, then what has changed during the second, and so on, until so little is left that it is read in one go. That last
piece is a `Changes`: it turns what came before into the state as of now. Each round is shorter than the one before, as
long as reading is faster than changing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import count, islice

from msgspec.structs import replace

from pushup.core.change_log import Name
from pushup.core.cursor import PastEpochs
from pushup.core.rows import BUCKET
from pushup.core.snapshot import CHANNELS, MESSAGES, Changes, Head, Snapshot, Stored, stored
from pushup.core.state import ReplicatedState

PIECE = 256
"""Rows in one piece: about 1 ms to read and encode them."""

PIECE_BYTES = 512 * 1024
"""A piece that has reached this size is complete."""

LAST = 512
"""The last piece has at most so many changed rows."""

ROUNDS = 20
"""After so many rounds the next piece is the last, whatever its size. So it is after a round that was no shorter than
the one before: changes come faster than they can be read."""

FREED_AT_ONCE = 2048
"""Channels, messages and other rows of a state that was replaced which are freed in one go: about 2 ms."""

Piece = tuple[Stored, ...]
"""Rows as they were at some moment."""


class Outgoing:
    """The pieces of a state. It must record changes from before this is made until the last piece was read."""

    def __init__(self, state: ReplicatedState, *, piece: int = PIECE, last: int = LAST, rounds: int = ROUNDS) -> None:
        """`piece`: rows in one piece; `last`: changed rows in the last one, if it comes before so many rounds."""
        self._state = state
        self._piece = piece
        self._last = last
        self._rounds = rounds
        self.since = state.cursor.sequence
        """The pieces so far contain all changes up to this sequence; those after it have to stay recorded."""
        self._pieces = self._read()

    def next(self) -> Piece | Changes:
        """The next piece; after a `Changes` there is none."""
        piece = next(self._pieces, None)
        return self._state.changes(self.since) if piece is None else piece

    def _read(self) -> Iterator[Piece]:
        names = self._state.names()
        length = _length(names)
        for number in count(1):
            yield from pieces(self._state.rows(names), self._piece)
            names, before = self._state.change_log.names(self.since), length
            length = _length(names)
            if number == self._rounds or length <= self._last or length >= before:
                return
            self.since = self._state.cursor.sequence


def _length(names: dict[str, list[Name]]) -> int:
    return sum(map(len, names.values()))


def pieces(rows: Iterable[Stored], most: int) -> Iterator[Piece]:
    """These rows in pieces of at most so many, and of about `PIECE_BYTES` at most."""
    piece: list[Stored] = []
    size = 0
    for row in rows:
        piece.append(row)
        size += len(memoryview(row.body))
        if len(piece) == most or size >= PIECE_BYTES:
            yield tuple(piece)
            piece, size = [], 0
    if piece:
        yield tuple(piece)


def restoring(snapshot: Snapshot) -> tuple[ReplicatedState, Iterator[int]]:
    """The state that the snapshot was taken of, which does not record changes yet, and the work that completes it.

    An item of the work is what was done for it: one for each row, a message counts once for each channel.
    """
    head = snapshot.head
    state = ReplicatedState(head.limits, epoch=head.epoch, sequence=head.sequence, time=head.time)
    state.rules.version = head.version
    state.past_epochs = PastEpochs(head.past_epochs)
    state.erased_sequence = head.erased_sequence
    state.channels.last_id, state.channels.floor = head.last_id, head.floor
    return state, _restore(state, snapshot)


def _restore(state: ReplicatedState, snapshot: Snapshot) -> Iterator[int]:
    for some in snapshot.tables[CHANNELS].sorting():
        yield BUCKET // 4
        for c in some:
            state.channels.restore(c.restore())
            yield 1
    find, cache = state.channels.find, state.cache
    for some in snapshot.tables[MESSAGES].sorting():
        yield BUCKET // 4
        for m in some:
            holders = [c for c in map(find, m.channels) if c is not None and c.keeps(m.sequence)]
            if holders:  # else all its channels have dropped it
                cache.restore(m, holders)
            yield len(m.channels)
    for name, table in state.bounded.items():
        for some in snapshot.tables[name].sorting():
            yield BUCKET // 4
            for row in some:
                table.restore(row)
                yield 1


def restore(snapshot: Snapshot) -> ReplicatedState:
    """The state that the snapshot was taken of, in one go. O(all)."""
    state, work = restoring(snapshot)
    for _ in work:
        pass
    return state


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
        erased_sequence=0,
    )


def rows_of_new_epoch(*states: ReplicatedState) -> Iterator[Stored]:
    """The rows of the same: the open channels of the last state, no messages, and the bounded tables of all states.

    Of a row that is in several states, the one with the highest rank stays, and of equal ones that of the last state.
    The states may change meanwhile: channels that close before their turn are left out, and so are later rows.
    """
    channels, last_id = states[-1].channels, states[-1].channels.last_id
    known = [(state.cursor.sequence, {name: table.rows() for name, table in state.bounded.items()}) for state in states]
    for name in channels.names():
        channel = channels.row(name)
        if channel is not None and 0 < channel.id <= last_id:
            emptied = replace(channel, dropped_sequence=0, reason="expired", closed_sequence=0, erased_sequence=0)
            yield stored(CHANNELS, name, emptied)
    for number, state in enumerate(states):
        for table in state.bounded.values():
            in_all = [(end, tables[table.name]) for end, tables in known]
            own = in_all[number][1]
            for name in list(own):
                found = [(n, r) for n, (end, rows) in enumerate(in_all) if (r := rows.get(name)) and r.sequence <= end]
                ranks = [(table.rank(row), n) for n, row in found]
                if ranks and max(ranks)[1] == number:
                    yield stored(table.name, name, own[name])


def free(state: ReplicatedState, soon: Callable[[Callable[[], None]], None]) -> None:
    """Take apart a state that is not used any more, in slices. `soon` calls its argument later."""
    parts = take_apart(state)

    def free_some() -> None:
        if sum(1 for _ in islice(parts, FREED_AT_ONCE)) == FREED_AT_ONCE:
            soon(free_some)

    soon(free_some)


def take_apart(state: ReplicatedState) -> Iterator[None]:
    """Remove everything from a state that is not used any more, one thing for each item.

    To free a million objects at once takes long.
    """
    yield from state.channels.take_apart()
    yield from state.cache.take_apart()
    for table in state.bounded.values():
        yield from table.take_apart()
