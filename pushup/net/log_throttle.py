"""Rate limiting of log lines, for events that clients can cause at will."""

from __future__ import annotations

import math
from collections.abc import Callable

LOG_SECONDS = 60.0
"""The minimum time between two lines of one kind."""


class LogThrottle:
    """Passes one event of each kind per `LOG_SECONDS`. Keeps every kind, so there must be few."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        """`seconds` of a monotonic clock."""
        self._seconds = seconds
        self._kinds: dict[str, tuple[float, int]] = {}  # when one last passed, and how many have not since then

    def passes(self, kind: str) -> int:
        """The number of events of this kind since the last that passed, with this one; 0 if it must not pass."""
        now = self._seconds()
        passed_at, count = self._kinds.get(kind, (-math.inf, 0))
        if now - passed_at < LOG_SECONDS:
            self._kinds[kind] = passed_at, count + 1
            return 0
        self._kinds[kind] = now, 0
        return count + 1
