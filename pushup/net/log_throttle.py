"""Rate limiting of log lines, for events that clients can cause at will."""

from __future__ import annotations

from collections.abc import Callable

LOG_SECONDS = 60.0
"""The minimum time between two lines of one kind."""


class LogThrottle:
    """Passes one event of each kind per `LOG_SECONDS`. Keeps every kind, so there must be few."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        """`seconds` of a monotonic clock."""
        self._seconds = seconds
        self._last: dict[str, float] = {}
        self._counts: dict[str, int] = {}

    def passes(self, kind: str) -> int:
        """The number of events of this kind since the last that passed, with this one; 0 if it must not pass."""
        count = self._counts.get(kind, 0) + 1
        now = self._seconds()
        if kind in self._last and now - self._last[kind] < LOG_SECONDS:
            self._counts[kind] = count
            return 0
        self._last[kind] = now
        self._counts[kind] = 0
        return count
