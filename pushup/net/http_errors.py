"""The errors of HTTP itself; those that have nothing to do with HTTP are in `core.errors`."""

from __future__ import annotations

from pushup.core.errors import BadRequest, Forbidden, Overloaded, PushUpError


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
