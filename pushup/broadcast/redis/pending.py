"""The publishers that wait until what they appended is read back, and the commands that Redis has not answered.

A command counts in the waiting room until both have come: a publisher that was told at its deadline waits no longer,
but what it sent may still lie in a buffer.
"""

from __future__ import annotations

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from pushup.broadcast import OnOutcome, refusals
from pushup.broadcast.waiting import WaitingRoom
from pushup.core.commands import Command, Outcome
from pushup.timer import Timer

_log = Logger()


class Pending:
    """Who waits for which entry, by its tag; each is told once."""

    def __init__(self, clock: IReactorTime, timeout: float, room: WaitingRoom) -> None:
        """`timeout`: after so many seconds a publisher is told that it is not known."""
        self._clock = clock
        self._timeout = timeout
        self._room = room
        self._waiting: dict[bytes, tuple[float, OnOutcome, int]] = {}  # in the order of their deadlines
        self._unanswered: dict[bytes, int] = {}  # sizes of the commands
        self._deadline = Timer(clock, self._give_up_overdue)

    def add(self, tag: bytes, command: Command, on_outcome: OnOutcome) -> bool:
        """Let somebody wait; or there is no room, and nobody does."""
        size = self._room.enter(command)
        if not size:
            return False
        deadline = self._clock.seconds() + self._timeout
        self._waiting[tag] = (deadline, on_outcome, size)
        self._unanswered[tag] = size
        if len(self._waiting) == 1:
            self._deadline.not_after(deadline)
        return True

    def answered(self, tag: bytes) -> None:
        """Redis has answered the command, or the connection has ended: nothing of it lies in a buffer any more."""
        size = self._unanswered.pop(tag)
        if tag not in self._waiting:
            self._room.leave(size)

    def tell(self, tag: bytes, outcome: Outcome) -> None:
        """The entry was applied, or has no place, or that is not known: whoever waits for it here is told so."""
        waiting = self._waiting.pop(tag, None)
        if waiting is not None:
            _, on_outcome, size = waiting
            if tag not in self._unanswered:
                self._room.leave(size)
            try:
                on_outcome(outcome)
            except Exception:
                _log.failure("a publisher could not be told")

    def stop(self) -> None:
        self._deadline.stop()
        for tag in list(self._waiting):
            self.tell(tag, refusals.unknown("the server was stopped before the entry was read back"))

    def _give_up_overdue(self) -> None:
        now = self._clock.seconds()
        while self._waiting:
            tag, (deadline, _, _) = next(iter(self._waiting.items()))
            if deadline > now:
                self._deadline.not_after(deadline)
                return
            self.tell(tag, refusals.unknown(f"the entry was not read back within {self._timeout:g} s"))
