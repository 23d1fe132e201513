"""How late the reactor's timers are, how long its turns take, and whether this process stood still."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from twisted.logger import Logger

from pushup.clock import WATCH_SECONDS
from pushup.metrics import Histogram, Metric, counter, gauge
from pushup.net.log_throttle import LogThrottle
from pushup.net.wait.demultiplexer import Demultiplexer

STILL_SECONDS = 1.0
"""A process that is this late stood still."""

LONGEST_SECONDS = 60.0
"""The longest turn is that of at least so many seconds, and of at most twice as many."""

EARLY = 0.01
"""A timer that is early by less than this part of WATCH_SECONDS, because of rounding, is the one that is due."""

_log = Logger()


class ReactorWatch:
    """Looks at the reactor every WATCH_SECONDS."""

    def __init__(
        self,
        demultiplexer: Demultiplexer,
        seconds: Callable[[], float],
        uptime: Callable[[], float],
        computed: Callable[[], float],
    ) -> None:
        """`seconds`: of the clock that timers are on; `uptime`: see `pushup.clock`; `computed`: seconds of a processor
        that this thread has used."""
        self._demultiplexer = demultiplexer
        self._clocks = (seconds, uptime, computed)
        self._last: list[float] = []  # what these clocks said at the last look
        self._began_at = 0.0
        self._lag = Histogram()
        self._still_seconds = 0.0
        self._longest = [0.0, 0.0]  # the longest turn since `_longest_since`, and in the LONGEST_SECONDS before
        self._longest_since = 0.0
        self._rarely = LogThrottle(seconds)

    def look(self) -> None:
        """To be called at once, and then every WATCH_SECONDS by a LoopingCall, which keeps to multiples of this."""
        now = [clock() for clock in self._clocks]
        if not self._last:
            self._began_at = self._longest_since = now[0]
        else:
            passed, really_passed, computed = [new - old for new, old in zip(now, self._last, strict=True)]
            looks = (self._last[0] - self._began_at) / WATCH_SECONDS + EARLY
            due = self._began_at + (math.floor(looks) + 1) * WATCH_SECONDS
            late = max(0.0, now[0] - due)
            self._lag.observe(late)
            self._note(late + max(0.0, really_passed - passed), computed)
        self._last = now
        self._note_turn(now[0])

    def _note(self, still: float, computed: float) -> None:
        if still < STILL_SECONDS:
            return
        self._still_seconds += still
        if times := self._rarely.passes("still"):
            _log.warn(
                "this process stood still for {still:.1f} s, and its clients waited{more}. It computed for "
                "{computed:.1f} s of that: if this is much less, it was stopped or swapped out, its machine was "
                "suspended, or other processes had the processor",
                still=still,
                computed=computed,
                more=f" ({times} times since last logged)" if times > 1 else "",
            )

    def _note_turn(self, now: float) -> None:
        if now - self._longest_since >= LONGEST_SECONDS:
            self._longest = [0.0, self._longest[0]]
            self._longest_since = now
        self._longest[0] = max(self._longest[0], self._demultiplexer.longest_turn)
        self._demultiplexer.longest_turn = 0.0

    def metrics(self) -> Iterator[Metric]:
        """What it has seen."""
        yield self._lag.metric("reactor_lag_seconds", "How late a timer was, looked at once a second")
        text = "The longest turn of the demultiplexer in the last one to two minutes"
        yield gauge("reactor_longest_turn_seconds", text, max(*self._longest, self._demultiplexer.longest_turn))
        yield counter("stood_still_seconds", "Time for which this process stood still", self._still_seconds)
