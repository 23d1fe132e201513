"""The publishers that wait until what they appended is read back."""

from __future__ import annotations

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from pushup.broadcast import Then, refusals
from pushup.core.commands import Outcome
from pushup.timer import Timer

_log = Logger()


class Pending:
    """Who waits for which entry, by its tag; each is told once."""

    def __init__(self, clock: IReactorTime, timeout: float) -> None:
        """`timeout`: after so many seconds a publisher is told that it is not known."""
        self._clock = clock
        self._timeout = timeout
        self._waiting: dict[bytes, tuple[float, Then]] = {}
        self._deadline = Timer(clock, self._give_up_overdue)

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, tag: bytes, then: Then) -> None:
        deadline = self._clock.seconds() + self._timeout
        self._waiting[tag] = (deadline, then)
        if len(self._waiting) == 1:
            self._deadline.not_after(deadline)

    def tell(self, tag: bytes, outcome: Outcome) -> None:
        """The entry was applied, or has no place, or that is not known: whoever waits for it here is told so."""
        waiting = self._waiting.pop(tag, None)
        if waiting is not None:
            try:
                waiting[1](outcome)
            except Exception:
                _log.failure("a publisher could not be told")

    def stop(self) -> None:
        self._deadline.stop()
        for tag in list(self._waiting):
            self.tell(tag, refusals.unknown("the server was stopped before the entry was read back"))

    def _give_up_overdue(self) -> None:
        now = self._clock.seconds()
        for tag in [tag for tag, (deadline, _) in self._waiting.items() if deadline <= now]:
            self.tell(tag, refusals.unknown(f"the entry was not read back within {self._timeout:g} s"))
        self._deadline.not_after(next((deadline for deadline, _ in self._waiting.values()), None))
