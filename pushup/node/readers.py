"""Who has read what: a subject that polls with a cursor at a message, or behind it, has read it (decision 38)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from pushup.broadcast import Broadcast
from pushup.core.commands import Outcome, Read
from pushup.core.cursor import Cursor, message_cursor
from pushup.core.state import ReplicatedState

READ_AT_MOST = 1000
"""Messages in one entry. The subject's next poll notes the others."""

AHEAD_SECONDS = 5.0
"""How long a cursor is remembered that is ahead of this node: its client came from a node that is."""

AHEAD_LIMIT = 10_000
"""How many of these are remembered."""


class Readers:
    """Appends `Read` entries, for messages that wait for it only."""

    def __init__(
        self, broadcast: Broadcast, *, state: Callable[[], ReplicatedState], seconds: Callable[[], float]
    ) -> None:
        """`state`: the present one; `seconds`: a monotonic clock."""
        self._broadcast = broadcast
        self._state = state
        self._seconds = seconds
        self._ahead: list[tuple[float, str, tuple[str, ...], Cursor]] = []

    def note(self, subject: str, channels: tuple[str, ...], cursor: Cursor) -> None:
        """This subject has seen these channels up to the cursor. O(channels) while any message waits for readers."""
        state = self._state()
        if cursor.sequence > state.cursor.sequence:
            if len(self._ahead) < AHEAD_LIMIT:
                self._ahead.append((self._seconds() + AHEAD_SECONDS, subject, channels, cursor))
            return
        if not state.webhooks.waits:
            return
        ids = tuple(islice(state.unread_by(subject, channels, cursor), READ_AT_MOST))
        if ids:
            # If it is refused, the next poll of this subject says the same.
            self._broadcast.append(Read(subject, ids), _ignore)

    def are_awaited(self, subject: str, channels: tuple[str, ...], cursor: str) -> bool:
        """Whether a message waits for this subject up to the cursor of an answer."""
        state = self._state()
        return state.webhooks.waits and any(state.unread_by(subject, channels, message_cursor(cursor)))

    def look(self) -> None:
        """Note what was ahead of this node."""
        ahead, self._ahead = self._ahead, []
        sequence, now = self._state().cursor.sequence, self._seconds()
        for each in ahead:
            until, subject, channels, cursor = each
            if cursor.sequence <= sequence:
                self.note(subject, channels, cursor)
            elif until > now:
                self._ahead.append(each)


def _ignore(outcome: Outcome) -> None:
    pass
