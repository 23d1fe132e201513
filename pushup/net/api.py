"""The HTTP interface (docs/http.md): requests become calls on the node, and what comes of them becomes responses.

A new call is a line in `_CALLS` or `_CHANNEL_CALLS` and a method here. Documented, with examples that are run, in
docs/http.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote_to_bytes

from msgspec import Struct
from twisted.logger import Logger

from pushup.core import wire
from pushup.core.answer import Answer
from pushup.core.channel import Channel
from pushup.core.commands import Ack, ChannelState, Close, Command, Confirmation, Outcome, Published
from pushup.core.cursor import Cursor
from pushup.core.errors import BadRequest, InternalError, MethodNotAllowed, PushUpError, UnknownResource
from pushup.core.poll import Poll
from pushup.core.subscription import Holder, Subscription
from pushup.net.access import Access
from pushup.net.authorized_polls import AuthorizedPolls
from pushup.net.exchange import Application, Exchange, Held
from pushup.net.http1 import Request
from pushup.net.poll_parameters import PollReader
from pushup.net.refusals import Refusals
from pushup.net.responses import Header, Response, problem

_log = Logger()

KEY_LIMIT = 255
"""Characters of an idempotency key; a UUID has 36."""


PAGE_LIMIT = 1000
"""Channels in one list; about 3 ms of work."""


class NodeInterface(Protocol):
    """What this interface needs of a node."""

    @property
    def here(self) -> Cursor: ...
    def poll(self, poll: Poll, holder: Holder, until: float = ..., /) -> Answer | Subscription[Holder]: ...
    def abandon(self, subscription: Subscription[Any], /) -> None: ...
    def submit(self, command: Command, on_outcome: Callable[[Outcome], None]) -> None: ...
    def channel(self, name: str) -> Channel: ...
    def channels(self, after: int, most: int) -> list[Channel]: ...
    def subscribers(self, channel: Channel) -> int: ...
    def confirm(self, ack: Ack, cursor: Cursor, seconds: float, then: Callable[[Confirmation], None], /) -> None: ...
    def members(self) -> list[Any]: ...
    def why_not_ready(self) -> PushUpError | None: ...


class _ChannelView(Struct):
    """A channel as one looks at it; `bytes` of message data."""

    id: int
    name: str
    ttl: float
    expires: float
    messages: int
    bytes: int
    subscribers: int


class Api:
    """Answers requests."""

    def __init__(
        self,
        node: NodeInterface,
        *,
        polls: PollReader,
        publication_limits: wire.PublicationLimits,
        publication_limit_bytes: int,
        access: Access,
        refusals: Refusals,
        metrics_text: Callable[[], bytes],
        authorized_polls: AuthorizedPolls | None = None,
        cors_origins: frozenset[str] = frozenset(),
    ) -> None:
        """`publication_limit_bytes` is of a publication's body; `authorized_polls` is None if everybody may poll
        everything.
        """
        self._node = node
        self._polls = polls
        self._publication_limits = publication_limits
        self._publication_limit_bytes = publication_limit_bytes
        self._access = access
        self._refusals = refusals
        self._metrics_text = metrics_text
        self._authorized_polls = authorized_polls
        self._cors_origins = cors_origins

    def admit(self, request: Request) -> int:
        """How many bytes the body may have; for the parser, which has read the head."""
        call, _ = self._find(request)
        return self._publication_limit_bytes if call.has_large_body else self._polls.body_limit_bytes

    def __call__(self, request: Request, exchange: Exchange) -> None:
        """Answer a request, now or later."""
        try:
            call, argument = self._find(request)
            call.answer(self, request, argument, exchange)
        except PushUpError as error:
            self.refuse(error, request, exchange)
        except Exception:
            _log.failure("a request failed")
            exchange.respond(problem(InternalError("the reason is in the server's log")))

    def refuse(self, error: PushUpError, request: Request, exchange: Exchange) -> None:
        """Answer with an error, and with its details if whoever asks may see them."""
        may_be_operator = bool(error.operator_detail) and self._access.may_be_operator(request)
        self._tell_error(error, exchange, may_be_operator=may_be_operator)

    def headers_for(self, request: Request) -> tuple[Header, ...]:
        """Who may read the response: the Fetch standard's CORS protocol."""
        origin = request.headers.get(b"origin")
        if origin is None or not self._cors_origins:
            return ()
        if "*" in self._cors_origins:
            return ((b"Access-Control-Allow-Origin", b"*"),)
        if origin.decode("latin-1") in self._cors_origins:
            return (
                (b"Access-Control-Allow-Origin", origin),
                (b"Access-Control-Allow-Credentials", b"true"),
                (b"Vary", b"Origin"),
            )
        return ((b"Vary", b"Origin"),)

    def abandon(self, held: Held) -> None:
        """The client of an open request is gone."""
        if isinstance(held, Subscription):
            self._node.abandon(held)
        else:
            held.cancel()

    def _find(self, request: Request) -> tuple[_Call, Any]:
        """The call that a request is for, if it may be made, and what it is about: a query string, a channel's name.

        Raises: MisdirectedRequest, UnknownResource, MethodNotAllowed, Unauthorized, Forbidden, BadRequest.
        """
        self._access.check_host(request)
        target = request.target
        path, _, query = (target if target.startswith(b"/") else _path_of(request)).partition(b"?")
        argument: Any = query
        calls = _CALLS.get(path)
        if calls is None:
            argument, action = _channel_path(path)
            calls = _CHANNEL_CALLS[action]
        call = calls.get(request.method)
        if call is None:
            allow = b", ".join((*calls, b"OPTIONS")).decode()
            if request.method != b"OPTIONS":
                raise MethodNotAllowed(f"this path takes {allow}", allow=allow)
            return _OPTIONS, allow
        if call.requires is not None:
            call.requires(self._access, request)
        return call, argument

    def _tell_error(self, error: PushUpError, exchange: Exchange, *, may_be_operator: bool) -> None:
        """Answer with an error; with its details, if the sender may see them and is near enough."""
        client = exchange.client
        self._refusals.note(error, client)
        exchange.respond(problem(error, for_operator=may_be_operator and self._access.is_near(client)))

    def _options(self, request: Request, allow: str, exchange: Exchange) -> None:
        """Which methods a path takes; browsers ask for leave with it (Fetch standard)."""
        headers = [(b"Allow", allow.encode())]
        if b"access-control-request-method" in request.headers:
            allowed, seconds = CORS_HEADERS
            headers += [
                (b"Access-Control-Allow-Methods", allow.encode()),
                (b"Access-Control-Allow-Headers", allowed),
                (b"Access-Control-Max-Age", seconds),
            ]
        exchange.respond(Response(204, headers=tuple(headers)))

    # Polling.

    def _poll_query(self, request: Request, query: bytes, exchange: Exchange) -> None:
        self._poll(self._polls.from_query(query), request, exchange)

    def _poll_body(self, request: Request, query: bytes, exchange: Exchange) -> None:
        self._poll(self._polls.from_body(request.body), request, exchange)

    def _poll(self, poll: Poll, request: Request, exchange: Exchange) -> None:
        if self._authorized_polls is not None:
            self._authorized_polls.begin(poll, request, exchange, lambda error: self.refuse(error, request, exchange))
            return
        result = self._node.poll(poll, exchange)
        if isinstance(result, Subscription):
            exchange.hold(result)
        else:
            exchange.answer(result)

    def _cursor(self, request: Request, query: bytes, exchange: Exchange) -> None:
        exchange.respond(_json({"cursor": str(self._node.here)}))

    # Publishing.

    def _publish(self, request: Request, query: bytes, exchange: Exchange) -> None:
        key = request.header(b"idempotency-key") if b"idempotency-key" in request.headers else None
        if key is not None and len(key) > KEY_LIMIT:
            raise BadRequest(f"Idempotency-Key has at most {KEY_LIMIT} characters", field="Idempotency-Key")
        command, as_list, ack, seconds = wire.read_publication(request.body, key or None, self._publication_limits)

        # `then` may be kept for long, by a Redis that hangs or for `ack`: neither the request nor the command with it.
        may_be_operator = self._access.may_be_operator(request)

        def then(outcome: Outcome) -> None:
            if not isinstance(outcome, Published):
                self._tell_error(_error(outcome), exchange, may_be_operator=may_be_operator)
            elif ack == "accepted":
                exchange.respond(Response(201, wire.write_published(outcome, as_list)))
            else:
                self._confirm(outcome, as_list, ack, seconds, exchange)

        self._node.submit(command, then)

    def _confirm(self, published: Published, as_list: bool, ack: Ack, seconds: float, exchange: Exchange) -> None:
        """Answer a publisher who wants to be surer than that the message has its place."""

        def then(confirmed: Confirmation) -> None:
            exchange.respond(Response(201, wire.write_published(published, as_list, confirmed)))

        last = Cursor(published.epoch, published.sequence + published.count - 1)
        self._node.confirm(ack, last, seconds, then)

    def _create(self, request: Request, query: bytes, exchange: Exchange) -> None:
        self._command(wire.read_create(request.body), request, exchange, _created)

    def _renew(self, request: Request, name: str, exchange: Exchange) -> None:
        self._command(wire.read_renew(name, request.body), request, exchange, _json)

    def _close(self, request: Request, name: str, exchange: Exchange) -> None:
        self._command(Close(name), request, exchange, lambda outcome: Response(204))

    def _command(
        self, command: Command, request: Request, exchange: Exchange, succeeded: Callable[[Outcome], Response]
    ) -> None:
        may_be_operator = self._access.may_be_operator(request)

        def then(outcome: Outcome) -> None:
            if isinstance(outcome, PushUpError):
                self._tell_error(outcome, exchange, may_be_operator=may_be_operator)
            else:
                exchange.respond(succeeded(outcome))

        self._node.submit(command, then)

    # Looking.

    def _list(self, request: Request, query: bytes, exchange: Exchange) -> None:
        after = _page_start(query)
        page = self._node.channels(after, PAGE_LIMIT + 1)
        shown = [self._view(channel) for channel in page[:PAGE_LIMIT]]
        exchange.respond(_json({"channels": shown, "more": len(page) > PAGE_LIMIT}))

    def _show(self, request: Request, name: str, exchange: Exchange) -> None:
        exchange.respond(_json(self._view(self._node.channel(name))))

    def _view(self, channel: Channel) -> _ChannelView:
        return _ChannelView(
            channel.id,
            channel.name,
            channel.ttl,
            channel.expires,
            len(channel.messages or ()),
            channel.bytes,
            self._node.subscribers(channel),
        )

    def _nodes(self, request: Request, query: bytes, exchange: Exchange) -> None:
        exchange.respond(_json({"nodes": self._node.members()}))

    def _healthz(self, request: Request, query: bytes, exchange: Exchange) -> None:
        exchange.respond(_json({"status": "alive"}))

    def _readyz(self, request: Request, query: bytes, exchange: Exchange) -> None:
        reason = self._node.why_not_ready()
        if reason is None:
            exchange.respond(_json({"status": "ready"}))
        else:
            details = self._access.is_operator(request, exchange.client) and reason.operator_detail
            text = f"{reason.detail}: {details}" if details else reason.detail
            exchange.respond(Response(503, wire.write({"status": "not ready", "reason": text})))

    def _metrics(self, request: Request, query: bytes, exchange: Exchange) -> None:
        exchange.respond(Response(200, self._metrics_text(), b"text/plain; version=0.0.4; charset=utf-8"))


class _Call(NamedTuple):
    """What is done with a path and a method."""

    answer: Callable[[Api, Request, Any, Exchange], None]
    requires: Callable[[Access, Request], None] | None = None
    has_large_body: bool = False


_POLL = _Call(Api._poll_query)
_LIST = _Call(Api._list, Access.require_key)
_NODES = _Call(Api._nodes, Access.require_key)
_SHOW = _Call(Api._show, Access.require_key)
_CURSOR, _HEALTHZ, _READYZ, _METRICS = map(_Call, (Api._cursor, Api._healthz, Api._readyz, Api._metrics))
_OPTIONS = _Call(Api._options)

_CALLS: dict[bytes, dict[bytes, _Call]] = {
    b"/v1/poll": {b"GET": _POLL, b"HEAD": _POLL, b"POST": _Call(Api._poll_body)},
    b"/v1/messages": {b"POST": _Call(Api._publish, Access.require_publisher, has_large_body=True)},
    b"/v1/channels": {b"GET": _LIST, b"HEAD": _LIST, b"POST": _Call(Api._create, Access.require_publisher)},
    b"/v1/nodes": {b"GET": _NODES, b"HEAD": _NODES},
    b"/v1/cursor": {b"GET": _CURSOR, b"HEAD": _CURSOR},
    b"/healthz": {b"GET": _HEALTHZ, b"HEAD": _HEALTHZ},
    b"/readyz": {b"GET": _READYZ, b"HEAD": _READYZ},
    b"/metrics": {b"GET": _METRICS, b"HEAD": _METRICS},
    b"*": {},
}

_CHANNEL_CALLS: dict[bytes, dict[bytes, _Call]] = {
    b"": {b"GET": _SHOW, b"HEAD": _SHOW, b"DELETE": _Call(Api._close, Access.require_publisher)},
    b"renew": {b"POST": _Call(Api._renew, Access.require_publisher)},
}
"""What can be done with `/v1/channels/{channel}` and `/v1/channels/{channel}/<action>`."""

CORS_HEADERS = (b"authorization, content-type, idempotency-key, pushup-ticket", b"86400")
"""What scripts of other origins may send, and for how many seconds a browser may remember it."""


def _path_of(request: Request) -> bytes:
    """The path and query of a target in a proxy's absolute form, or the `*` of OPTIONS (RFC 9112 §3.2).

    Raises: BadRequest.
    """
    target = request.target
    if target == b"*" and request.method == b"OPTIONS":
        return target
    scheme, colon, rest = target.partition(b"://")
    if colon and scheme.lower() in (b"http", b"https"):
        _, slash, path = rest.partition(b"/")
        return slash + path
    raise BadRequest("the request target is not a path")


def _channel_path(path: bytes) -> tuple[str, bytes]:
    """The name and the action in `/v1/channels/{channel}/<action>`.

    Raises: UnknownResource, BadRequest.
    """
    parts = path.split(b"/")
    action = b"/".join(parts[4:])
    if parts[:3] != [b"", b"v1", b"channels"] or action not in _CHANNEL_CALLS or len(parts) != 4 + bool(action):
        raise UnknownResource("the calls are listed in docs/http.md")
    try:
        name = unquote_to_bytes(parts[3]).decode()
    except UnicodeDecodeError:
        raise BadRequest("the channel's name is not UTF-8", field="channel") from None
    return wire.check_name(name, "channel"), action


def _error(outcome: Outcome) -> PushUpError:
    assert isinstance(outcome, PushUpError)
    return outcome


def _json(value: object) -> Response:
    return Response(200, wire.write(value))


def _created(outcome: Outcome) -> Response:
    assert isinstance(outcome, ChannelState)
    return Response(201, wire.write(outcome))


def _page_start(query: bytes) -> int:
    """The id after which a list of channels begins: `after=<id>`.

    Raises: BadRequest.
    """
    name, _, value = query.partition(b"=")
    if not query:
        return 0
    if name != b"after":
        raise BadRequest("the only parameter here is 'after'", field=name.decode("latin-1"))
    if not (value.isdigit() and len(value) <= 18):
        raise BadRequest("after is a channel's id", field="after")
    return int(value)


_check: type[Application] = Api
