"""This node's replica: the follower, and the tag of the last entry that it has applied."""

from __future__ import annotations

from collections.abc import Callable

from pushup.broadcast import Follower
from pushup.broadcast.redis.records import Loaded, LogEntry
from pushup.core.commands import Outcome
from pushup.core.cursor import Cursor
from pushup.core.errors import OutOfOrder


class Diverged(Exception):
    """The log does not continue from what this node has applied. `session` reconnects, and `recovery` decides."""


class Replica:
    """Applies entries in the order of the log; `on_applied` takes the tag and outcome of each."""

    def __init__(self, follower: Follower, on_applied: Callable[[bytes, Outcome], None]) -> None:
        self.follower = follower
        self.tag = b""
        """The tag of the last entry applied. Empty: the state is not known (none was loaded, or applying failed)."""
        self._on_applied = on_applied

    @property
    def cursor(self) -> Cursor:
        return self.follower.cursor

    def apply(self, logged: LogEntry) -> None:
        """Apply the next entry. Raises: Diverged."""
        if logged.after != self.tag:
            raise Diverged(f"entry {logged.entry.sequence} of the log does not follow {self.cursor}")
        self.tag = b""
        try:
            outcome = self.follower.apply(logged.entry)
        except OutOfOrder as error:
            raise Diverged(str(error)) from None
        self.tag = logged.tag
        self._on_applied(logged.tag, outcome)

    def start_from(self, loaded: Loaded) -> None:
        """Replace the state by the checkpoint, and apply the entries after it. Raises: Diverged."""
        self.follower.start_from(loaded.snapshot)
        self.follower.note_changes()
        self.tag = loaded.saved.tag.encode()
        for entry in loaded.entries:
            self.apply(entry)
