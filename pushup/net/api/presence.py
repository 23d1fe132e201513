"""Who follows a channel: `GET /v1/presence?channel=room:1`; and `POST /v1/presence`, from a page that closes."""

from __future__ import annotations

from functools import partial

from twisted.internet.defer import Deferred

from pushup.core.errors import BadRequest
from pushup.core.grant import Grant
from pushup.core.poll import Poll
from pushup.net.api.bodies import BodyDecoder, json_response
from pushup.net.api.node_interface import Node
from pushup.net.api.poll_access import PollAccess
from pushup.net.api.poll_parameters import IGNORED, PollReader, read_parameters
from pushup.net.api.schemas import ChannelsBody, PollBody
from pushup.net.application_interface import Exchange
from pushup.net.requests_and_responses import Request, Response

_closing = BodyDecoder(ChannelsBody, '{"channels": ["room:1"]}')


class PresenceCalls:
    """Who may poll a channel may see who follows it."""

    def __init__(self, node: Node, reader: PollReader, poll_access: PollAccess) -> None:
        self._node = node
        self._reader = reader
        self._poll_access = poll_access

    def show(self, request: Request, query: bytes, exchange: Exchange, grant: Grant) -> Deferred[None] | None:
        channel = read_parameters(query, ("channel", IGNORED)).get("channel")
        if channel is None:
            raise BadRequest("name one channel: ?channel=room:1", field="channel")
        poll = self._reader.poll(PollBody((channel,)), "channel")
        self._poll_access.quotas.count(request, grant, exchange)
        return self._poll_access.when_granted(poll, grant, request, exchange, partial(self._show, poll, exchange))

    def _show(self, poll: Poll, exchange: Exchange, grant: Grant) -> None:
        self._node.here  # noqa: B018  # raises if this node may not know
        exchange.respond(json_response(self._node.members_of(poll.selection.channels[0])))

    def close(self, request: Request, query: bytes, exchange: Exchange, grant: Grant) -> Deferred[None] | None:
        given = _closing.decode(request.body)
        poll = self._reader.poll(PollBody(given.channels), "channels")
        grant = self._poll_access.with_token(grant, given.token, request)
        self._poll_access.quotas.count(request, grant, exchange)
        return self._poll_access.when_granted(poll, grant, request, exchange, partial(self._close, poll, exchange))

    def _close(self, poll: Poll, exchange: Exchange, grant: Grant) -> None:
        self._node.here  # noqa: B018  # raises if this node may not know
        if grant.subject:
            self._node.presence.closes(grant.subject, poll.selection.channels)
        exchange.respond(Response(204))
