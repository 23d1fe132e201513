"""Publishers that wait until their entry is read back, and commands that Redis has not answered yet.

A command counts in the waiting room until both have happened: a publisher is answered at its deadline at the latest,
but its command may still be in a buffer then.
"""

from __future__ import annotations

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from pushup.broadcast import OnOutcome
from pushup.broadcast.admission import WaitingRoom
from pushup.core.commands import Command, Outcome
from pushup.core.errors import Refusal
from pushup.deadline_timer import Timer

_log = Logger()


class Pending:
    """The waiting publishers, by the tag of their entry; each is answered once."""

    def __init__(self, clock: IReactorTime, timeout: float, room: WaitingRoom) -> None:
        """`timeout`: seconds after which a publisher is told that the outcome is not known."""
        self._clock = clock
        self._timeout = timeout
        self._room = room
        self._waiting: dict[bytes, tuple[float, OnOutcome, int]] = {}  # in the order of their deadlines
        self._unanswered: dict[bytes, int] = {}  # sizes of the commands
        self._deadline = Timer(clock, self._give_up_overdue)

    def add(self, tag: bytes, command: Command, on_outcome: OnOutcome) -> bool:
        """Have a publisher wait; returns False if there is no room, and it was refused."""
        size = self._room.enter(command)
        if not size:
            on_outcome(self._room.full())
            return False
        deadline = self._clock.seconds() + self._timeout
        self._waiting[tag] = (deadline, on_outcome, size)
        self._unanswered[tag] = size
        if len(self._waiting) == 1:
            self._deadline.not_after(deadline)
        return True

    def answered(self, tag: bytes) -> None:
        """Redis has answered the command, or the connection has ended: it is in no buffer any more."""
        size = self._unanswered.pop(tag)
        if tag not in self._waiting:
            self._room.leave(size)

    def tell(self, tag: bytes, outcome: Outcome) -> None:
        """Answer the publisher of this entry, if it waits here."""
        waiting = self._waiting.pop(tag, None)
        if waiting is not None:
            _, on_outcome, size = waiting
            if tag not in self._unanswered:
                self._room.leave(size)
            try:
                on_outcome(outcome)
            except Exception:
                _log.failure("could not answer a publisher")

    def stop(self) -> None:
        """Answer all publishers: their outcomes are not known."""
        self._deadline.stop()
        for tag in list(self._waiting):
            self.tell(tag, Refusal.UNKNOWN_OUTCOME("the server stopped before the entry was read back from Redis"))

    def abort(self) -> None:
        """Stop without answering anybody."""
        self._deadline.stop()
        self._waiting.clear()

    def _give_up_overdue(self) -> None:
        now = self._clock.seconds()
        while self._waiting:
            tag, (deadline, _, _) = next(iter(self._waiting.items()))
            if deadline > now:
                self._deadline.not_after(deadline)
                return
            why = f"the entry was not read back from Redis within {self._timeout:g} s"
            self.tell(tag, Refusal.UNKNOWN_OUTCOME(why))
