"""What the application may say, read the same way from an HTTP reply and from a function's return value."""

from __future__ import annotations

import math

from pushup.backends.limited_service import RETRY_AFTER_SECONDS
from pushup.core.errors import Forbidden, Unauthorized, Unavailable

TICKET_LIMIT_SECONDS = 86_400.0
"""No verdict holds for longer than a day, whatever the application says."""


def for_seconds(seconds: float) -> float:
    """Yes, for so long.

    Raises: Unavailable when that is no time.
    """
    if not 0 < seconds < math.inf:
        raise nonsense(f"{seconds!r} seconds")
    return float(min(seconds, TICKET_LIMIT_SECONDS))


def not_logged_in() -> Unauthorized:
    return Unauthorized("the application does not know who you are")


def not_allowed() -> Forbidden:
    return Forbidden("the application does not let you poll these channels")


def nonsense(what: str) -> Unavailable:
    """The application answered something that is no verdict."""
    return no_verdict(ValueError(f"it answered {what}"))


def no_verdict(cause: BaseException) -> Unavailable:
    """There is none. Why is for the log; clients need not know more."""
    error = Unavailable("the application has not said whether you may", retry_after=RETRY_AFTER_SECONDS)
    error.__cause__ = cause
    return error
