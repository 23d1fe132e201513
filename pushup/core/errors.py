"""The errors that the core, the broadcasts and the backends raise; `net.problems` gives each its HTTP status.

Authorizer functions raise them, too: `Unauthorized`, `Forbidden` and the others may be imported from here
(docs/guide/security.md).
"""

from __future__ import annotations


class PushUpError(Exception):
    """An error that a client or a publisher is told about.

    `field` names the input at fault, where there is one; `retry_after` is in seconds.
    `operator_detail` says what exactly is wrong (a host, a path, another program's error). Only operators see it; it
    is never part of what other clients get. `kind`: the reason, as a word for metrics (`refusals`).
    """

    def __init__(
        self,
        detail: str,
        *,
        field: str | None = None,
        retry_after: int | None = None,
        operator_detail: str = "",
        kind: str = "",
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.field = field
        self.retry_after = retry_after
        self.operator_detail = operator_detail
        self.kind = kind


class BadRequest(PushUpError):
    """The request is malformed."""


class Unauthorized(PushUpError):
    """The client has to authenticate first."""


class Forbidden(PushUpError):
    """The client may not do this."""


class UnknownChannel(PushUpError):
    """The channel does not exist."""


class ChannelExists(PushUpError):
    """A channel with this name already exists."""


class KeyReused(PushUpError):
    """The idempotency key was used for another publication."""


class Overloaded(PushUpError):
    """A limit is reached."""


class Unavailable(PushUpError):
    """The server, or something it depends on, cannot do this at the moment."""


class VersionTooNew(Exception):
    """An entry that needs the version `needed` of the state machine, by a release that knows only `version`."""

    def __init__(self, detail: str, *, needed: int, version: int) -> None:
        super().__init__(detail)
        self.needed = needed
        self.version = version


class OutOfOrder(Exception):
    """An entry that does not follow the last one: a hole, a repetition or a fork in the broadcast."""
