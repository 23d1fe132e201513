"""What the servers share: calls with JSON on PushUp's edge, and requests of each other."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

import click
import msgspec
from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from loadtest.kit.edge import EpollDemultiplexer, open_socket
from loadtest.kit.framework import (
    Application,
    BackendCounters,
    BadRequest,
    Edge,
    EdgeLimits,
    Exchange,
    Header,
    Held,
    InternalError,
    Metrics,
    PushUpError,
    Request,
    RequestLimits,
    Response,
    ServiceLimits,
    ServiceRequestor,
    Unavailable,
    UnknownResource,
    problem,
)

BODY_LIMIT_BYTES = 4096
DEADLINE_SECONDS = 10.0

Call = Callable[[Any], Awaitable[object]]
"""Takes what the request's body says, and returns what the response's is to say. Raises: PushUpError."""

_log = Logger()


class JsonCalls:
    """The application behind the edge: a call for each path."""

    def __init__(self, calls: Mapping[str, tuple[type, Call]]) -> None:
        """`calls`: the type of the body, and the call."""
        self._calls = {path.encode(): call for path, call in calls.items()}

    def admit(self, request: Request) -> int:
        return BODY_LIMIT_BYTES

    def refuse(self, error: PushUpError, request: Request | None, exchange: Exchange) -> None:
        exchange.respond(problem(error))

    def headers_for(self, request: Request) -> tuple[Header, ...]:
        return ()

    def __call__(self, request: Request, exchange: Exchange) -> None:
        Deferred.fromCoroutine(self._respond(request)).addCallback(exchange.respond)

    def abandon(self, held: Held) -> None:
        """No call is given up because its client leaves."""

    async def _respond(self, request: Request) -> Response:
        try:
            return Response(200, msgspec.json.encode(await self._call(request)))
        except PushUpError as error:
            return problem(error)
        except Exception:
            _log.failure("a call failed")
            return problem(InternalError("the server has an error"))

    async def _call(self, request: Request) -> object:
        if request.target not in self._calls:
            raise UnknownResource(f"the calls are {b', '.join(self._calls).decode()}")
        kind, call = self._calls[request.target]
        try:
            body: Any = msgspec.json.decode(request.body, type=kind)
        except msgspec.MsgspecError as error:
            raise BadRequest(str(error)) from None
        return await call(body)


_check: type[Application] = JsonCalls


class Peer:
    """Another server, which is sent one request after the other, so that they arrive in order."""

    def __init__(self, url: str, reactor: Any) -> None:
        limits = ServiceLimits(at_most=1, queue_limit=1000, deadline_seconds=DEADLINE_SECONDS)
        self._url = url
        self._requestor = ServiceRequestor(url, limits, reactor=reactor, counters=BackendCounters())

    async def post(self, path: str, body: object) -> None:
        """Raises: PushUpError."""
        headers = {b"Content-Type": b"application/json"}
        reply = await self._requestor.post(f"{self._url}{path}".encode(), headers, msgspec.json.encode(body))
        if reply.status >= 300:
            raise Unavailable(f"{self._url}{path} answered {reply.status}")

    async def publish(self, channel: str, data: object) -> None:
        """To PushUp."""
        await self.post("/v1/messages", {"channels": [channel], "data": data})


def serve(listen: str, make: Callable[[Any, str], tuple[JsonCalls, Coroutine[Any, Any, None] | None]]) -> None:
    """Listen until killed.

    `make` gets the reactor and the server's URL, and returns its calls and what is to be done before it is used.
    """
    from twisted.internet import reactor as any_reactor

    reactor: Any = any_reactor

    def cannot_start(failure: Failure) -> None:
        click.echo(failure.getErrorMessage(), err=True)
        reactor.stop()

    sock = open_socket(listen)
    host, port = sock.getsockname()
    url = f"http://{host}:{port}"
    calls, first = make(reactor, url)
    demultiplexer = EpollDemultiplexer(reactor)
    edge = Edge(
        application=calls,
        demultiplexer=demultiplexer,
        reactor=reactor,
        clock=reactor,
        wall=time.time,
        limits=EdgeLimits(),
        request_limits=RequestLimits(),
        metrics=Metrics(),
    )
    demultiplexer.start()
    edge.start()
    edge.listen(sock)
    ready = succeed(None) if first is None else Deferred.fromCoroutine(first)
    ready.addCallback(lambda _: click.echo(f"Server listens on {url}"))
    ready.addErrback(cannot_start)
    reactor.run()
