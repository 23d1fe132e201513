"""This node's replica: the follower, and the tag of the last entry that it has applied."""

from __future__ import annotations

from collections.abc import Callable

from twisted.logger import Logger

from pushup.broadcast import Follower
from pushup.broadcast.redis.checkpoint_loader import Loaded
from pushup.broadcast.redis.records import LogEntry, Unreadable
from pushup.broadcast.work_budget import Pace, restored, work_of
from pushup.core.commands import Entry, Outcome
from pushup.core.cursor import Cursor
from pushup.core.errors import OutOfOrder, VersionTooNew
from pushup.core.state import ReplicatedState

_log = Logger()


class Diverged(Exception):
    """The log does not continue from what this node has applied. `session` reconnects, and `recovery` decides."""


class CannotApply(Exception):
    """The log has an entry at `place` (a cursor) that this node cannot read or carry out; the text says why."""

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(f"this node cannot read the entry {place}: {problem}")
        self.problem = problem


class Replica:
    """Applies entries in the order of the log; `on_applied` takes the tag and outcome of each."""

    def __init__(self, follower: Follower, on_applied: Callable[[bytes, Outcome], None]) -> None:
        self.follower = follower
        self.tag = b""
        """The tag of the last entry applied. Empty: the state is not known (none was loaded, or applying failed)."""
        self.cluster = ""
        """The cluster whose log this node has followed; empty until it has followed one."""
        self.stuck_at = ""
        """The place of the next entry, if this node cannot apply it."""
        self.is_in_doubt = False
        """Whether what follows in the log is not as it should be: all that is in Redis has to be looked at."""
        self._on_applied = on_applied
        self._failed = b""  # the tag of an entry that could not be applied to a state that was loaded for it
        self._problem = ""  # why

    @property
    def cursor(self) -> Cursor:
        return self.follower.cursor

    def apply(self, logged: LogEntry) -> None:
        """Apply the next entry. Raises: Diverged, CannotApply, VersionTooNew. The state is as before, or unknown."""
        entry = self._check(logged, self.tag)
        self.tag = b""
        try:
            outcome = self._carry_out(self.follower.apply, entry, logged)
        except VersionTooNew:
            self.tag = logged.after
            raise
        self.tag = logged.tag
        self.stuck_at, self.is_in_doubt = "", False
        self._on_applied(logged.tag, outcome)

    async def start_from(self, loaded: Loaded, pace: Pace) -> None:
        """Replace the state by the checkpoint with the entries after it, up to one that cannot be applied.

        The follower has its old state until the new one is complete.
        Raises: Diverged, VersionTooNew. The state is as before then.
        """
        self._failed = b""
        try:
            state, applied = await self._rebuild(loaded, pace)
        except CannotApply:
            state, applied = await self._rebuild(loaded, pace)  # up to the entry that has failed
        self.follower.start_from(state)
        self.is_in_doubt = False
        self.tag = applied[-1][0] if applied else loaded.saved.tag.encode()
        for tag, outcome in applied:
            self._on_applied(tag, outcome)

    async def _rebuild(self, loaded: Loaded, pace: Pace) -> tuple[ReplicatedState, list[tuple[bytes, Outcome]]]:
        """The state, and the tags and outcomes of the entries after the checkpoint.

        Raises: Diverged, VersionTooNew; CannotApply if an entry has failed now, and may have left the state in pieces.
        """
        state = await restored(loaded.snapshot, pace)
        state.note_changes()
        tag = loaded.saved.tag.encode()
        applied: list[tuple[bytes, Outcome]] = []
        self.stuck_at = ""
        for logged in loaded.entries:
            try:
                entry = self._check(logged, tag)
            except CannotApply:
                break  # reading on finds it again
            await pace.spend(work_of(entry, state.time))
            try:
                applied.append((logged.tag, self._carry_out(state.apply, entry, logged)))
            except CannotApply as error:
                self._failed, self._problem = logged.tag, error.problem
                raise
            tag = logged.tag
        return state, applied

    def forget(self) -> None:
        """What this node has is not enough to continue: it loads its state again."""
        self.tag = b""

    def _check(self, logged: LogEntry, after: bytes) -> Entry:
        """The entry, if it follows the one with the tag `after` and can be applied. Raises: Diverged, CannotApply."""
        if logged.after != after:
            raise Diverged(f"the entry that ends at {logged.last} in the log does not follow {self.cursor}")
        entry = logged.entry
        if isinstance(entry, Unreadable):
            raise self._stuck(entry.place, entry.problem)
        if logged.tag == self._failed:
            raise self._stuck(f"{entry.epoch}-{logged.last}", self._problem)
        return entry

    def _carry_out(self, apply: Callable[[Entry], Outcome], entry: Entry, logged: LogEntry) -> Outcome:
        """Raises: Diverged, CannotApply, VersionTooNew."""
        try:
            return apply(entry)
        except OutOfOrder as error:
            raise Diverged(str(error)) from None
        except VersionTooNew:
            raise
        except Exception as error:
            _log.failure("could not apply an entry of the log (a bug); this node loads its state again")
            raise CannotApply(f"{entry.epoch}-{logged.last}", f"{type(error).__name__}: {error}") from None

    def _stuck(self, place: str, problem: str) -> CannotApply:
        self.stuck_at = place
        return CannotApply(place, problem)
