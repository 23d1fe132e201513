"""How much of what arrives on a link is done in one turn of the reactor."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IReactorTime

from pushup.broadcast.work_budget import TURN_UNITS
from pushup.transport.framed_link import Link


class Turns:
    """Does the work that arrives on a link, in its order, and never much more than `TURN_UNITS` of it in one turn.

    What arrives in one piece is done in one turn, unless it is too much: then the link is held until the next.
    """

    def __init__(self, link: Link, clock: IReactorTime) -> None:
        self._link = link
        self._clock = clock
        self._spent = 0
        self._arrival = 0  # what has arrived, when the present turn began
        self._kept: tuple[int, Callable[[], None]] | None = None  # for the next turn, while the link is held

    def do(self, units: int, work: Callable[[], None]) -> None:
        """Do this much work (`pushup.broadcast.work_budget`): now, or in the next turn before anything else arrives."""
        if self._arrival != self._link.arrivals:
            self._arrival, self._spent = self._link.arrivals, 0
        if self._spent and self._spent + units > TURN_UNITS:
            self._kept = units, work
            self._link.hold()
            self._clock.callLater(0, self._go_on)
            return
        self._spent += units
        work()

    def _go_on(self) -> None:
        """The next turn."""
        self._spent = 0
        assert self._kept is not None
        (units, work), self._kept = self._kept, None
        if self._link.is_open:
            self.do(units, work)
            self._link.go_on()
