"""Who may poll what: whoever has a token (or a key) for it, whom the application allows, or everybody, by channel.

A token, or the application's decision, is a `Grant`, and ends: no poll is held for longer. The application is asked
about a client that has no valid ticket (header field `PushUp-Ticket`); its answer comes with a new one.

| what a client has | where it is sent | what reads it | for whom its request counts (`quotas`) |
|---|---|---|---|
| publish key | `Authorization: Bearer` | `Access.grant_for_poll` | the key |
| signed token | the same | `Access.grant_for_poll` | its subject |
| signed token | `token` in a body | `with_token` | its subject |
| signed token | a cookie (`token_cookie`) | `Access.grant_for_poll`; of a POST, `with_token` | its subject |
| ticket | `PushUp-Ticket` | `when_granted` | the client's address |
| URL ticket | `ticket=` of a stream | `UrlTickets.grant` | its token's subject |
| what the application knows | the same, or any field | the application (`when_granted`) | the client's address |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from twisted.internet.defer import Deferred

from pushup.core.channels import unknown_channel
from pushup.core.errors import (
    BadRequest,
    Forbidden,
    InvalidToken,
    Overloaded,
    PushUpError,
    TokenExpired,
    Unauthorized,
    revoked,
)
from pushup.core.grant import EVERYTHING, NOTHING, Grant
from pushup.core.poll import Poll
from pushup.net.api.access import Access, bearer
from pushup.net.api.node_interface import Node
from pushup.net.application_interface import Exchange
from pushup.net.http_errors import TicketExpired
from pushup.net.requests_and_responses import Request

TICKET_HEADER = b"pushup-ticket"

RETRY_AFTER_SECONDS = 2
"""When a poll that was refused because of too many others may be tried again; some of those are answered by then."""

BEFORE_END_SECONDS = 0.25
"""A poll on a token is answered this long before its end, with its cursor: later its client would get only an error."""

APPLICATION_TOKEN_LIMIT = 6 * 1024
"""Characters of a token that the application is shown."""

_VISIBLE = re.compile(r"[!-~]+").fullmatch

T = TypeVar("T")


class Authorization(Protocol):
    """Asks the application who may poll what."""

    def grant_of(self, ticket: str, channels: tuple[str, ...]) -> Grant | None:
        """The grant in a ticket for polls of these channels; None if it does not allow them now."""

    def key_ends(self) -> dict[str, float]:
        """Until when the key of tickets is valid, by its `Grant.key_id`."""

    def ask(self, channels: tuple[str, ...], headers: Mapping[bytes, bytes]) -> Deferred[Grant]:
        """Ask whether the client with these header fields may poll these channels.

        Fires with a grant that has a ticket; fails with a PushUpError.
        """


class UrlTicketSealer(Protocol):
    """Has the key of URL tickets (`pushup.backends.tickets`)."""

    def seal_for_url(self, channels: tuple[str, ...], origin: str, token: Grant) -> str:
        """A ticket for exactly these channels and the pages of this origin, which stands for a token."""

    def open_of_url(self, ticket: str, channels: tuple[str, ...], origin: str) -> Grant | None:
        """The grant in a ticket, which may have expired; None if it is not for these channels and this origin."""

    def url_key_ends(self, ends: Mapping[str, float]) -> dict[str, float]:
        """Until when URL tickets may be valid, by their `Grant.key_id`. `ends`: the same for the keys of tokens."""


class PollAccess:
    """Gives polls their grants."""

    def __init__(
        self,
        node: Node,
        access: Access,
        wall: Callable[[], float],
        authorization: Authorization | None = None,
        limit_bytes: int = 0,
    ) -> None:
        """`wall` returns seconds since the epoch, as in tokens and tickets.

        `limit_bytes`: the memory that all requests together may take while the application is asked about them.
        """
        self.node = node
        self._wall = wall
        self._access = access
        self.rules = access.rules
        self.quotas = access.quotas
        self._authorization = authorization
        self._limit_bytes = limit_bytes
        self._asking_bytes = 0
        self.url_tickets: UrlTicketSealer | None = None
        """None: no URL tickets are issued and accepted."""

    def when_granted(
        self, poll: Poll, grant: Grant, request: Request, exchange: Exchange, call: Callable[[Grant], None]
    ) -> Deferred[None] | None:
        """Call with what the client may poll: at once, or when the application has decided; it is held meanwhile.

        `grant`: what its token or key allows. The call gets NOTHING if nothing is needed, and nothing was sent.
        Raises: Unauthorized, Forbidden, Revoked; BadRequest; Overloaded; UnknownChannel. The Deferred fails with these,
        and with the PushUpError with which the application refuses the client, or which says that it was not asked.
        Only clients that may poll learn that a channel is unknown.
        """
        if grant is NOTHING and self.rules.everybody_polls:
            call(grant)
            return None
        channels = poll.selection.channels
        uncovered = self._uncovered(channels, grant)
        if not uncovered:
            if self.seconds_to_hold(grant) <= 0:
                raise self.why_ended(grant)
            call(grant)
            return None
        self._check_sender(uncovered, channels, grant)
        assert self._authorization is not None  # or no rule would name it
        granted = self._authorization.grant_of(request.header(TICKET_HEADER), uncovered)
        if granted is not None and not self.node.is_revoked(granted):
            self._check_covered(granted, channels)
            call(granted)
            return None
        decision = self._ask(uncovered, poll, request)
        decision.addCallback(self._check_covered, channels)
        exchange.hold(decision)
        return decision.addCallback(call)

    def with_token(self, grant: Grant, token: str | None, request: Request) -> Grant:
        """The same, or what the token in the body allows, or the cookie.

        If tokens are not verified here, the application is shown it, as if it had come in the head. Browsers ask before
        they send one there, but not before they send one in a body.
        Raises: BadRequest, and as `Access.grant_of_body`.
        """
        if token is None:
            return self._access.grant_of_body(None, request) if self._access.cookie and grant is NOTHING else grant
        verifies = self._access.verifies_tokens or self._authorization is None
        if bearer(request) or (not verifies and b"authorization" in request.headers):
            raise BadRequest("send a token either in the body or as Authorization: Bearer, not both", field="token")
        if verifies:
            return self._access.grant_of_body(token, request)
        if not 0 < len(token) <= APPLICATION_TOKEN_LIMIT or not _VISIBLE(token):
            limit = APPLICATION_TOKEN_LIMIT
            raise BadRequest(f"a token has 1 to {limit} characters, printable ASCII without spaces", field="token")
        request.headers = {**request.headers, b"authorization": b"Bearer " + token.encode()}
        return grant

    def seconds_left(self, grant: Grant) -> float:
        """How long the grant is still valid; 0 or less if it has expired, or was revoked."""
        return 0.0 if self.node.is_revoked(grant) else grant.valid_until - self._wall()

    def seconds_to_hold(self, grant: Grant) -> float:
        """For how long to hold a poll: on a token a little shorter than it is valid."""
        return self.seconds_left(grant) - (BEFORE_END_SECONDS if grant.is_of_token else 0.0)

    def why_ended(self, grant: Grant) -> PushUpError:
        """What to tell a client whose grant is not valid any more."""
        if self.node.is_revoked(grant):
            return revoked()
        if grant.key_name:
            return Unauthorized(f"the key {grant.key_name!r} was withdrawn")
        if not grant.is_of_token:
            return TicketExpired("poll again, without this ticket")
        if self.seconds_to_hold(grant) > 0:
            return InvalidToken("the key that the token was signed with was withdrawn; poll again with another token")
        return TokenExpired("the token has expired; poll again with another")

    def end_withdrawn(self) -> None:
        """End what is held on keys that are not valid any more, or end earlier than they did."""
        ends = self._key_ends()
        self.node.held_on_grants.end_all(lambda grant: self.why_ended(grant) if _is_withdrawn(grant, ends) else None)

    def is_withdrawn(self, grant: Grant) -> bool:
        """Whether a key that the grant stands on is not valid any more. Raises: Unavailable while it is looked for."""
        ends = self._key_ends()
        if grant.key_id not in ends:
            self._access.look_for_keys()
        return _is_withdrawn(grant, ends)

    def _key_ends(self) -> dict[str, float]:
        """Until when each key is valid: its `Grant.key_id`, and seconds since the epoch."""
        ends = self._access.key_ends()
        if self.url_tickets is not None:
            ends |= self.url_tickets.url_key_ends(ends)
        if self._authorization is not None:
            ends |= self._authorization.key_ends()
        return ends

    def _uncovered(self, channels: tuple[str, ...], grant: Grant) -> tuple[str, ...]:
        """Those channels that the grant does not allow, and not everybody may poll.

        Rights are for names. The id of a channel with a name is treated as an id that no channel has.
        Raises: Revoked; UnknownChannel.
        """
        if self.node.is_revoked(grant):
            raise revoked()
        if grant.rights.get("read") is EVERYTHING:
            return ()
        uncovered: list[str] = []
        unknown = ""
        for channel in channels:
            name, is_closed = self.node.name_of(channel), self.rules.of(channel).poll != "anyone"
            is_allowed = grant.allows("read", (channel,))
            if name != channel and self.rules.of(name).poll != "anyone" and (is_allowed or not is_closed):
                unknown = channel
            elif is_closed and not is_allowed:
                uncovered.append(channel)
        if unknown and not uncovered:
            raise unknown_channel(unknown)
        return tuple(uncovered)

    def _check_sender(self, uncovered: tuple[str, ...], channels: tuple[str, ...], grant: Grant) -> None:
        """Check that the application can decide about what the client's token does not cover.

        Raises: Unauthorized, Forbidden, BadRequest.
        """
        for channel in uncovered:
            if self.rules.of(channel).poll == "token":
                if grant.is_of_token:
                    raise Forbidden(f"the token does not allow polling {channel!r}: add it to the token's rights")
                raise Unauthorized(f"polling {channel!r} takes a token: Authorization: Bearer <token>")
        if any(grant.allows("read", (channel,)) for channel in channels):
            raise BadRequest(
                f"poll {uncovered[0]!r}, about which the application decides, apart from what your token allows",
                field="channels",
            )

    def _check_covered(self, grant: Grant, channels: tuple[str, ...]) -> Grant:
        """Check again, for the application may have taken its time. Raises: Forbidden, Revoked, UnknownChannel."""
        if self._uncovered(channels, grant):
            raise Forbidden("you may not poll here: not all of these channels are allowed")
        return grant

    def _ask(self, channels: tuple[str, ...], poll: Poll, request: Request) -> Deferred[Grant]:
        """Raises: Overloaded."""
        assert self._authorization is not None
        size = request.size + poll.selection.size
        if self._asking_bytes + size > self._limit_bytes:
            raise Overloaded(
                "too many polls are waiting for the application's decision (authorize_queue_limit_bytes)",
                retry_after=RETRY_AFTER_SECONDS,
            )
        self._asking_bytes += size
        return self._authorization.ask(channels, request.headers).addBoth(self._asked, size)

    def _asked(self, result: T, size: int) -> T:
        self._asking_bytes -= size
        return result


def _is_withdrawn(grant: Grant, ends: Mapping[str, float]) -> bool:
    return bool(grant.key_id) and grant.valid_until > ends.get(grant.key_id, 0.0)
