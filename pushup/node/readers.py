"""Who has read what: a subject that polls with a cursor at a message, or behind it, has read it (decision 38)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice

from pushup.broadcast import Broadcast
from pushup.core.commands import Outcome, Read
from pushup.core.cursor import Cursor, message_cursor
from pushup.core.errors import PushUpError
from pushup.core.state import ReplicatedState

READ_AT_MOST = 1000
"""Messages in one entry. The others follow in further entries."""

AHEAD_SECONDS = 5.0
"""How long a cursor is remembered that is ahead of this node: its client came from a node that is."""

AHEAD_LIMIT = 10_000
"""How many of these are remembered."""

Reading = tuple[str, tuple[str, ...], Cursor]
"""A subject has seen these channels up to the cursor."""


class Readers:
    """Appends `Read` entries, for messages that wait for it only."""

    def __init__(
        self,
        broadcast: Broadcast,
        *,
        state: Callable[[], ReplicatedState],
        soon: Callable[[Callable[[], None]], None],
        seconds: Callable[[], float],
    ) -> None:
        """`state`: the present one; `soon` calls its argument in the next turn; `seconds`: a monotonic clock."""
        self._broadcast = broadcast
        self._state = state
        self._soon = soon
        self._seconds = seconds
        self._later: dict[Reading, float] = {}  # ahead of this node, or refused; until when they are remembered

    def note(self, subject: str, channels: tuple[str, ...], cursor: Cursor) -> None:
        """This subject has seen these channels up to the cursor. O(channels) while any message waits for readers."""
        state = self._state()
        if cursor.sequence > state.cursor.sequence:
            self._note_later((subject, channels, cursor))
            return
        if not state.webhooks.waits:
            return
        ids = tuple(islice(state.unread_by(subject, channels, cursor), READ_AT_MOST))
        if ids:
            reading = subject, channels, cursor
            self._broadcast.append(Read(subject, ids), partial(self._noted, reading, len(ids)))

    def _note_later(self, reading: Reading) -> None:
        if len(self._later) < AHEAD_LIMIT:
            self._later[reading] = self._seconds() + AHEAD_SECONDS

    def _noted(self, reading: Reading, count: int, outcome: Outcome) -> None:
        if isinstance(outcome, PushUpError):
            self._note_later(reading)  # the next poll of this subject says the same, but may come too late
        elif count == READ_AT_MOST:
            self._soon(partial(self.note, *reading))

    def are_awaited(self, subject: str, channels: tuple[str, ...], cursor: str) -> bool:
        """Whether a message waits for this subject up to the cursor of an answer."""
        state = self._state()
        return state.webhooks.waits and any(state.unread_by(subject, channels, message_cursor(cursor)))

    def look(self) -> None:
        """Note what was ahead of this node, or was refused."""
        later, self._later = self._later, {}
        sequence, now = self._state().cursor.sequence, self._seconds()
        for reading, until in later.items():
            if reading[2].sequence <= sequence:
                self.note(*reading)
            elif until > now:
                self._later[reading] = until
