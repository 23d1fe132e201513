"""Long polls: `GET /v1/poll`, `POST /v1/poll`, and `GET /v1/cursor`.

Reading the parameters (`poll_parameters`), asking whether the client may (`authorized_polls`) and the cursor are shared
with whatever else delivers messages; holding the request and writing one answer is what makes it a long poll.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from twisted.internet.defer import Deferred

from pushup.core.answer import Answer
from pushup.core.errors import PushUpError
from pushup.core.grant import EVERYTHING, Grant
from pushup.core.held_by_subject import HeldOnGrant
from pushup.core.poll import Poll
from pushup.core.subscription import Holder, Subscription
from pushup.net.api.authorized_polls import AuthorizedPolls
from pushup.net.api.bodies import json_response
from pushup.net.api.node_interface import Node
from pushup.net.api.poll_parameters import PollReader
from pushup.net.api.schemas import AnswerWithTicket
from pushup.net.application_interface import Cancellable, Exchange
from pushup.net.http_errors import TicketExpired, problem
from pushup.net.requests_and_responses import Request


class Polling:
    """Answers polls, or holds them until there is something to answer."""

    def __init__(self, node: Node, reader: PollReader, authorized_polls: AuthorizedPolls | None) -> None:
        self._node = node
        self._reader = reader
        self._authorized_polls = authorized_polls

    def poll_by_query(self, request: Request, query: bytes, exchange: Exchange, grant: Grant) -> Deferred[None] | None:
        return self._poll(self._reader.from_query(query), request, exchange, grant)

    def poll_by_body(self, request: Request, query: bytes, exchange: Exchange, grant: Grant) -> Deferred[None] | None:
        return self._poll(self._reader.from_body(request.body), request, exchange, grant)

    def cursor(self, request: Request, query: bytes, exchange: Exchange, grant: Grant) -> None:
        exchange.respond(json_response({"cursor": str(self._node.here)}))

    def _poll(self, poll: Poll, request: Request, exchange: Exchange, grant: Grant) -> Deferred[None] | None:
        if grant.rights.get("read") is EVERYTHING:
            result = self._node.poll(poll, exchange)
            if isinstance(result, Subscription):
                exchange.hold(result)
            else:
                exchange.answer(result)
            return None
        authorized_polls = self._authorized_polls
        assert authorized_polls is not None  # or everybody may read everything
        granted = partial(self._poll_granted, poll, exchange, authorized_polls)
        return authorized_polls.when_granted(poll, request, exchange, granted)

    def _poll_granted(self, poll: Poll, exchange: Exchange, authorized_polls: AuthorizedPolls, grant: Grant) -> None:
        granted = GrantedPoll(exchange, grant, authorized_polls)
        result = self._node.poll(poll, granted, authorized_polls.seconds_left(grant))
        if isinstance(result, Subscription):
            granted.hold(result)
        else:
            granted.answer(result)


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
