"""An application whose responses depend on the target of the request, to test connections without the HTTP API."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from pushup.core.answer import Answer
from pushup.core.errors import Forbidden, PushUpError
from pushup.core.poll import Selection
from pushup.core.subscription import Subscription
from pushup.net.application_interface import Exchange, Held
from pushup.net.edge_limits import EdgeLimits, RequestLimits
from pushup.net.http_errors import problem
from pushup.net.requests_and_responses import Header, Request, Response
from tests.net.in_memory_server import Client, InMemoryServer

NOTHING = Answer("e-0", (), False, (), ())


class ScriptedApplication:
    """`/held` is held, `/later` is answered by the test, `/stream` is a stream of chunks, `/echo` returns its body,
    `/big` returns 100,000 bytes.

    Any other path returns its own target.
    """

    def __init__(self, cors_origins: Iterable[str] = ()) -> None:
        self._cors_origins = frozenset(cors_origins)
        self.targets: list[bytes] = []
        self.held: list[tuple[Exchange, Subscription[Any]]] = []
        self.later: list[Exchange] = []
        self.streams: list[ScriptedStream] = []
        self.abandoned: list[Held] = []
        self.deepest = 0
        self.run: Callable[[], None] = lambda: None
        """Lets the server go on until there is nothing to do."""

    def __call__(self, request: Request, exchange: Exchange) -> None:
        self.targets.append(request.target)
        self.deepest = max(self.deepest, _depth())
        if request.target == b"/held":
            subscription: Subscription[Any] = Subscription(Selection(("a",)), (), 0, 0.0, exchange)
            self.held.append((exchange, subscription))
            exchange.hold(subscription)
        elif request.target.endswith(b"later"):
            self.later.append(exchange)
        elif request.target == b"/stream":
            self.stream(exchange)
        elif request.target == b"/echo":
            exchange.respond(Response(200, request.body))
        elif request.target == b"/big":
            exchange.respond(Response(200, b"x" * 100_000))
        else:
            exchange.respond(Response(200, request.target))

    def stream(self, exchange: Exchange) -> None:
        stream = ScriptedStream(exchange)
        self.streams.append(stream)
        stream.exchange.stream(stream, b"text/event-stream", chunk(b"begin."), chunked=True)

    def write_streams(self, data: bytes) -> None:
        """Write a chunk to all streams whose clients are still connected."""
        for stream in self.streams:
            if stream not in self.abandoned:
                stream.exchange.write(chunk(data))

    def end_streams(self) -> None:
        """End all streams whose clients are still connected."""
        streams, self.streams = self.streams, []
        for stream in streams:
            if stream not in self.abandoned:
                stream.exchange.finish(b"0\r\n\r\n")
        self.run()

    def admit(self, request: Request) -> int:
        """`/small` accepts a body of 100 bytes, `/refused` none."""
        if request.target == b"/refused":
            raise Forbidden("not here")
        return 100 if request.target == b"/small" else 1024 * 1024

    def refuse(self, error: PushUpError, request: Request | None, exchange: Exchange) -> None:
        exchange.respond(problem(error))

    def headers_for(self, request: Request) -> tuple[Header, ...]:
        """CORS headers for the pages of `cors_origins`."""
        origin = request.header(b"origin")
        return ((b"Access-Control-Allow-Origin", origin.encode()),) if origin in self._cors_origins else ()

    def abandon(self, subscription: Held) -> None:
        assert subscription not in self.abandoned
        self.abandoned.append(subscription)

    def answer_held(self, answer: Answer = NOTHING) -> None:
        """Answer all held polls whose clients are still connected."""
        held, self.held = self.held, []
        for exchange, subscription in held:
            if subscription not in self.abandoned:
                exchange.answer(answer)
        self.run()


class ScriptedStream:
    """A stream; counts how often it was told that everything is sent."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.drained_count = 0

    def drained(self) -> None:
        self.drained_count += 1

    def cancel(self) -> None:
        raise AssertionError("abandoned by the application, which does not cancel")


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _depth() -> int:
    """The depth of the call stack below the test."""
    frame, depth = sys._getframe(), 0
    while frame.f_back is not None and not frame.f_code.co_name.startswith("test_"):
        frame, depth = frame.f_back, depth + 1
    return depth


class ScriptedServer(InMemoryServer):
    """An in-memory server in front of a scripted application."""

    def __init__(self, application: ScriptedApplication, **settings: Any) -> None:
        super().__init__(application, **settings)
        self.application = application
        application.run = self.demultiplexer.run


def serve(
    *,
    limits: EdgeLimits | None = None,
    request_limits: RequestLimits | None = None,
    cors_origins: Iterable[str] = (),
) -> ScriptedServer:
    return ScriptedServer(ScriptedApplication(cors_origins), limits=limits, request_limits=request_limits)


def get(target: bytes, fields: bytes = b"", method: bytes = b"GET") -> bytes:
    return b"%b %b HTTP/1.1\r\nHost: a\r\n%b\r\n" % (method, target, fields)


def post(target: bytes, length: int, fields: bytes = b"") -> bytes:
    return b"POST %b HTTP/1.1\r\nHost: a\r\n%bContent-Length: %d\r\n\r\n" % (target, fields, length)


CHUNKED = b"POST %b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
"""A request with a chunked body; its target is to be filled in."""


def act_at_random(random: Random, client: Client, server: ScriptedServer) -> None:
    """Have the client, the application or the clock do something random."""
    if client.closed():
        return
    kind = random.random()
    if kind < 0.75:
        client.send(
            random.choice(
                [
                    get(b"/held"), get(b"/a"), get(b"/big"), b"GET /a", b" HTTP/1.1\r\nHost: a\r\n", b"\r\n",
                    post(b"/echo", 300), post(b"/echo", 300) + b"x" * 200, b"x" * 100, post(b"/refused", 10),
                    post(b"/echo", 10, b"Expect: 100-continue\r\n"), CHUNKED % b"/echo", b"3\r\nabc\r\n", b"0\r\n\r\n",
                    get(b"/last", b"Connection: close\r\n"), get(b"/later"), get(b"/stream"),
                ]
            )
        )  # fmt: skip
    elif kind < 0.82:
        client.read(random.choice([None, 50_000]))
    elif kind < 0.85:
        client.end()
    elif kind < 0.88:
        client.reset()
    elif kind < 0.92:
        server.application.answer_held()
    elif kind < 0.95:
        server.application.write_streams(b"x" * random.choice([10, 5_000, 300_000]))
    elif kind < 0.96:
        server.application.end_streams()
    else:
        server.advance(random.choice([1, 1, 5, 12]))
