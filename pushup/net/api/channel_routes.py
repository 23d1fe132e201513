"""Channels: `/v1/channels`, to create, renew, close, list and show them."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from pushup.core.channel import Channel
from pushup.core.commands import Close, Command, Outcome
from pushup.core.errors import BadRequest, PushUpError
from pushup.core.grant import Grant
from pushup.net.api.access import check_channels
from pushup.net.api.bodies import json_response, read_create, read_renew
from pushup.net.api.error_responses import Refusals
from pushup.net.api.node_interface import Node
from pushup.net.api.server_view import ServerView
from pushup.net.api.suggestions import shown_name
from pushup.net.application_interface import Exchange
from pushup.net.requests_and_responses import Request, Response

PAGE_LIMIT = 1000
"""Channels in one list; about 3 ms of work."""


class _ChannelView(Struct):
    """A channel as clients see it; `bytes` of message data."""

    id: int
    name: str
    ttl: float
    expires: float
    messages: int
    bytes: int
    subscribers: int


class Channels:
    """Changes and shows channels."""

    def __init__(self, node: Node, machine: ServerView, refusals: Refusals) -> None:
        self._node = node
        self._machine = machine
        self._refusals = refusals

    def create(self, request: Request, query: bytes, exchange: Exchange, grant: Grant) -> None:
        command = read_create(request.body)
        check_channels(grant, "publish", (command.name or "",), self._node)
        self._submit(command, exchange, grant, lambda outcome: json_response(outcome, 201))

    def renew(self, request: Request, name: str, exchange: Exchange, grant: Grant) -> None:
        check_channels(grant, "publish", (name,), self._node)
        self._submit(read_renew(name, request.body), exchange, grant, json_response)

    def close(self, request: Request, name: str, exchange: Exchange, grant: Grant) -> None:
        check_channels(grant, "publish", (name,), self._node)
        self._submit(Close(name), exchange, grant, lambda outcome: Response(204))

    def list_page(self, request: Request, query: bytes, exchange: Exchange, grant: Grant) -> None:
        page = self._node.channels(_page_start(query), PAGE_LIMIT + 1)
        shown = [_view(channel) for channel in page[:PAGE_LIMIT]]

        def respond(subscribers: list[int]) -> None:
            for view, count in zip(shown, subscribers, strict=True):
                view.subscribers = count
            exchange.respond(json_response({"channels": shown, "more": len(page) > PAGE_LIMIT}))

        self._machine.subscribers([view.name for view in shown], respond)

    def show(self, request: Request, name: str, exchange: Exchange, grant: Grant) -> None:
        view = _view(self._node.channel(name))

        def respond(subscribers: list[int]) -> None:
            view.subscribers = subscribers[0]
            exchange.respond(json_response(view))

        self._machine.subscribers([view.name], respond)

    def _submit(
        self, command: Command, exchange: Exchange, grant: Grant, response: Callable[[Outcome], Response]
    ) -> None:
        # The callback may be kept for a long time: it must not keep the request and the command alive.
        def on_outcome(outcome: Outcome) -> None:
            if isinstance(outcome, PushUpError):
                self._refusals.answer(outcome, exchange, grant)
            else:
                exchange.respond(response(outcome))

        self._node.submit(command, on_outcome)


def _view(channel: Channel) -> _ChannelView:
    """All but the subscribers, who may be connected to other processes."""
    messages = len(channel.messages or ())
    return _ChannelView(channel.id, channel.name, channel.ttl, channel.expires, messages, channel.bytes, 0)


def _page_start(query: bytes) -> int:
    """The id after which a list of channels begins: `after=<id>`.

    Raises: BadRequest.
    """
    name, _, value = query.partition(b"=")
    if not query:
        return 0
    if name != b"after":
        detail = "the only parameter of this call is `after`: the last channel's id on the page before"
        raise BadRequest(detail, field=shown_name(name.decode("latin-1")))
    if not (value.isdigit() and len(value) <= 18):
        raise BadRequest("after must be a channel's id", field="after")
    return int(value)
