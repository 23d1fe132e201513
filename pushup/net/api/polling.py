"""Long polls: `GET /v1/poll`, `POST /v1/poll`, and `GET /v1/cursor`.

Reading the parameters (`poll_parameters`), asking whether the client may (`authorized_polls`) and the cursor are shared
with whatever else delivers messages; holding the request and writing one answer is what makes it a long poll.
"""

from __future__ import annotations

from functools import partial

from twisted.internet.defer import Deferred

from pushup.core.grant import EVERYTHING, Grant
from pushup.core.poll import Poll
from pushup.core.subscription import Subscription
from pushup.net.api.authorized_polls import AuthorizedPolls, GrantedPoll
from pushup.net.api.bodies import json_response
from pushup.net.api.node_interface import Node
from pushup.net.api.poll_parameters import PollReader
from pushup.net.application_interface import Exchange
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
