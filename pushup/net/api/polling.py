"""Long polls: `GET /v1/poll`, `POST /v1/poll`, and `GET /v1/cursor`.

Reading the parameters (`poll_parameters`), finding out whether the client may (`poll_access`) and the cursor are shared
with whatever else delivers messages; holding the request and writing one answer is what makes it a long poll.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from twisted.internet.defer import Deferred

from pushup.core.answer import Answer
from pushup.core.cursor import Cursor
from pushup.core.errors import PushUpError, QuotaExceeded
from pushup.core.grant import NOTHING, Grant
from pushup.core.held_on_grants import HeldOnGrant
from pushup.core.poll import Poll, Selection
from pushup.core.subscription import Holder, Subscription
from pushup.net.api.bodies import json_response
from pushup.net.api.node_interface import Node
from pushup.net.api.poll_access import PollAccess
from pushup.net.api.poll_parameters import PollReader
from pushup.net.api.quotas import Place
from pushup.net.api.schemas import AnswerBeforeEnd
from pushup.net.application_interface import Cancellable, Exchange
from pushup.net.http_errors import problem
from pushup.net.requests_and_responses import Request

ENDS_SOON_SECONDS = 120.0
"""Answers say for how long a token is still valid when it is less than this. Others are the same for many clients, and
encoded once."""


class Polling:
    """Answers polls, or holds them until there is something to answer."""

    def __init__(self, node: Node, reader: PollReader, poll_access: PollAccess) -> None:
        self._node = node
        self._requests = node.metrics.requests
        self._reader = reader
        self._poll_access = poll_access
        self._rules = poll_access.rules
        self._quotas = poll_access.quotas

    def poll_by_query(self, request: Request, query: bytes, exchange: Exchange, grant: Grant) -> Deferred[None] | None:
        return self._poll(self._reader.from_query(query), request, exchange, grant)

    def poll_by_body(self, request: Request, query: bytes, exchange: Exchange, grant: Grant) -> Deferred[None] | None:
        poll, token, _ = self._reader.from_body(request.body)
        return self._poll(poll, request, exchange, self._poll_access.with_token(grant, token, request))

    def cursor(self, request: Request, query: bytes, exchange: Exchange, grant: Grant) -> None:
        exchange.respond(json_response({"cursor": str(self._node.here)}))

    def _poll(self, poll: Poll, request: Request, exchange: Exchange, grant: Grant) -> Deferred[None] | None:
        if self._quotas.counts_requests:
            self._quotas.count(request, grant, exchange)
        if grant is NOTHING and self._rules.everybody_polls:
            self._granted(poll, exchange, grant)
            return None
        return self._poll_access.when_granted(poll, grant, request, exchange, partial(self._granted, poll, exchange))

    def _open(self, poll: Poll, exchange: Exchange) -> None:
        """A poll that needs no grant and has no quota."""
        result = self._node.poll(poll, exchange)
        self._requests[exchange.route, 200] += 1  # now, and not for each delivery
        if isinstance(result, Subscription):
            exchange.hold(result)
        else:
            exchange.answer(result)

    def _granted(self, poll: Poll, exchange: Exchange, grant: Grant) -> None:
        if grant is NOTHING and not self._quotas.limits_held_polls:
            self._open(poll, exchange)
            return
        if grant.subject and isinstance(poll.cursor, Cursor):
            self._node.readers.note(grant.subject, poll.selection.channels, poll.cursor)
        granted = GrantedPoll(exchange, grant, self._poll_access)
        result = self._node.poll(poll, granted, self._poll_access.seconds_to_hold(grant))
        if not isinstance(result, Subscription):
            self._node.presence.seen(grant, poll.selection)
            granted.answer(result)
            return
        try:
            granted.hold(result)
        except QuotaExceeded:
            self._node.abandon(result)
            raise


class GrantedPoll:
    """Answers a poll while its grant is valid; after that the client has to poll again."""

    __slots__ = ("_exchange", "_place", "_poll_access", "_subscription", "grant")

    def __init__(self, exchange: Exchange, grant: Grant, poll_access: PollAccess) -> None:
        self._exchange = exchange
        self.grant = grant
        self._poll_access = poll_access
        self._subscription: Subscription[Any] | None = None  # while it is held
        self._place: Place | None = None  # what it takes of a quota

    def hold(self, subscription: Subscription[Any]) -> None:
        """There is nothing to answer yet. Raises: QuotaExceeded, and then it is not held."""
        self._place = self._poll_access.quotas.hold(self.grant, self._exchange)
        self._subscription = subscription
        self._poll_access.node.held_on_grants.add(self)
        self._exchange.hold(self)

    @property
    def selection(self) -> Selection:
        """While it is held."""
        assert self._subscription is not None
        return self._subscription.selection

    def cancel(self) -> None:
        """The client has left; one whose poll was answered is ignored."""
        subscription = self._release()
        if subscription is not None:
            self._poll_access.node.abandon(subscription)

    def end(self, error: PushUpError) -> None:
        """Answer with an error before there is something to answer; ignored if it is not held, or its answer is due."""
        if self._subscription is not None and self._subscription.holder is not None:
            self.cancel()
            self._exchange.respond(problem(error))

    def _release(self) -> Subscription[Any] | None:
        """No longer held; returns what it waited in."""
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            self._poll_access.node.held_on_grants.discard(self)
            self._poll_access.quotas.release(self._place)
        return subscription

    def answer(self, answer: Answer) -> None:
        self._release()
        grant, seconds = self.grant, self._poll_access.seconds_left(self.grant)
        if seconds <= 0:
            # The answer is not lost: the client's cursor has not moved.
            self._exchange.respond(problem(self._poll_access.why_ended(grant)))
        elif grant.new_ticket or (grant.is_of_token and seconds < ENDS_SOON_SECONDS):
            expires_in = int(seconds) if grant.is_of_token else None
            told = AnswerBeforeEnd(
                answer.cursor, answer.messages, answer.more, answer.gaps, answer.closed, grant.new_ticket, expires_in
            )
            self._exchange.respond(json_response(told))
        else:
            self._poll_access.node.metrics.requests[self._exchange.route, 200] += 1
            self._exchange.answer(answer)


_check: tuple[type[Holder], type[Cancellable], type[HeldOnGrant]] = (GrantedPoll, GrantedPoll, GrantedPoll)
