"""The cursor: how far a client has followed the order of all entries (docs/internals/architecture.md).

Wire format: `<epoch>-<sequence>`, e.g. `k3f9-41`. Its size does not depend on the channels, and it is valid on every
node, since every node applies the same entries. Clients treat it as opaque.
"""

from __future__ import annotations

import re
from enum import Enum

from msgspec import Struct

from pushup.core.errors import BadRequest

_CURSOR = re.compile(r"([0-9a-z]{1,32})-(0|[1-9][0-9]{0,17})", re.ASCII).fullmatch


class Cursor(Struct, frozen=True):
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
