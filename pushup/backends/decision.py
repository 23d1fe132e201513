"""What an application can decide about a poll, the same for an HTTP reply and for a function's return value."""

from __future__ import annotations

import math
from typing import NoReturn

from twisted.python.failure import Failure

from pushup.backends.limited_service import RETRY_AFTER_SECONDS
from pushup.core.errors import Forbidden, Overloaded, Unauthorized, Unavailable

TICKET_LIMIT_SECONDS = 86_400.0
"""The longest lifetime of a ticket, whatever the application says: a ticket cannot be revoked."""


def allowed_for(seconds: float, source: str) -> float:
    """The seconds that `source` (authorize_url or the authorizer) allows, at most a day.

    Raises: Unavailable when this is not a duration.
    """
    if not 0 < seconds < math.inf:
        raise no_decision(f"{source} allowed a number of seconds that is not finite and above 0")
    return float(min(seconds, TICKET_LIMIT_SECONDS))


def not_logged_in() -> Unauthorized:
    return Unauthorized("your application returned 401: the user is not logged in")


def not_allowed() -> Forbidden:
    return Forbidden("the application does not allow you to poll these channels")


def no_decision(operator_detail: str, cause: BaseException | None = None) -> Unavailable:
    """The error when the application did not decide. Clients learn that it failed, and only operators why."""
    error = Unavailable(
        "the authorization service gave no usable answer; try again",
        retry_after=RETRY_AFTER_SECONDS,
        operator_detail=operator_detail,
    )
    error.__cause__ = cause
    return error


def call_failed(failure: Failure) -> NoReturn:
    """Replace the errors of a call that was not made or timed out by ones that clients may see.

    Raises: Unavailable, Overloaded; any other error as it is.
    """
    error = failure.value
    if isinstance(error, Overloaded):
        detail = "too many polls are waiting for authorization; try again"
        raise Overloaded(detail, retry_after=error.retry_after, operator_detail=error.detail)
    if isinstance(error, Unavailable):
        raise no_decision(error.detail, error.__cause__)
    failure.raiseException()
