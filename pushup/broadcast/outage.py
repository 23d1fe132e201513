"""While publishing is refused: since when and why, and the lines in the log about it.

The first refusal is logged with its reason, another reason when it comes, and the end with how long it took. An outage
that comes and goes is logged like that at most once a minute for each reason.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

REPEAT_SECONDS = 60.0
"""After so long the same reason is logged again."""

REASONS_LIMIT = 20
"""Reasons logged within REPEAT_SECONDS; some have numbers in them, and no two are the same."""

_log = Logger()


class Outage:
    """Whether publishing is refused; `line` makes a line for the log of a reason."""

    def __init__(self, clock: IReactorTime, line: Callable[[str], str]) -> None:
        self._clock = clock
        self._line = line
        self._since: float | None = None
        self._reason = ""
        self._is_told = False
        self._told: dict[str, float] = {}  # when each reason was logged last

    @property
    def lasts(self) -> bool:
        """Whether publishing is refused now."""
        return self._since is not None

    def refused(self, reason: str) -> bool:
        """Publishing is refused for this reason; whether a line was logged about it now."""
        now = self._clock.seconds()
        if self._since is None:
            self._since, self._reason, self._is_told = now, reason, False
        self._told = {text: at for text, at in self._told.items() if abs(now - at) < REPEAT_SECONDS}
        if reason in self._told or len(self._told) >= REASONS_LIMIT:
            return False
        self._told[reason] = now
        self._is_told = True
        _log.error("{line}", line=self._line(reason))
        return True

    def over(self) -> bool:
        """Publishing works; whether it was refused before."""
        if self._since is None:
            return False
        seconds, self._since = max(0.0, self._clock.seconds() - self._since), None
        if self._is_told:
            _log.info(
                "publishing works again; it was refused for {seconds} s ({reason})",
                seconds=f"{seconds:.1f}",
                reason=self._reason,
            )
        return True
