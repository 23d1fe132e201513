"""Events that may be logged only now and then, however often they happen."""

from __future__ import annotations

from collections.abc import Callable

LOG_SECONDS = 60.0
"""How long after a line of one kind the next may follow."""


class Rarely:
    """Lets one event of each kind through in `LOG_SECONDS`. There must be few kinds."""

    def __init__(self, now: Callable[[], float]) -> None:
        """`now` returns seconds, since whenever; it may be set back."""
        self._now = now
        self._last: dict[str, float] = {}
        self._counts: dict[str, int] = {}

    def passes(self, kind: str) -> int:
        """How many events of this kind there were since the last that passed, with this one; 0 if it does not pass."""
        count = self._counts.get(kind, 0) + 1
        now = self._now()
        if kind in self._last and 0 <= now - self._last[kind] < LOG_SECONDS:
            self._counts[kind] = count
            return 0
        self._last[kind] = now
        self._counts[kind] = 0
        return count
