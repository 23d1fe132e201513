"""How much to ask Redis for, or to send, at a time."""

from __future__ import annotations

PIECE_BYTES = 128 * 1024
"""A piece has about this size: one or two milliseconds of work, for Redis and for this node."""

PIECE_OF_EPOCH = 512
"""Rows of a new epoch that are encoded and sent at a time: 2 ms of work."""


class Count:
    """How many items to ask for, so that a piece gets its size, whatever the size of the items."""

    def __init__(self, first: int, most: int, piece_bytes: int = PIECE_BYTES) -> None:
        """`first`: in the first piece, when their size is not known; `most`: in any piece, however small they are."""
        self._most = most
        self._bytes = piece_bytes
        self.next = first
        """Ask for this many."""

    def had(self, items: int, size: int) -> None:
        """So many items had this size, in bytes. The next piece is at most twice as large."""
        if items:
            fitting = items * self._bytes // max(size, 1)
            self.next = max(1, min(2 * self.next, fitting, self._most))
