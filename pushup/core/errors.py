"""What can go wrong, each with the HTTP status it deserves. One place, `net.responses`, turns them into problems."""

from __future__ import annotations


class PushUpError(Exception):
    """An error that a client or a publisher is told about.

    `code` names the kind of problem for programs, `status` is the HTTP status, `title` the kind in words
    (RFC 9457); `field` names the input at fault, where there is one; `retry_after` is in seconds.
    `operator_detail` says what exactly is wrong (a host, a path, another program's error): it is for the operator's
    eyes, and never part of the problem that a client gets.
    """

    code = "internal-error"
    status = 500
    title = "Something went wrong in this server"

    def __init__(
        self, detail: str, *, field: str | None = None, retry_after: int | None = None, operator_detail: str = ""
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.field = field
        self.retry_after = retry_after
        self.operator_detail = operator_detail


class BadRequest(PushUpError):
    code = "bad-request"
    status = 400
    title = "The request is malformed"


class SpokeTls(BadRequest):
    """A TLS handshake where plain HTTP is expected."""


class Unauthorized(PushUpError):
    code = "unauthorized"
    status = 401
    title = "It is not known who you are"


class TicketExpired(PushUpError):
    code = "ticket-expired"
    status = 401
    title = "The ticket's time is over"


class Forbidden(PushUpError):
    code = "forbidden"
    status = 403
    title = "This is not allowed"


class ForbiddenOrigin(Forbidden):
    """A page of another origin that may not do this."""


class UnknownResource(PushUpError):
    code = "unknown-resource"
    status = 404
    title = "There is nothing at this path"


class UnknownChannel(PushUpError):
    code = "unknown-channel"
    status = 404
    title = "The channel does not exist"


class MethodNotAllowed(PushUpError):
    """`allow`: the methods that this path takes, for the header of that name."""

    code = "method-not-allowed"
    status = 405
    title = "This path does not take this method"

    def __init__(self, detail: str, *, field: str | None = None, allow: str = "") -> None:
        super().__init__(detail, field=field)
        self.allow = allow


class RequestTimeout(PushUpError):
    code = "request-timeout"
    status = 408
    title = "The request took too long to arrive"


class ChannelExists(PushUpError):
    code = "channel-exists"
    status = 409
    title = "A channel of this name lives"


class MisdirectedRequest(PushUpError):
    code = "misdirected-request"
    status = 421
    title = "This server does not answer to this name"


class KeyReused(PushUpError):
    code = "idempotency-key-reused"
    status = 422
    title = "Idempotency key reused for another publication"


class MessageTooLarge(PushUpError):
    code = "message-too-large"
    status = 413
    title = "The message is too large"


class RequestTooLarge(PushUpError):
    code = "request-too-large"
    status = 413
    title = "The request body is too large"


class TargetTooLong(PushUpError):
    code = "target-too-long"
    status = 414
    title = "The request target is too long"


class ExpectationFailed(PushUpError):
    code = "expectation-failed"
    status = 417
    title = "The expectation cannot be met"


class HeadersTooLarge(PushUpError):
    code = "headers-too-large"
    status = 431
    title = "The request headers are too large"


class InternalError(PushUpError):
    """An unexpected failure; what it was stands in the log, not in the answer."""


class Overloaded(PushUpError):
    code = "overloaded"
    status = 503
    title = "The server is at a limit"


class Unavailable(PushUpError):
    code = "unavailable"
    status = 503
    title = "The server cannot do this now"


class OutOfOrder(Exception):
    """An entry that does not follow the last one: a hole, a repetition or a fork in the broadcast."""
