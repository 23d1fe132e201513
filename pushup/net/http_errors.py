"""The errors of HTTP, and all errors as responses (RFC 9457): one table of their statuses, codes, titles and labels.

Errors that have nothing to do with HTTP are in `core.errors`.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from msgspec import Struct

from pushup.core.errors import (
    BadRequest,
    ChannelExists,
    Forbidden,
    InvalidToken,
    KeyReused,
    Overloaded,
    ProducerConflict,
    ProducerFenced,
    PushUpError,
    QuotaExceeded,
    Revoked,
    TokenExpired,
    Unauthorized,
    Unavailable,
    UnknownChannel,
)
from pushup.net.requests_and_responses import Header, Response


class SpokeTls(BadRequest):
    """A TLS handshake where plain HTTP is expected."""


class TooManyConnections(Overloaded):
    """`connections_limit` is reached, and the request is not one of an operator."""


class TicketExpired(PushUpError):
    """The ticket of a held poll has expired."""


class ForbiddenOrigin(Forbidden):
    """A page of this origin may not do this."""


class UnknownResource(PushUpError):
    """There is no call at this path."""


class MethodNotAllowed(PushUpError):
    """The path exists, but not with this method; `allow` is the value of the Allow header field."""

    def __init__(self, detail: str, *, allow: str) -> None:
        super().__init__(detail)
        self.allow = allow


class NotAcceptable(PushUpError):
    """None of the formats that the client accepts is one that the call has."""


class RequestTimeout(PushUpError):
    """The request took too long to arrive."""


class MisdirectedRequest(PushUpError):
    """The request is addressed to a host name that this server does not serve."""


class UnknownMessage(PushUpError):
    """No message with this id is kept."""


class MessageTooLarge(PushUpError):
    """The data of one message is too large."""


class RequestTooLarge(PushUpError):
    """The body is too large."""


class TargetTooLong(PushUpError):
    """The path and query are too long."""


class HeadersTooLarge(PushUpError):
    """The header fields are too large together."""


class ExpectationFailed(PushUpError):
    """The request has an `Expect` that is not supported."""


class InternalError(PushUpError):
    """An unexpected failure; the cause is in the log, not in the response."""


class ProblemType(NamedTuple):
    """What all errors of one kind have in common: the HTTP status, the code for programs, the title for people.

    `refusal`: its label in `pushup_refusals_total`, if it says that this client may not do this.
    """

    status: int
    code: str
    title: str
    refusal: str = ""


PROBLEM_TYPES: dict[type[PushUpError], ProblemType] = {
    BadRequest: ProblemType(400, "bad-request", "Bad request"),
    SpokeTls: ProblemType(400, "bad-request", "Bad request", "tls"),
    Unauthorized: ProblemType(401, "unauthorized", "Authentication required", "unauthorized"),
    TicketExpired: ProblemType(401, "ticket-expired", "Ticket expired"),
    InvalidToken: ProblemType(401, "invalid-token", "Token not accepted", "token"),
    TokenExpired: ProblemType(401, "token-expired", "Token expired"),
    Revoked: ProblemType(401, "revoked", "Revoked", "revoked"),
    Forbidden: ProblemType(403, "forbidden", "Forbidden", "forbidden"),
    ForbiddenOrigin: ProblemType(403, "forbidden", "Forbidden", "origin"),
    UnknownResource: ProblemType(404, "unknown-resource", "Resource not found"),
    UnknownChannel: ProblemType(404, "unknown-channel", "Channel not found"),
    UnknownMessage: ProblemType(404, "unknown-message", "Message not found"),
    MethodNotAllowed: ProblemType(405, "method-not-allowed", "Method not allowed"),
    NotAcceptable: ProblemType(406, "not-acceptable", "No acceptable format"),
    RequestTimeout: ProblemType(408, "request-timeout", "Request timed out"),
    ChannelExists: ProblemType(409, "channel-exists", "Channel already exists"),
    ProducerConflict: ProblemType(409, "producer-sequence", "Not the producer's next number"),
    ProducerFenced: ProblemType(409, "producer-fenced", "Another producer has taken over"),
    MessageTooLarge: ProblemType(413, "message-too-large", "Message too large"),
    RequestTooLarge: ProblemType(413, "request-too-large", "Request body too large"),
    TargetTooLong: ProblemType(414, "target-too-long", "Request target too long"),
    ExpectationFailed: ProblemType(417, "expectation-failed", "Expectation failed"),
    MisdirectedRequest: ProblemType(421, "misdirected-request", "Misdirected request", "host"),
    KeyReused: ProblemType(422, "idempotency-key-reused", "Idempotency key already used"),
    QuotaExceeded: ProblemType(429, "quota-exceeded", "Too many requests", "quota"),
    HeadersTooLarge: ProblemType(431, "headers-too-large", "Request headers too large"),
    InternalError: ProblemType(500, "internal-error", "Internal server error"),
    Overloaded: ProblemType(503, "overloaded", "Server limit reached"),
    Unavailable: ProblemType(503, "unavailable", "Service unavailable"),
}
"""A subclass that is not listed is a problem of its nearest ancestor's type."""


class Problem(Struct, omit_defaults=True):
    type: str
    title: str
    status: int
    detail: str
    field: str | None = None
    next: int | None = None
    epoch: int | None = None


_encode = msgspec.json.Encoder().encode


def problem_type(error: type[PushUpError]) -> ProblemType:
    """The entry of an error's type, or of its nearest ancestor; errors of no listed kind are internal errors."""
    return next((PROBLEM_TYPES[kind] for kind in error.__mro__ if kind in PROBLEM_TYPES), PROBLEM_TYPES[InternalError])


def problem(error: PushUpError, *, for_operator: bool = False) -> Response:
    """The response to a request that failed; `for_operator` adds the details that only operators may see."""
    kind = problem_type(type(error))
    detail = f"{error.detail}: {error.operator_detail}" if for_operator and error.operator_detail else error.detail
    body = Problem(f"urn:pushup:{kind.code}", kind.title, kind.status, detail, error.field, **error.more)
    headers: tuple[Header, ...] = ()
    if isinstance(error, MethodNotAllowed):
        headers = ((b"Allow", error.allow.encode()),)
    if error.retry_after is not None:
        headers = (*headers, (b"Retry-After", str(error.retry_after).encode()))
    if kind.status == 401:
        reason = b', error="invalid_token"' if isinstance(error, InvalidToken) else b""  # RFC 6750 §3.1
        headers = (*headers, (b"WWW-Authenticate", b'Bearer realm="PushUp"' + reason))
    return Response(kind.status, _encode(body), b"application/problem+json", headers)
