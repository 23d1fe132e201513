"""Handing a state to another process in pieces, while it goes on changing.

What was read may change before the end. So it is read in rounds: everything, then what has changed during the first
round, then what has changed during the second, and so on, until so little is left that it is read in one go. That last
piece is a `Changes`: it turns what came before into the state as of now. Each round is shorter than the one before, as
long as reading is faster than changing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count

from pushup.core.change_log import Name
from pushup.core.snapshot import Changes, Snapshot
from pushup.core.state import ReplicatedState
from pushup.core.tables import Stored, Tables

PIECE = 256
"""Rows in one piece: about 1 ms to read and encode them."""

PIECE_BYTES = 512 * 1024
"""A piece that has reached this size is complete."""

LAST = 512
"""The last piece has at most so many changed rows."""

ROUNDS = 20
"""After so many rounds the next piece is the last, whatever its size. So it is after a round that was no shorter than
the one before: changes come faster than they can be read."""

Piece = tuple[Stored, ...]
"""Rows as they were at some moment."""


class Outgoing:
    """The pieces of a state. It must record changes from before this is made until the last piece was read."""

    def __init__(self, state: ReplicatedState) -> None:
        self._state = state
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
            yield from _pieces(self._state.rows(names))
            names, before = self._state.changed_names(self.since), length
            length = _length(names)
            if number == ROUNDS or length <= LAST or length >= before:
                return
            self.since = self._state.cursor.sequence


def _length(names: dict[str, list[Name]]) -> int:
    return sum(map(len, names.values()))


def _pieces(rows: Iterable[Stored]) -> Iterator[Piece]:
    piece: list[Stored] = []
    size = 0
    for row in rows:
        piece.append(row)
        size += len(memoryview(row.body))
        if len(piece) == PIECE or size >= PIECE_BYTES:
            yield tuple(piece)
            piece, size = [], 0
    if piece:
        yield tuple(piece)


class Incoming:
    """A state as its pieces arrive."""

    def __init__(self) -> None:
        self._tables = Tables()

    def add(self, piece: Piece) -> None:
        """Take the next piece. Raises: msgspec.DecodeError."""
        for row in piece:
            self._tables.take(row)

    def snapshot(self, last: Changes) -> Snapshot:
        """The state as of the last piece."""
        self.add(last.rows)
        return Snapshot(last.head, self._tables)
