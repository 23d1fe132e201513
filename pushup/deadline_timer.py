"""One reactor timer for many deadlines, instead of one for each poll or call."""

from __future__ import annotations

import math
from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime


class Timer:
    """Calls a function at the earliest of the times that were set, on the reactor's clock."""

    def __init__(self, clock: IReactorTime, due: Callable[[], None]) -> None:
        """`due` handles everything that is due, and then sets the next time with `not_after`."""
        self._clock = clock
        self._due = due
        self.time = math.inf
        self._call: IDelayedCall | None = None

    def not_after(self, time: float | None) -> None:
        """Make sure that `due` is called at this time or earlier. None: no deadline."""
        if time is None or time >= self.time:
            return
        self.stop()
        self.time = time
        self._call = self._clock.callLater(max(0.0, time - self._clock.seconds()), self._ring)

    def stop(self) -> None:
        if self._call is not None:
            self._call.cancel()
            self._call = None
        self.time = math.inf

    def _ring(self) -> None:
        self._call = None
        self.time = math.inf
        self._due()
