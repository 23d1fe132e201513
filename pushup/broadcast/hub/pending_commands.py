"""The commands of a worker: collected for the end of a batch of events, and then waiting for their outcomes."""

from __future__ import annotations

from twisted.logger import Logger

from pushup.broadcast import OnOutcome
from pushup.broadcast.admission import WaitingLimits, WaitingRoom
from pushup.broadcast.hub import frames
from pushup.core.commands import Command, Outcome
from pushup.transport.framed_link import Link

_log = Logger()


class PendingCommands:
    """They wait until they are answered."""

    next_number: int
    """As `Welcome` says."""

    def __init__(self, link: Link, limits: WaitingLimits) -> None:
        self._link = link
        self._room = WaitingRoom(limits)
        self._collected: list[Command] = []
        self._collected_bytes = 0
        self._waiting: dict[int, tuple[OnOutcome, int]] = {}  # with their sizes in the waiting room

    @property
    def bytes(self) -> int:
        """The size of all."""
        return self._room.bytes

    def append(self, command: Command, on_outcome: OnOutcome) -> None:
        """Ask for a place for it, with all others of this batch of events."""
        size = self._room.enter(command)
        if not size:
            on_outcome(self._room.full())
            return
        self._waiting[self.next_number] = on_outcome, size
        self.next_number += 1
        if not self._collected:
            self._link.flush_soon()
        self._collected.append(command)
        self._collected_bytes += size
        if self._collected_bytes > frames.BATCH_BYTES:
            self.send()

    def send(self) -> None:
        """Send what was collected."""
        if self._collected:
            commands, self._collected, self._collected_bytes = tuple(self._collected), [], 0
            self._link.send(frames.frame(frames.Append(self.next_number - len(commands), commands)))

    def answer(self, number: int, outcome: Outcome) -> None:
        """Answer the publisher of this command, if it waits here."""
        if (waiting := self._waiting.pop(number, None)) is None:
            return  # it is another worker's, or a parent that was hanging answers too late
        on_outcome, size = waiting
        self._room.leave(size)
        try:
            on_outcome(outcome)
        except Exception:
            _log.failure("could not answer a publisher")

    def answer_all(self, outcome: Outcome) -> None:
        """Answer the publishers of all commands that were sent or collected."""
        for number in list(self._waiting):
            self.answer(number, outcome)
