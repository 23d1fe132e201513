"""The HTTP interface (docs/http.md): requests become calls on the node, and what comes of them becomes responses.

A new call is a line in `_ROUTES` or `_CHANNEL_ROUTES` and a method here. Documented, with examples that are run, in
docs/http.md.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Any, Protocol
from urllib.parse import unquote_to_bytes

from msgspec import Struct
from twisted.logger import Logger

from pushup.core import wire
from pushup.core.answer import Answer
from pushup.core.channel import Channel
from pushup.core.commands import Ack, ChannelState, Close, Command, Confirmation, Outcome, Published
from pushup.core.cursor import Cursor
from pushup.core.errors import (
    BadRequest,
    Forbidden,
    InternalError,
    MethodNotAllowed,
    PushUpError,
    Unauthorized,
    UnknownResource,
)
from pushup.core.poll import Poll
from pushup.core.subscription import Subscription
from pushup.net.authorized_polls import AuthorizedPolls
from pushup.net.exchange import Exchange, Held, Holder
from pushup.net.http1 import Request
from pushup.net.poll_parameters import PollReader
from pushup.net.responses import Response, problem

_log = Logger()

KEY_LIMIT = 255
"""Characters of an idempotency key; a UUID has 36."""


PAGE_LIMIT = 1000
"""Channels in one list; about 3 ms of work."""


class NodeInterface(Protocol):
    """What this interface needs of a node."""

    @property
    def cursor(self) -> Cursor: ...
    def poll(self, poll: Poll, holder: Holder, until: float = ..., /) -> Answer | Subscription[Holder]: ...
    def abandon(self, subscription: Subscription[Any], /) -> None: ...
    def publish(self, command: Command, then: Callable[[Outcome], None]) -> None: ...
    def channel(self, name: str) -> Channel: ...
    def channels(self, after: int, most: int) -> list[Channel]: ...
    def confirm(self, ack: Ack, sequence: int, seconds: float, then: Callable[[Confirmation], None], /) -> None: ...
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


Method = Callable[["Api", Request, bytes, Exchange], None]
ChannelMethod = Callable[["Api", Request, str, Exchange], None]


class Api:
    """Answers requests."""

    def __init__(
        self,
        node: NodeInterface,
        *,
        polls: PollReader,
        publication_limits: wire.PublicationLimits,
        publish_keys: tuple[str, ...],
        cors_origins: frozenset[str] = frozenset(),
        metrics_text: Callable[[], bytes],
        authorized_polls: AuthorizedPolls | None = None,
    ) -> None:
        """`authorized_polls` is None where everybody may poll everything."""
        self._node = node
        self._polls = polls
        self._publication_limits = publication_limits
        self._publish_keys = tuple(key.encode() for key in publish_keys)
        self._cors_origins = cors_origins
        self._metrics_text = metrics_text
        self._authorized_polls = authorized_polls

    def __call__(self, request: Request, exchange: Exchange) -> None:
        """Answer a request, now or later."""
        try:
            target = request.target
            path, _, query = (target if target.startswith(b"/") else _path_of(request)).partition(b"?")
            methods = _ROUTES.get(path)
            if methods is None:
                self._channel_call(path, request, exchange)
            elif (method := methods.get(request.method)) is not None:
                method(self, request, query, exchange)
            else:
                _other_method(request, methods, exchange)
        except PushUpError as error:
            exchange.respond(problem(error))
        except Exception:
            _log.failure("a request failed")
            exchange.respond(problem(InternalError("the reason is in the server's log")))

    def abandon(self, held: Held) -> None:
        """The client of an open request is gone."""
        if isinstance(held, Subscription):
            self._node.abandon(held)
        else:
            held.cancel()

    def _channel_call(self, path: bytes, request: Request, exchange: Exchange) -> None:
        name, action = _channel_path(path)
        methods = _CHANNEL_ROUTES[action]
        method = methods.get(request.method)
        if method is not None:
            method(self, request, name, exchange)
        else:
            _other_method(request, methods, exchange)

    # Polling.

    def _poll_query(self, request: Request, query: bytes, exchange: Exchange) -> None:
        self._poll(self._polls.from_query(query), request, exchange)

    def _poll_body(self, request: Request, query: bytes, exchange: Exchange) -> None:
        self._poll(self._polls.from_body(request.body), request, exchange)

    def _poll(self, poll: Poll, request: Request, exchange: Exchange) -> None:
        if self._authorized_polls is not None:
            self._authorized_polls.begin(poll, request, exchange)
            return
        result = self._node.poll(poll, exchange)
        if isinstance(result, Subscription):
            exchange.hold(result)
        else:
            exchange.answer(result)

    def _cursor(self, request: Request, query: bytes, exchange: Exchange) -> None:
        exchange.respond(_json({"cursor": str(self._node.cursor)}))

    # Publishing.

    def _publish(self, request: Request, query: bytes, exchange: Exchange) -> None:
        self._authorize_publisher(request)
        key = request.header(b"idempotency-key") if b"idempotency-key" in request.headers else None
        if key is not None and len(key) > KEY_LIMIT:
            raise BadRequest(f"Idempotency-Key has at most {KEY_LIMIT} characters", field="Idempotency-Key")
        publication = wire.read_publication(request.body, key or None, self._publication_limits)

        def then(outcome: Outcome) -> None:
            if not isinstance(outcome, Published):
                exchange.respond(_refusal(outcome))
            elif publication.ack == "accepted":
                exchange.respond(Response(201, wire.write_published(outcome, publication.as_list)))
            else:
                self._confirm(outcome, publication, exchange)

        self._node.publish(publication.command, then)

    def _confirm(self, published: Published, publication: wire.Publication, exchange: Exchange) -> None:
        """Answer a publisher who wants to be surer than that the message has its place."""

        def then(confirmed: Confirmation) -> None:
            exchange.respond(Response(201, wire.write_published(published, publication.as_list, confirmed)))

        last = published.sequence + published.count - 1
        self._node.confirm(publication.ack, last, publication.ack_timeout, then)

    def _create(self, request: Request, query: bytes, exchange: Exchange) -> None:
        self._authorize_publisher(request)
        self._command(wire.read_create(request.body), exchange, _created)

    def _renew(self, request: Request, name: str, exchange: Exchange) -> None:
        self._authorize_publisher(request)
        self._command(wire.read_renew(name, request.body), exchange, _json)

    def _close(self, request: Request, name: str, exchange: Exchange) -> None:
        self._authorize_publisher(request)
        self._command(Close(name), exchange, lambda outcome: Response(204))

    def _command(self, command: Command, exchange: Exchange, succeeded: Callable[[Outcome], Response]) -> None:
        def then(outcome: Outcome) -> None:
            exchange.respond(_refusal(outcome) if isinstance(outcome, PushUpError) else succeeded(outcome))

        self._node.publish(command, then)

    def _authorize_publisher(self, request: Request) -> None:
        """Raises: Unauthorized, Forbidden.

        Where no key is needed, a browser would let every page that it shows publish here: a simple POST (Fetch
        standard) is sent without asking first. So it must be a page of this host, or of an origin in `cors_origins`.
        """
        if self._publish_keys:
            self._authorize(request)
        elif b"origin" in request.headers and not self._is_welcome(request.header(b"origin"), request.header(b"host")):
            raise Forbidden("pages of this origin may not publish: see cors_origins and publish_keys", field="Origin")

    def _is_welcome(self, origin: str, host: str) -> bool:
        """Whether pages of this origin may do what needs a key, where none are set."""
        if "*" in self._cors_origins or origin in self._cors_origins:
            return True
        return bool(host) and origin.lower() in (f"http://{host.lower()}", f"https://{host.lower()}")

    def _authorize(self, request: Request) -> None:
        """Raises: Unauthorized, Forbidden; unless the request has a publish key, or none are set."""
        if not self._publish_keys:
            return
        scheme, _, key = request.header(b"authorization").partition(" ")
        if scheme.lower() != "bearer" or not key:
            raise Unauthorized("send a publish key: Authorization: Bearer <key>")
        given = key.strip().encode("latin-1")
        # All keys are compared, each in constant time, so that the time tells nothing of any.
        if not any([hmac.compare_digest(given, known) for known in self._publish_keys]):  # noqa: C419
            raise Forbidden("this publish key is not known")

    # Looking.

    def _list(self, request: Request, query: bytes, exchange: Exchange) -> None:
        self._authorize(request)
        after = _page_start(query)
        page = self._node.channels(after, PAGE_LIMIT + 1)
        shown = [_view(channel) for channel in page[:PAGE_LIMIT]]
        exchange.respond(_json({"channels": shown, "more": len(page) > PAGE_LIMIT}))

    def _show(self, request: Request, name: str, exchange: Exchange) -> None:
        self._authorize(request)
        exchange.respond(_json(_view(self._node.channel(name))))

    def _nodes(self, request: Request, query: bytes, exchange: Exchange) -> None:
        self._authorize(request)
        exchange.respond(_json({"nodes": self._node.members()}))

    def _healthz(self, request: Request, query: bytes, exchange: Exchange) -> None:
        exchange.respond(_json({"status": "alive"}))

    def _readyz(self, request: Request, query: bytes, exchange: Exchange) -> None:
        reason = self._node.why_not_ready()
        if reason is None:
            exchange.respond(_json({"status": "ready"}))
        else:
            exchange.respond(Response(503, wire.write({"status": "not ready", "reason": reason.detail})))

    def _metrics(self, request: Request, query: bytes, exchange: Exchange) -> None:
        exchange.respond(Response(200, self._metrics_text(), b"text/plain; version=0.0.4; charset=utf-8"))


_ROUTES: dict[bytes, dict[bytes, Method]] = {
    b"/v1/poll": {b"GET": Api._poll_query, b"HEAD": Api._poll_query, b"POST": Api._poll_body},
    b"/v1/messages": {b"POST": Api._publish},
    b"/v1/channels": {b"GET": Api._list, b"HEAD": Api._list, b"POST": Api._create},
    b"/v1/nodes": {b"GET": Api._nodes, b"HEAD": Api._nodes},
    b"/v1/cursor": {b"GET": Api._cursor, b"HEAD": Api._cursor},
    b"/healthz": {b"GET": Api._healthz, b"HEAD": Api._healthz},
    b"/readyz": {b"GET": Api._readyz, b"HEAD": Api._readyz},
    b"/metrics": {b"GET": Api._metrics, b"HEAD": Api._metrics},
    b"*": {},
}

_CHANNEL_ROUTES: dict[bytes, dict[bytes, ChannelMethod]] = {
    b"": {b"GET": Api._show, b"HEAD": Api._show, b"DELETE": Api._close},
    b"renew": {b"POST": Api._renew},
}
"""What can be done with `/v1/channels/{channel}` and `/v1/channels/{channel}/<action>`."""

CORS_HEADERS = (b"authorization, content-type, idempotency-key, pushup-ticket", b"86400")
"""What scripts of other origins may send, and for how many seconds a browser may remember it."""


def _other_method(request: Request, methods: dict[bytes, Any], exchange: Exchange) -> None:
    """OPTIONS is answered everywhere (browsers ask for leave with it, Fetch standard); else there is no such method."""
    allow = b", ".join((*methods, b"OPTIONS"))
    headers = [(b"Allow", allow)]
    if request.method != b"OPTIONS":
        error = MethodNotAllowed(f"this path takes {allow.decode()}")
        exchange.respond(problem(error, tuple(headers)))
        return
    if b"access-control-request-method" in request.headers:
        allowed, seconds = CORS_HEADERS
        headers += [
            (b"Access-Control-Allow-Methods", allow),
            (b"Access-Control-Allow-Headers", allowed),
            (b"Access-Control-Max-Age", seconds),
        ]
    exchange.respond(Response(204, headers=tuple(headers)))


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
    if parts[:3] != [b"", b"v1", b"channels"] or action not in _CHANNEL_ROUTES or len(parts) != 4 + bool(action):
        raise UnknownResource("the calls are listed in docs/http.md")
    try:
        name = unquote_to_bytes(parts[3]).decode()
    except UnicodeDecodeError:
        raise BadRequest("the channel's name is not UTF-8", field="channel") from None
    return wire.check_name(name, "channel"), action


def _refusal(outcome: Outcome) -> Response:
    assert isinstance(outcome, PushUpError)
    return problem(outcome)


def _json(value: object) -> Response:
    return Response(200, wire.write(value))


def _created(outcome: Outcome) -> Response:
    assert isinstance(outcome, ChannelState)
    return Response(201, wire.write(outcome))


def _view(channel: Channel) -> _ChannelView:
    return _ChannelView(
        channel.id,
        channel.name,
        channel.ttl,
        channel.expires,
        len(channel.messages or ()),
        channel.bytes,
        channel.subscribers,
    )


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
