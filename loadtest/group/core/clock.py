"""Clock synchronization: each member reads the others' clocks, and moves its own to the median.

The paper leaves the protocol to its reference [4]; this one is ours. A clock message carries the sender's clock, and
for each other member what it last had from there and how long ago. Whoever gets its own time back knows the round trip,
and so the other's clock, within half of that (Cristian's remote clock reading). No message is only an answer.
"""

from __future__ import annotations

from statistics import median
from typing import NamedTuple

from loadtest.group.core.messages import ClockMessage, Reading
from loadtest.group.core.settings import Settings

FRESH_PERIODS = 4
"""A reading is used for so many periods."""

START_PERIOD = 0.1
"""While a clock is not synchronized, it is read more often: this part of the period."""


class _Heard(NamedTuple):
    hardware: float
    received: float


class _Offset(NamedTuple):
    """Another clock minus ours; `error`: at most by so much; `read`: local time."""

    ahead: float
    error: float
    read: float
    was_synchronized: bool


class Clock:
    """A member's clock: local time plus an adjustment."""

    def __init__(self, member: int, settings: Settings) -> None:
        self._member = member
        self._settings = settings
        self._adjustment = 0.0
        self._heard: dict[int, _Heard] = {}
        self._offsets: dict[int, _Offset] = {}
        self._was_synchronized = False

    def time(self, local: float) -> float:
        """The synchronized time."""
        return local + self._adjustment

    def synchronized(self, local: float) -> bool:
        """Whether it agrees with a majority of the team's clocks, its own among them, by fresh readings."""
        near = [
            offset
            for offset in self._fresh(local).values()
            if abs(offset.ahead) + offset.error <= self._settings.precision
        ]
        return len(near) + 1 >= self._settings.majority

    def message(self, local: float) -> ClockMessage:
        readings = [Reading(other, heard.hardware, local - heard.received) for other, heard in self._heard.items()]
        return ClockMessage(self.time(local), self._was_synchronized, local, tuple(readings))

    def receive(self, sender: int, message: ClockMessage, local: float) -> None:
        """Read the sender's clock, if it has had our time. A better reading of the same period stays."""
        self._heard[sender] = _Heard(message.hardware, local)
        for reading in message.readings:
            if reading.member == self._member:
                trip = max(0.0, local - reading.at - reading.ago)
                new = _Offset(message.at + trip / 2 - self.time(local), trip / 2, local, message.was_synchronized)
                old = self._offsets.get(sender)
                if old is None or new.error <= old.error or local - old.read > self._settings.clock / 2:
                    self._offsets[sender] = new

    def adjust(self, local: float) -> None:
        """Move to the median of all clocks that were read, if these are a majority.

        One that was never synchronized goes by those that were, and moves none of these.
        """
        fresh = self._fresh(local)
        if len(fresh) + 1 < self._settings.majority:
            return
        self._was_synchronized = self._was_synchronized or self.synchronized(local)
        others = [offset.ahead for offset in fresh.values() if offset.was_synchronized]
        if self._was_synchronized:
            others.append(0.0)
        elif not others:
            others = [0.0, *(offset.ahead for offset in fresh.values())]
        step = median(others)
        self._adjustment += step
        self._offsets = {other: offset._replace(ahead=offset.ahead - step) for other, offset in fresh.items()}

    def period(self, local: float) -> float:
        """The clock synchronization timeout."""
        return self._settings.clock * (1.0 if self.synchronized(local) else START_PERIOD)

    def _fresh(self, local: float) -> dict[int, _Offset]:
        longest = FRESH_PERIODS * self._settings.clock
        return {other: offset for other, offset in self._offsets.items() if local - offset.read <= longest}
