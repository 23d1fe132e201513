"""Who may poll what: asks the application once, and seals its decision in a ticket (docs/guide/authorization.md)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from typing import Protocol
from urllib.parse import urlsplit

from msgspec import Struct
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from pushup.backends.decision import TICKET_LIMIT_SECONDS, Decision
from pushup.backends.tickets import Tickets
from pushup.core.errors import Forbidden, Unauthorized, Unavailable
from pushup.core.grant import Grant, to_read
from pushup.secret_files import MIN_KEY_LENGTH

EARLY = 0.15
"""Tickets end early by a random fraction of their lifetime, at most this, so that clients do not renew them all at
once."""

_log = Logger()


class AuthorizationSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether and how the application is asked who may poll what."""

    authorize_url: str = ""
    """URL at which the web application is asked, with GET and the channels as parameters. Empty: not asked."""
    authorizer: str = ""
    """The operator's own function to ask instead, as `package.module:function`. It may block."""
    authorize_at_most: int = 20
    """Maximum number of concurrent requests to `authorize_url`, or of threads that call the authorizer."""
    authorize_queue_limit: int = 10_000
    """Maximum number of polls that wait for their turn to be authorized; further ones get 503."""
    authorize_queue_limit_bytes: int = 64 * 1024 * 1024
    """Maximum memory for the requests of polls that are being authorized or wait for it; further ones get 503."""
    authorize_timeout_seconds: float = 10.0
    """Maximum time to authorize a poll, waiting for its turn included; then it gets 503."""
    ticket_seconds: float = 120.0
    """Lifetime of a ticket when the application gives none. At most a day."""
    ticket_key: str = ""
    """Key that seals tickets, the same on all nodes. Empty: a random one for the lifetime of this process."""
    ticket_key_file: str = ""
    """File that contains this key."""

    def mistakes(self) -> Iterator[tuple[str, str]]:
        """Each setting whose value cannot be used, and why."""
        if self.authorize_url and self.authorizer:
            yield "authorizer", "set either authorize_url or authorizer, not both"
        if self.authorize_url:
            text = url_mistake(self.authorize_url)
            if text is not None:
                yield "authorize_url", text
        if self.ticket_key and len(self.ticket_key) < MIN_KEY_LENGTH:
            yield "ticket_key", f"a key has at least {MIN_KEY_LENGTH} characters"
        if self.ticket_seconds > TICKET_LIMIT_SECONDS:
            yield "ticket_seconds", "must be at most a day (1d)"


def url_mistake(url: str) -> str | None:
    """Why this URL cannot be asked, or None."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return f"{url!r} is not of the form http://host:port/path"
    if parts.username is not None or parts.password is not None:
        return "a user or a password in the URL is not supported; remove it"
    is_plain = url.isascii() and url.isprintable() and " " not in url and not parts.fragment
    if not is_plain or parts.scheme not in ("http", "https") or not host or port == 0:
        return f"{url!r} is not of the form http://host:port/path"
    if parts.scheme == "https" and find_spec("OpenSSL") is None:
        return "https needs the extra packages for TLS: pip install '.[tls]' in a checkout of PushUp"
    return None


class Authorizer(Protocol):
    """Asks the application."""

    def __call__(self, channels: tuple[str, ...], headers: Mapping[bytes, bytes]) -> Deferred[Decision]:
        """Ask whether the client with these header fields (names in lower case) may poll all these channels.

        Fires with the decision if so. Fails with Unauthorized or Forbidden if not; with Unavailable or Overloaded if
        the application did not decide; with BadRequest if it cannot be asked about this poll.
        """

    def stop(self) -> Deferred[None] | None:
        """Ask no more; may fire later, when what it has opened is closed."""

    def renew_connections(self) -> None:
        """Ask over new connections from now on, if it uses any: certificates may have been replaced."""


class Authorization:
    """Decides about polls, by their tickets or by asking the application."""

    def __init__(
        self,
        authorizer: Authorizer,
        *,
        tickets: Tickets,
        ticket_seconds: float,
        limit_seconds: float,
        wall: Callable[[], float],
        random: Callable[[], float],
    ) -> None:
        """`wall` returns seconds since the epoch, as on the other nodes; `random` a number in [0, 1).

        `limit_seconds`: the longest lifetime of a ticket.
        """
        self._authorizer = authorizer
        self._tickets = tickets
        self._ticket_seconds = ticket_seconds
        self._limit_seconds = limit_seconds
        self._wall = wall
        self._random = random
        self._is_failing = False

    def use_tickets(self, tickets: Tickets) -> None:
        """Seal and accept tickets with another key. Tickets sealed before are no longer valid."""
        self._tickets = tickets

    def key_ends(self) -> dict[str, float]:
        """Until when the key of tickets is valid, by its `Grant.key_id`."""
        return {self._tickets.key_id: math.inf}

    def renew_connections(self) -> None:
        """Ask over new connections from now on, which trust the certificates that are installed now."""
        self._authorizer.renew_connections()

    async def stop(self) -> None:
        """Ask no more."""
        await maybeDeferred(self._authorizer.stop)

    def grant_of(self, ticket: str, channels: tuple[str, ...]) -> Grant | None:
        """The grant in this ticket for these channels; None if it is not valid now.

        O(channels log channels), 7 us for one.
        """
        grant = self._tickets.open(ticket, channels) if ticket else None
        return grant if grant is not None and grant.valid_until > self._wall() else None

    def ask(self, channels: tuple[str, ...], headers: Mapping[bytes, bytes]) -> Deferred[Grant]:
        """Ask the application; fires with a grant that has a ticket, and fails as `Authorizer` does."""
        return Deferred.fromCoroutine(self._decide(channels, headers))

    async def _decide(self, channels: tuple[str, ...], headers: Mapping[bytes, bytes]) -> Grant:
        # The application may have looked at its users at any moment since now: a logout a moment later is not in it.
        issued_at = int(self._wall())
        try:
            decision = await self._authorizer(channels, headers)
        except (Unauthorized, Forbidden):
            self._log_success()
            raise
        except Unavailable as error:
            self._log_failure(error)
            raise
        self._log_success()
        return self._grant(channels, decision, issued_at)

    def _grant(self, channels: tuple[str, ...], decision: Decision, issued_at: int) -> Grant:
        now, subject = self._wall(), decision.subject
        seconds = self._ticket_seconds if decision.seconds is None else decision.seconds
        lifetime = min(seconds, self._limit_seconds) * (1 - EARLY * self._random())
        expires = max(int(now + lifetime), int(now) + 1)  # whole seconds, and valid for a moment at least
        ticket = self._tickets.seal(channels, issued_at=issued_at, expires=expires, subject=subject)
        return to_read(channels, subject=subject, issued_at=issued_at, valid_until=expires, new_ticket=ticket)

    # Only changes are logged, not every poll: once when authorization starts to fail, once when it works again.

    def _log_failure(self, error: Unavailable) -> None:
        if self._is_failing:
            return
        self._is_failing = True
        cause = error.__cause__
        # The traceback of the operator's own function helps; one of our code or Twisted's would not.
        trace = None if cause is None or cause.__traceback__ is None else Failure(cause)
        _log.warn(
            "authorization is failing, so polls without a valid ticket get 503: {reason}",
            reason=error.operator_detail or error.detail, log_failure=trace,
        )  # fmt: skip

    def _log_success(self) -> None:
        if self._is_failing:
            self._is_failing = False
            _log.info("authorization works again")
