"""The errors that the core, the broadcasts and the backends raise; `net.http_errors` gives each its HTTP status.

Authorizer functions raise them, too: `Unauthorized`, `Forbidden` and the others may be imported from here
(docs/guide/security.md).

`Refusal` says why a server refuses a command, or a poll, though the request is in order: each reason once. What
publishers are answered, readiness and the metrics all come from there. The specifics (`operator_detail`) name hosts,
paths and errors of Redis or SQLite; the sentence names none of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, unique
from types import MappingProxyType

NOTHING_MORE: Mapping[str, int] = MappingProxyType({})


class PushUpError(Exception):
    """An error that a client or a publisher is told about.

    `field` names the input at fault, where there is one; `retry_after` is in seconds.
    `operator_detail` says what exactly is wrong (a host, a path, another program's error). Only operators see it; it
    is never part of what other clients get. `kind`: the reason, as a word for metrics (`Refusal`). `more`: what else
    programs can use, by name.
    """

    def __init__(
        self,
        detail: str,
        *,
        field: str | None = None,
        retry_after: int | None = None,
        operator_detail: str = "",
        kind: str = "",
        more: Mapping[str, int] = NOTHING_MORE,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.field = field
        self.retry_after = retry_after
        self.operator_detail = operator_detail
        self.kind = kind
        self.more = more


class BadRequest(PushUpError):
    """The request is malformed."""


class Unauthorized(PushUpError):
    """The client has to authenticate first."""


class InvalidToken(Unauthorized):
    """The client's token is not accepted; another may be."""


class TokenExpired(InvalidToken):
    """The client's token was good until now."""


class Revoked(InvalidToken):
    """What the client's token or ticket allowed was revoked."""


def revoked() -> Revoked:
    """The error of a client whose token or ticket does not count any more."""
    return Revoked("what you were allowed was revoked, or is from before the server lost its memory; log in again")


class Forbidden(PushUpError):
    """The client may not do this."""


class UnknownChannel(PushUpError):
    """The channel does not exist."""


class ChannelExists(PushUpError):
    """A channel with this name already exists."""


class KeyReused(PushUpError):
    """The idempotency key was used for another publication."""


class ProducerConflict(PushUpError):
    """The producer's numbers do not follow those of its last publication. `more` has the `next` one."""


class ProducerFenced(PushUpError):
    """A later epoch of the producer has published. `more` has the latest `epoch`."""


class Overloaded(PushUpError):
    """A limit is reached."""


class QuotaExceeded(PushUpError):
    """The client has done this too often lately."""


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


RETRY_AFTER_SECONDS = 1
"""`Retry-After` for publishers. At first, nodes retry the log more often than that."""


@unique
class Refusal(Enum):
    """A reason and its sentence, which anybody may read; its name is also its label in metrics."""

    # Of commands.
    UNREACHABLE = "the message log cannot be reached"
    LOADING = "this node is still loading the message log"  # for the first time; also of polls
    UNUSABLE = "this node cannot follow the message log"  # though it can be reached
    UNWRITABLE = "the message log cannot be written"  # because of the disk
    REFUSED = "the message log refused this request"  # if Redis says why in a known word, that is the kind
    NEW_EPOCH = "the message log has started a new epoch; retry"  # the command was for the one before
    UNKNOWN_OUTCOME = "this may or may not have been published; retry with the same Idempotency-Key"
    WAITING_LIMIT = "too many publications are waiting for the message log", Overloaded
    BUSY = "more publications arrive than this server can carry out", Overloaded
    STOPPING = "the server is stopping"
    # Of polls, and why a node is not ready.
    OUTDATED = "this node has not caught up with the message log, and may lack the newest messages", Unavailable, False
    UNKNOWN_EPOCH = "this node has not yet loaded the epoch of this cursor", Unavailable, False
    DRAINING = "this node is draining", Unavailable, False

    def __init__(self, detail: str, error: type[PushUpError] = Unavailable, is_of_commands: bool = True) -> None:
        self.detail = detail
        self.error = error
        self.is_of_commands = is_of_commands

    @property
    def kind(self) -> str:
        """A word for metrics."""
        return self.name.lower()

    def __call__(self, operator_detail: str = "", *, detail: str = "", kind: str = "") -> PushUpError:
        """The error; with a `detail` or a `kind` that says more than this one."""
        return self.error(
            detail or self.detail,
            retry_after=RETRY_AFTER_SECONDS,
            operator_detail=operator_detail,
            kind=kind or self.kind,
        )
