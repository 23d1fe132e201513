"""Channels: `/v1/channels`, to create, renew, close, list and show them.

{"name": "tag:c++", "ttl": 3600}                                      create; both optional
{"ttl": 3600}                                                         renew; optional
"""

from __future__ import annotations

from collections.abc import Callable

from pushup.core.channel import Channel
from pushup.core.channels import is_id
from pushup.core.commands import Close, Command, Create, Outcome, Renew
from pushup.core.errors import BadRequest, PushUpError
from pushup.core.grant import Grant
from pushup.net.api.access import Access, check_channels
from pushup.net.api.bodies import BodyDecoder, check_name, json_response
from pushup.net.api.error_responses import ErrorResponder
from pushup.net.api.node_interface import Node, ServerView
from pushup.net.api.poll_parameters import read_parameters
from pushup.net.api.schemas import ChannelView, CreateBody, RenewBody
from pushup.net.application_interface import Exchange
from pushup.net.requests_and_responses import Request, Response

PAGE_LIMIT = 1000
"""Channels in one list; about 3 ms of work."""

TTL_LIMIT_SECONDS = 366 * 86400.0
"""The longest lifetime of a channel on which nobody publishes: a year."""

_create = BodyDecoder(CreateBody, '{"name": "news", "ttl": 3600}')
_renew = BodyDecoder(RenewBody, '{"ttl": 3600}')


class Channels:
    """Changes and shows channels."""

    def __init__(self, node: Node, machine: ServerView, error_responder: ErrorResponder, access: Access) -> None:
        self._node = node
        self._machine = machine
        self._error_responder = error_responder
        self._rules = access.rules

    def create(self, request: Request, query: bytes, exchange: Exchange, grant: Grant) -> None:
        command = read_create(request.body)
        check_channels(grant, "channels", (command.name or "",), self._node, self._rules)
        self._submit(command, exchange, grant, lambda outcome: json_response(outcome, 201))

    def renew(self, request: Request, name: str, exchange: Exchange, grant: Grant) -> None:
        check_channels(grant, "channels", (name,), self._node, self._rules)
        self._submit(read_renew(name, request.body), exchange, grant, json_response)

    def close(self, request: Request, name: str, exchange: Exchange, grant: Grant) -> None:
        check_channels(grant, "channels", (name,), self._node, self._rules)
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
                self._error_responder.answer(outcome, exchange, grant)
            else:
                exchange.respond(response(outcome))

        self._node.submit(command, on_outcome)


def read_create(body: bytes) -> Create:
    """Raises: BadRequest."""
    given = _create.decode(body or b"{}")
    if given.name is not None:
        check_name(given.name, "name")
        if is_id(given.name):
            raise BadRequest(
                "a name of digits only would be taken for an id; add a prefix, such as user:42", field="name"
            )
    return Create(given.name, _check_ttl(given.ttl))


def read_renew(channel: str, body: bytes) -> Renew:
    """Raises: BadRequest."""
    return Renew(channel, _check_ttl(_renew.decode(body or b"{}").ttl))


def _check_ttl(ttl: float | None) -> float | None:
    """Raises: BadRequest."""
    if ttl is not None and not 0 < ttl <= TTL_LIMIT_SECONDS:
        raise BadRequest(f"ttl must be above 0 and at most {TTL_LIMIT_SECONDS:.0f} seconds", field="ttl")
    return ttl


def _view(channel: Channel) -> ChannelView:
    """All but the subscribers, who may be connected to other processes."""
    messages = len(channel.messages or ())
    return ChannelView(channel.id, channel.name, channel.ttl, channel.expires, messages, channel.bytes, 0)


def _page_start(query: bytes) -> int:
    """The id after which a list of channels begins: `after=<id>`.

    Raises: BadRequest.
    """
    value = read_parameters(query, ("after",)).get("after", "0")
    if not (value.isascii() and value.isdigit() and len(value) <= 18):
        raise BadRequest("after must be the last channel's id on the page before", field="after")
    return int(value)
