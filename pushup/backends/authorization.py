"""Who may poll what: the application is asked, once, and its verdict is sealed in a ticket (docs/security.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from msgspec import Struct
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from pushup.backends.tickets import Tickets
from pushup.core.errors import Forbidden, PushUpError, Unauthorized, Unavailable

EARLY = 0.15
"""A ticket ends early by a random part up to this, so that clients do not come back for new ones in step."""

_log = Logger()


class AuthorizationLimits(Struct, frozen=True, kw_only=True):
    """Whether, how and how much the application is asked who may poll what."""

    authorize_url: str = ""
    """The web backend is asked here, with GET and the channels as parameters. Empty: it is not."""
    authorizer: str = ""
    """The operator's own function that is asked instead, `package.module:function`; it may block."""
    authorize_at_most: int = 20
    """Questions asked at a time: requests to the web backend, or threads."""
    authorize_queue_limit: int = 10_000
    """Questions that wait; beyond it 503."""
    authorize_queue_limit_bytes: int = 64 * 1024 * 1024
    """The requests that questions are asked about, those under way included; beyond it 503."""
    authorize_timeout_seconds: float = 10.0
    """From a client's poll to the verdict, waiting in the queue included; then it is 503."""
    ticket_seconds: float = 120.0
    """How long a verdict holds that does not say."""
    ticket_key: str = ""
    """What tickets are sealed with, the same on all nodes. Empty: a random one, which ends with this process."""
    ticket_key_file: str = ""
    """A file with this key."""


class Ask(Protocol):
    """Asks the application."""

    def __call__(self, channels: tuple[str, ...], headers: Mapping[bytes, bytes]) -> Deferred[float | None]:
        """May the client with these header fields (names in lower case) poll all these channels?

        Fires, if it may, with for how many seconds; None: as long as usual. Fails with Unauthorized or Forbidden if
        not; with Unavailable or Overloaded when there is no verdict, and with BadRequest when it cannot be asked.
        """


class Authorization:
    """Decides about polls, by their tickets or by asking."""

    def __init__(
        self,
        ask: Ask,
        *,
        tickets: Tickets,
        ticket_seconds: float,
        clock: IReactorTime,
        random: Callable[[], float],
    ) -> None:
        """`random` returns a number in [0, 1)."""
        self._ask = ask
        self._tickets = tickets
        self._ticket_seconds = ticket_seconds
        self._clock = clock
        self._random = random
        self._trouble = False

    def use_tickets(self, tickets: Tickets) -> None:
        """From now on seal tickets so, and take only such; those sealed before are no good any more."""
        self._tickets = tickets

    def expires(self, ticket: str, channels: tuple[str, ...]) -> int | None:
        """Until when, in seconds since the epoch, the ticket lets its bearer poll these channels; None if it does not.

        O(channels log channels), 4 us for one.
        """
        expires = self._tickets.expires(ticket, channels) if ticket else None
        return expires if expires is not None and expires > self._clock.seconds() else None

    def ask(self, channels: tuple[str, ...], headers: Mapping[bytes, bytes]) -> Deferred[tuple[str, int]]:
        """Ask the application; fires with a ticket and when it is over, and fails as `Ask` does."""
        return Deferred.fromCoroutine(self._decide(channels, headers))

    async def _decide(self, channels: tuple[str, ...], headers: Mapping[bytes, bytes]) -> tuple[str, int]:
        try:
            seconds = await self._ask(channels, headers)
        except (Unauthorized, Forbidden):
            self._went_well()
            raise
        except Unavailable as error:
            self._went_badly(error.__cause__ or error)
            raise
        self._went_well()
        return self._seal(channels, self._ticket_seconds if seconds is None else seconds)

    def _seal(self, channels: tuple[str, ...], seconds: float) -> tuple[str, int]:
        now = self._clock.seconds()
        lasting = seconds * (1 - EARLY * self._random())
        expires = max(int(now + lasting), int(now) + 1)  # whole seconds, and not over at once
        return self._tickets.seal(channels, expires), expires

    # The log is told once that there are no verdicts, and once that there are again; not for each poll.

    def _went_badly(self, cause: BaseException) -> None:
        if not self._trouble:
            self._trouble = True
            # Where an error of the operator's own code was raised is worth its lines; where one of ours was is not.
            trace = None if isinstance(cause, PushUpError) or cause.__traceback__ is None else Failure(cause)
            _log.warn("nobody without a ticket can poll: {cause!r}", cause=cause, log_failure=trace)

    def _went_well(self) -> None:
        if self._trouble:
            self._trouble = False
            _log.info("there are verdicts on who may poll again")
