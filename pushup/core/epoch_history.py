"""The names that one order had before: cursors of them are valid up to where the next name began."""

from __future__ import annotations

from msgspec import Struct

from pushup.core.cursor import Cursor

REMEMBERED = 64
"""Names that are remembered; a cursor of an older one is lost. There is a new one with each restart of the log."""


class PastEpoch(Struct, frozen=True, forbid_unknown_fields=True):
    """A former name of the order, and the last sequence under it."""

    epoch: str
    sequence: int


class PastEpochs:
    """Former names of one order, oldest first; a value."""

    __slots__ = ("_by_name", "all", "sequence")

    def __init__(self, past: tuple[PastEpoch, ...] = ()) -> None:
        self.all = past[-REMEMBERED:]
        self.sequence = past[-1].sequence if past else 0
        """The last sequence under a former name; 0: none is remembered."""
        self._by_name = {p.epoch: p.sequence for p in self.all}

    def and_then(self, epoch: str, sequence: int) -> PastEpochs:
        """These, and one that was good up to this sequence."""
        return PastEpochs((*self.all, PastEpoch(epoch, sequence)))

    def good_up_to(self, epoch: str) -> int:
        """Up to which sequence cursors of this former epoch are valid; -1 if it is not remembered."""
        return self._by_name.get(epoch, -1)

    def at(self, sequence: int, now: str) -> str:
        """The epoch in which this sequence was published; `now`: the present one. O(1) if that is the one.

        If its name is no longer remembered, that of the oldest one.
        """
        if sequence > self.sequence:
            return now
        return next(p.epoch for p in self.all if sequence <= p.sequence)

    def translate(self, cursor: Cursor, now: str) -> Cursor:
        """The cursor under the order's present name, if it is one of this order; else as it is."""
        if cursor.sequence > self.good_up_to(cursor.epoch):
            return cursor
        return Cursor(now, cursor.sequence)


NO_PAST = PastEpochs()
