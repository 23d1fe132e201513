"""Clock synchronization: each member reads the others' clocks, and moves its own to the median.

The paper leaves the protocol to its reference [4]; this one is ours. A clock message carries the sender's clock, and
for each other member what it last had from there and how long ago. Whoever gets its own time back knows the round trip,
and so the other's clock, within half of that (Cristian's remote clock reading). No message is only an answer.

What is read is the clock that the other never sets; how far it has set its own is in each message. So a good reading
stays good, but for drift, even while the members are so busy that every round trip is long.
"""

from __future__ import annotations

import math
from statistics import median
from typing import NamedTuple

from loadtest.mishra.core.messages import ClockMessage, Reading
from loadtest.mishra.core.settings import Settings

FRESH_PERIODS = 4
"""A clock is used if it was heard of within so many periods."""

DRIFT = 1e-4
"""By how much a hardware clock can go wrong, s each second."""

START_PERIOD = 0.1
"""While a clock is not synchronized, it is read more often: this part of the period."""


class _Heard(NamedTuple):
    """The last message of another. `hardware`: its clock that it never sets, which had been set by `adjustment`."""

    hardware: float
    adjustment: float
    was_synchronized: bool
    received: float


class _Reading(NamedTuple):
    """Another's hardware clock minus our local one, at most `error` off when it was `read` (local time)."""

    ahead: float
    error: float
    read: float

    def error_at(self, local: float) -> float:
        return self.error + 2 * DRIFT * (local - self.read)


class Clock:
    """A member's clock: local time plus an adjustment."""

    def __init__(self, member: int, settings: Settings) -> None:
        self._member = member
        self._settings = settings
        self._adjustment = 0.0
        self._heard: dict[int, _Heard] = {}
        self._readings: dict[int, _Reading] = {}
        self._was_synchronized = False

    def time(self, local: float) -> float:
        """The synchronized time."""
        return local + self._adjustment

    def synchronized(self, local: float) -> bool:
        """Whether it agrees with a majority of the team's clocks, its own among them, of which it has heard of late."""
        precision = self._settings.precision
        near = [other for other, (ahead, error) in self._offsets(local).items() if abs(ahead) + error <= precision]
        return len(near) + 1 >= self._settings.majority

    def message(self, local: float) -> ClockMessage:
        readings = [Reading(other, heard.hardware, local - heard.received) for other, heard in self._heard.items()]
        return ClockMessage(self.time(local), self._was_synchronized, local, tuple(readings))

    def receive(self, sender: int, message: ClockMessage, local: float) -> None:
        """Read the sender's clock, if it has had our time. A better reading stays, unless this one contradicts it."""
        self._heard[sender] = _Heard(message.hardware, message.at - message.hardware, message.was_synchronized, local)
        for reading in message.readings:
            if reading.member == self._member:
                trip = max(0.0, local - reading.at - reading.ago)
                new = _Reading(message.hardware + trip / 2 - local, trip / 2, local)
                old = self._readings.get(sender)
                error = old.error_at(local) if old else math.inf
                if old is None or new.error <= error or abs(new.ahead - old.ahead) > new.error + error:
                    self._readings[sender] = new

    def adjust(self, local: float) -> None:
        """Move to the median of all clocks that were read, if these are a majority; only as far as is certain.

        One that was never synchronized goes by those that were, and moves none of these.
        """
        offsets = self._offsets(local)
        if len(offsets) + 1 < self._settings.majority:
            return
        self._was_synchronized = self._was_synchronized or self.synchronized(local)
        certain = {
            other: math.copysign(max(0.0, abs(ahead) - error), ahead) for other, (ahead, error) in offsets.items()
        }
        used = [ahead for other, ahead in certain.items() if self._heard[other].was_synchronized]
        if self._was_synchronized:
            used.append(0.0)
        elif not used:
            used = [0.0, *certain.values()]
        self._adjustment += median(used)

    def period(self, local: float) -> float:
        """The clock synchronization timeout."""
        return self._settings.clock * (1.0 if self.synchronized(local) else START_PERIOD)

    def _offsets(self, local: float) -> dict[int, tuple[float, float]]:
        """By how much others are ahead of us, and the error of that, for those that have been heard of late."""
        longest = FRESH_PERIODS * self._settings.clock
        return {
            other: (reading.ahead + heard.adjustment - self._adjustment, reading.error_at(local))
            for other, reading in self._readings.items()
            if local - (heard := self._heard[other]).received <= longest
        }
