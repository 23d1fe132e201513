"""Time: a monotonic clock for everything that waits, with one timer for many deadlines, and a steady one for messages.

| clock | for what | when the machine's clock is set |
|---|---|---|
| `reactor.seconds`, monotonic | what waits: holds, timeouts, drains, sweeps | nothing changes |
| `uptime`, monotonic, counts suspension too | leases with Redis | nothing changes |
| `SteadyTime`, since the epoch | times of messages with memory and journal, so expiry | it goes on without the jump |
| `time.time`, since the epoch | what others compare: tickets, names of epochs, `Date`, the log | it follows at once |

With Redis, the times of messages come from the clock of Redis. Why: docs/internals/decisions/0014-two-clocks.md.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

WATCH_SECONDS = 1.0
"""How often to compare the steady time with the wall clock."""

SLEW = 0.001
"""The steady time approaches the wall clock by at most this part: 86 s a day. Whatever expires by it, expires early or
late by at most this part of its lifetime. A kernel that slews its clock uses half of it (adjtime(3))."""

JUMP_SECONDS = 1.0
"""A wall clock that moves by at least this between two looks has been set, and that is logged."""

LOG_SECONDS = 60.0
"""The minimum time between two log lines."""

_log = Logger(__name__)

_WITH_SUSPENSION = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux's CLOCK_MONOTONIC stops while the machine is suspended; that of macOS goes on."""


def use_monotonic_clock(reactor: Any) -> None:
    """Run the reactor's timers on the monotonic clock; call this before anything is scheduled.

    Twisted's own default is the wall clock: a timer waits longer when that is set back, and fires early when it is set
    forward (twisted/twisted#2424). Each reactor asks `self.seconds` for the time, and hands it to its `DelayedCall`s.
    """
    reactor.seconds = time.monotonic


def uptime() -> float:
    """Seconds since any moment, including those in which this machine was suspended; never set."""
    return time.clock_gettime(_WITH_SUSPENSION)


class SteadyTime:
    """Seconds since the epoch that never jump and never decrease: call it for the time now.

    It starts as the wall clock, and counts the seconds that pass (`uptime`). When the wall clock moves away, the steady
    time approaches it slowly (SLEW), which takes 10 days for a quarter of an hour; a jump is logged.
    """

    def __init__(self, wall: Callable[[], float] = time.time, uptime: Callable[[], float] = uptime) -> None:
        self._wall = wall
        self._uptime = uptime
        self._since = uptime()  # at the last look, when it was `_then`
        self._then = wall()
        self._slew = 0.0  # so much of each second is added to it, until the next look is due
        self._ahead = 0.0  # by this the wall clock was ahead at the last look
        self._jumped = 0.0  # by this it has jumped since that was last logged
        self._logged_at = -math.inf

    def __call__(self) -> float:
        return self._time_at(self._uptime())

    def _time_at(self, uptime: float) -> float:
        passed = uptime - self._since
        return self._then + passed + self._slew * (passed if passed < WATCH_SECONDS else WATCH_SECONDS)

    def watch(self) -> None:
        """Look at the wall clock; to be called every WATCH_SECONDS."""
        now = self._uptime()
        self._then, self._since = self._time_at(now), now
        ahead = self._wall() - self._then
        moved, self._ahead = ahead - self._ahead, ahead
        self._slew = max(-SLEW, min(SLEW, ahead / WATCH_SECONDS))
        if abs(moved) >= JUMP_SECONDS:
            self._jumped += moved
        if abs(self._jumped) >= JUMP_SECONDS and now - self._logged_at >= LOG_SECONDS:
            _log.warn(
                "the system clock jumped by {jump:+.1f} s. Timeouts are unaffected; with memory or a journal, so are "
                "message times, which are now {ahead:+.1f} s off the clock. Restart to synchronize them again",
                jump=self._jumped,
                ahead=ahead,
            )
            self._jumped, self._logged_at = 0.0, now


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
