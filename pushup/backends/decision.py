"""What an application can decide about a poll, the same for an HTTP reply and for a function's return value."""

from __future__ import annotations

import math
from typing import NoReturn

from msgspec import Struct
from twisted.python.failure import Failure

from pushup.backends.limited_service import RETRY_AFTER_SECONDS
from pushup.core.errors import Forbidden, Overloaded, Unavailable
from pushup.core.grant import SUBJECT_LIMIT_BYTES, is_subject

TICKET_LIMIT_SECONDS = 86_400.0
"""The longest lifetime of a ticket, whatever the application says."""


class Decision(Struct, forbid_unknown_fields=True):
    """What an application says in JSON, or a function as a dict: `{"allow": true, "seconds": 60, "subject": "7"}`."""

    allow: bool
    seconds: float | None = None
    """None: the default."""
    subject: str = ""
    """Who the user is, whatever the application calls its users; empty: it does not say."""


def checked(decision: Decision, source: str) -> Decision:
    """A decision that `source` (authorize_url or the authorizer) has made: allowed, for at most a day.

    Raises: Forbidden; Unavailable when the seconds are not a duration or the subject cannot be one.
    """
    if not decision.allow:
        raise Forbidden("the application does not allow you to poll these channels")
    seconds, subject = decision.seconds, decision.subject
    if seconds is not None:
        if not 0 < seconds < math.inf:
            raise no_decision(f"{source} allowed a number of seconds that is not finite and above 0")
        seconds = float(min(seconds, TICKET_LIMIT_SECONDS))
    if not is_subject(subject):
        raise no_decision(
            f"{source} gave a subject that cannot be used; "
            f"expected at most {SUBJECT_LIMIT_BYTES} bytes of UTF-8 without control characters"
        )
    return Decision(True, seconds, subject)


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
