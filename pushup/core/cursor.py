"""The cursor: how far a client has followed the order of all entries (docs/internals/architecture.md); and epochs.

Wire format: `<epoch>-<sequence>`, e.g. `k3f9-41`. Its size does not depend on the channels, and it is valid on every
node, since every node applies the same entries. Clients treat it as opaque.

An epoch is a name of the order. Names are ordered, so that a log that was put back to an earlier epoch is recognized. A
cluster is named by its first epoch, and keeps that name through all later ones. Cursors of the names that one order had
before are valid up to where the next name began.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from functools import lru_cache

from msgspec import Struct

from pushup.core.errors import BadRequest

_CURSOR = re.compile(r"([0-9a-z]{1,32})-(0|[1-9][0-9]{0,17})", re.ASCII).fullmatch

REMEMBERED = 64
"""Former names of an order that are remembered: the first, which says when it began, and the last ones. A cursor of
another one is lost. There is a new one with each restart of the log."""


class Cursor(Struct, frozen=True, forbid_unknown_fields=True):
    """The last entry a client has seen."""

    epoch: str
    sequence: int

    def __str__(self) -> str:
        return f"{self.epoch}-{self.sequence}"


class Start(Enum):
    """Where a client without a cursor begins."""

    EARLIEST = "earliest"
    """With everything cached (PushUp §3.2: the start time defaults to 0)."""
    NOW = "now"
    """With what is published from now on."""


def cursor_after(message_id: str, cursor: str) -> str:
    """The cursor right after a message of the answer that has this cursor.

    It is the message's id, under the present name of the epoch: the message may be from before it was renamed.
    """
    return f"{cursor.rpartition('-')[0]}-{message_id.rpartition('-')[2]}"


def sequence_in(cursor: str) -> int:
    """The sequence in a cursor that this node has made."""
    return int(cursor.rpartition("-")[2])


def message_cursor(message_id: str) -> Cursor:
    """The cursor at a message whose id a node has made: the same text."""
    epoch, _, sequence = message_id.rpartition("-")
    return Cursor(epoch, int(sequence))


_STARTS = {"": Start.EARLIEST, "earliest": Start.EARLIEST, "now": Start.NOW}


def parse_cursor(text: str) -> Cursor | Start:
    """The cursor in a request; an empty one means `earliest`.

    Raises: BadRequest if it is neither a cursor nor `earliest` nor `now`.
    """
    match = _CURSOR(text)
    if match is None:
        if text in _STARTS:
            return _STARTS[text]
        raise BadRequest("not a cursor: use one from an earlier answer, 'earliest' or 'now'", field="cursor")
    return Cursor(match[1], int(match[2]))


# The names of epochs, and those that one order had before.


def order_of(epoch: str) -> tuple[int, str]:
    """A sort key: the later epoch has the larger one."""
    return len(epoch), epoch


def next_epoch(after: str, now: float, random: Callable[[], float], cluster: str) -> str:
    """A new name that is later than `after`: the time in hexadecimal milliseconds, four digits, and two random ones.

    The four are those of the cluster's name; random if it has none yet (`cluster` is empty), which is this one then.
    `now`: seconds since the epoch, on the wall clock. Later even if that was set back. `random` returns a number in
    [0, 1).
    """
    try:
        later = int(after[:-6] or "0", 16) + 1
    except ValueError:
        later = 0  # no epoch has such a name
    began = max(int(now * 1000), later)
    lineage = cluster[-6:-2] or f"{int(65536 * random()):04x}"
    return f"{began:x}{lineage:0>4}{int(256 * random()):02x}"


@lru_cache(16)
def began_at(epoch: str) -> int:
    """When the epoch with this name began, in whole seconds since the epoch of Unix time; 0 for other names."""
    try:
        return int(epoch[:-6] or "0", 16) // 1000
    except ValueError:
        return 0


def is_of_one_cluster(epoch: str, other: str) -> bool:
    """Whether both may be epochs of one cluster: their names have the same four digits of it."""
    return epoch[-6:-2] == other[-6:-2]


class PastEpoch(Struct, frozen=True, forbid_unknown_fields=True):
    """A former name of the order, and the last sequence under it."""

    epoch: str
    sequence: int


class PastEpochs:
    """Former names of one order, oldest first; a value."""

    __slots__ = ("_by_name", "all", "sequence")

    def __init__(self, past: tuple[PastEpoch, ...] = ()) -> None:
        self.all = past
        self.sequence = past[-1].sequence if past else 0
        """The last sequence under a former name; 0: none is remembered."""
        self._by_name = {p.epoch: p.sequence for p in self.all}

    def and_then(self, epoch: str, sequence: int, *, keeps_first: bool) -> PastEpochs:
        """These, and one that was good up to this sequence. If they are too many, the second goes, or the first."""
        past = (*self.all, PastEpoch(epoch, sequence))
        if len(past) > REMEMBERED:
            past = (past[0], *past[2:]) if keeps_first else past[1:]
        return PastEpochs(past)

    def good_up_to(self, epoch: str) -> int:
        """Up to which sequence cursors of this former epoch are valid; -1 if it is not remembered."""
        return self._by_name.get(epoch, -1)

    def at(self, sequence: int, now: str) -> str:
        """The epoch in which this sequence was published; `now`: the present one. O(1) if that is the one.

        If its name is no longer remembered, the next one that is.
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
