"""One reactor timer for many deadlines: no timer per poll or call."""

from __future__ import annotations

import math
from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime


class Timer:
    """Rings at the earliest of the times it was asked for, and then again for what is left."""

    def __init__(self, clock: IReactorTime, due: Callable[[], None]) -> None:
        """`due` does what is due by the clock's time, and then says by `not_after` when the next is."""
        self._clock = clock
        self._due = due
        self.time = math.inf
        self._call: IDelayedCall | None = None

    def not_after(self, time: float | None) -> None:
        """See to it that `due` is called at this time or before. None: there is nothing to wait for."""
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
