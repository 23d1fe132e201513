"""Whether polls held ahead of this node have seen more than the order has."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from pushup.broadcast import Broadcast
from pushup.core.cursor import Cursor
from pushup.core.held_polls import HeldPolls


class OrderEnd:
    """Asks the broadcast where the order ends, one question at a time, and tells the held polls."""

    def __init__(self, broadcast: Broadcast, polls: HeldPolls[Any], on_found: Callable[[], None]) -> None:
        """`on_found` is called when polls may have to be answered."""
        self._broadcast = broadcast
        self._polls = polls
        self._on_found = on_found
        self._is_finding = self._must_find = False

    def find(self) -> None:
        """A poll has come that is ahead."""
        self._must_find = self._is_finding  # then again, for the end may be of a moment before this poll came
        if not self._is_finding:
            self._is_finding = True
            self._broadcast.find_end(partial(self._found, self._polls.ahead()))

    def _found(self, ahead: list[Any], end: Cursor) -> None:
        self._is_finding = False
        self._polls.end_is(end, ahead)
        self._on_found()
        if self._must_find:
            self.find()
