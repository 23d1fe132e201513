"""Who may poll, when the application decides: a client with a valid ticket, and one that the application allows.

A ticket comes in the header field `PushUp-Ticket`. If a client has no valid one, the application is asked
about it, and the answer contains a new ticket. What a client may poll is a `Grant`, which ends when its ticket expires;
no poll is held for longer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from twisted.internet.defer import Deferred

from pushup.core.answer import Answer
from pushup.core.errors import Overloaded, PushUpError
from pushup.core.grant import Grant
from pushup.core.held_by_subject import HeldOnGrant
from pushup.core.poll import Poll
from pushup.core.subscription import Holder, Subscription
from pushup.net.api.access import check_channels
from pushup.net.api.bodies import json_response
from pushup.net.api.node_interface import Node
from pushup.net.api.schemas import AnswerWithTicket
from pushup.net.application_interface import Cancellable, Exchange
from pushup.net.http_errors import TicketExpired, problem
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

    def grant(self, poll: Poll, request: Request) -> Grant | Deferred[Grant]:
        """What the client may poll, at once if its ticket is valid; cancel the Deferred when it disconnects.

        Raises: Overloaded; UnknownChannel. The Deferred fails with: UnknownChannel; the PushUpError with which the
        application refuses the client, or which says that it could not be asked. Only clients that may poll learn that
        a channel is unknown.
        """
        channels = poll.selection.channels
        grant = self._authorization.grant_of(request.header(TICKET_HEADER), channels)
        if grant is not None:
            return self._granted(grant, channels)
        size = request.size + poll.selection.size
        if self._asking_bytes + size > self._limit_bytes:
            raise Overloaded(
                "too many polls are waiting for the application's decision (authorize_queue_limit_bytes)",
                retry_after=RETRY_AFTER_SECONDS,
            )
        self._asking_bytes += size
        decision = self._authorization.ask(channels, request.headers)
        decision.addBoth(self._asked, size)
        return decision.addCallback(self._granted, channels)

    def when_granted(
        self, poll: Poll, request: Request, exchange: Exchange, call: Callable[[Grant], None]
    ) -> Deferred[None] | None:
        """Call with the grant, now or later; the request is held meanwhile. As `grant`, but for what it returns."""
        grant = self.grant(poll, request)
        if isinstance(grant, Deferred):
            exchange.hold(grant)
            return grant.addCallback(call)
        call(grant)
        return None

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


class GrantedPoll:
    """Answers a poll while its grant is valid; after that the client has to poll again."""

    __slots__ = ("_authorized_polls", "_exchange", "_subscription", "grant")

    def __init__(self, exchange: Exchange, grant: Grant, authorized_polls: AuthorizedPolls) -> None:
        self._exchange = exchange
        self.grant = grant
        self._authorized_polls = authorized_polls
        self._subscription: Subscription[Any] | None = None  # while it is held

    def hold(self, subscription: Subscription[Any]) -> None:
        """There is nothing to answer yet."""
        self._subscription = subscription
        self._authorized_polls.node.held_by_subject.add(self)
        self._exchange.hold(self)

    def cancel(self) -> None:
        """The client has left; one whose poll was answered is ignored."""
        subscription = self._release()
        if subscription is not None:
            self._authorized_polls.node.abandon(subscription)

    def end(self, error: PushUpError) -> None:
        """Answer with an error before there is something to answer; ignored if it is not held, or its answer is due."""
        if self._subscription is not None and self._subscription.holder is not None:
            self.cancel()
            self._exchange.respond(problem(error))

    def _release(self) -> Subscription[Any] | None:
        """No longer held; returns what it waited in."""
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            self._authorized_polls.node.held_by_subject.discard(self)
        return subscription

    def answer(self, answer: Answer) -> None:
        self._release()
        ticket = self.grant.new_ticket
        if self._authorized_polls.seconds_left(self.grant) <= 0:
            # The answer is not lost: the client's cursor has not moved.
            self._exchange.respond(problem(TicketExpired("poll again, without this ticket")))
        elif ticket:
            told = AnswerWithTicket(answer.cursor, answer.messages, answer.more, answer.gaps, answer.closed, ticket)
            self._exchange.respond(json_response(told))
        else:
            self._exchange.answer(answer)


_check: tuple[type[Holder], type[Cancellable], type[HeldOnGrant]] = (GrantedPoll, GrantedPoll, GrantedPoll)
