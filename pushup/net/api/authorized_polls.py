"""Who may poll, when the application decides: a client with a valid ticket, and one that the application allows.

A ticket comes in the header field `PushUp-Ticket`. If a client has no valid one, the application is asked
about it, and the answer contains a new ticket. What a client may poll is a `Grant`, which ends when its ticket expires;
no poll is held for longer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from twisted.internet.defer import Deferred

from pushup.core.errors import Overloaded
from pushup.core.grant import Grant
from pushup.core.poll import Poll
from pushup.net.api.access import check_channels
from pushup.net.api.node_interface import Node
from pushup.net.application_interface import Exchange
from pushup.net.requests_and_responses import Request

TICKET_HEADER = b"pushup-ticket"

RETRY_AFTER_SECONDS = 2
"""When a poll that was refused because of too many others may be tried again; some of those are answered by then."""

T = TypeVar("T")


class Authorization(Protocol):
    """Decides who may poll what."""

    def grant_of(self, ticket: str, channels: tuple[str, ...]) -> Grant | None:
        """The grant in a ticket for polls of these channels; None if it does not allow them now."""

    def ask(self, channels: tuple[str, ...], headers: Mapping[bytes, bytes]) -> Deferred[Grant]:
        """Ask whether the client with these header fields may poll these channels.

        Fires with a grant that has a ticket; fails with a PushUpError.
        """


class AuthorizedPolls:
    """Gives polls their grants."""

    def __init__(self, node: Node, authorization: Authorization, wall: Callable[[], float], limit_bytes: int) -> None:
        """`wall` returns seconds since the epoch, as in tickets.

        `limit_bytes`: the memory that all requests together may take while the application is asked about them.
        """
        self.node = node
        self._authorization = authorization
        self._wall = wall
        self._limit_bytes = limit_bytes
        self._asking_bytes = 0

    def when_granted(
        self, poll: Poll, request: Request, exchange: Exchange, call: Callable[[Grant], None]
    ) -> Deferred[None] | None:
        """Call with what the client may poll: at once if its ticket is valid, or later; the request is held meanwhile.

        Raises: Overloaded; UnknownChannel. The Deferred fails with: UnknownChannel; the PushUpError with which the
        application refuses the client, or which says that it could not be asked. Only clients that may poll learn that
        a channel is unknown.
        """
        channels = poll.selection.channels
        grant = self._authorization.grant_of(request.header(TICKET_HEADER), channels)
        if grant is not None:
            call(self._granted(grant, channels))
            return None
        size = request.size + poll.selection.size
        if self._asking_bytes + size > self._limit_bytes:
            raise Overloaded(
                "too many polls are waiting for the application's decision (authorize_queue_limit_bytes)",
                retry_after=RETRY_AFTER_SECONDS,
            )
        self._asking_bytes += size
        decision = self._authorization.ask(channels, request.headers)
        decision.addBoth(self._asked, size)
        decision.addCallback(self._granted, channels)
        exchange.hold(decision)
        return decision.addCallback(call)

    def seconds_left(self, grant: Grant) -> float:
        """How long the grant is still valid; 0 or less if it has expired."""
        return grant.valid_until - self._wall()

    def _asked(self, result: T, size: int) -> T:
        self._asking_bytes -= size
        return result

    def _granted(self, grant: Grant, channels: tuple[str, ...]) -> Grant:
        """Raises: UnknownChannel."""
        check_channels(grant, "read", channels, self.node)
        return grant
