"""Outages of publishing: since when, why, and their log lines.

The first refusal is logged with its reason, then each new reason, and the end with the duration. Each reason is logged
at most once a minute, even if outages come and go.
"""

from __future__ import annotations

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

REPEAT_SECONDS = 60.0
"""How long the same reason is not logged again."""

REASONS_LIMIT = 20
"""Maximum number of reasons logged within REPEAT_SECONDS. Some contain numbers, so that no two are equal."""

_log = Logger()


class OutageLog:
    """Logs when publishing is refused, and when it works again. `text`: what it logs, with `{reason}` in it."""

    def __init__(self, clock: IReactorTime, text: str) -> None:
        self._clock = clock
        self._text = text
        self._since: float | None = None
        self._reason = ""
        self._is_logged = False
        self._logged_at: dict[str, float] = {}  # when each reason was last logged

    @property
    def has_open_outage(self) -> bool:
        """Whether publishing is refused now."""
        return self._since is not None

    def refused(self, reason: str) -> bool:
        """Publishing is refused for this reason; returns whether that was logged."""
        now = self._clock.seconds()
        if self._since is None:
            self._since, self._reason, self._is_logged = now, reason, False
        self._logged_at = {text: at for text, at in self._logged_at.items() if now - at < REPEAT_SECONDS}
        if reason in self._logged_at or len(self._logged_at) >= REASONS_LIMIT:
            return False
        self._logged_at[reason] = now
        self._is_logged = True
        _log.error(self._text, reason=reason)
        return True

    def over(self) -> None:
        """Publishing works."""
        if self._since is None:
            return
        seconds, self._since = self._clock.seconds() - self._since, None
        if self._is_logged:
            _log.info(
                "publishing works again; it was refused for {seconds:.1f} s ({reason})",
                seconds=seconds,
                reason=self._reason,
            )
