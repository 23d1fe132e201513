"""An application for the edge that does what the request's target says, so that connections can be tried alone."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from pushup.core.answer import Answer
from pushup.core.errors import Forbidden, PushUpError
from pushup.core.poll import Selection
from pushup.core.subscription import Subscription
from pushup.net.edge import EdgeLimits
from pushup.net.exchange import Exchange, Held
from pushup.net.http1 import Request, RequestLimits
from pushup.net.responses import Response, problem
from tests.net.in_memory_server import InMemoryServer

NOTHING = Answer("e-0", (), False, (), ())


class ScriptedApplication:
    """`/held` is a poll that is held, `/later` is answered when the test says, `/echo` gets its body back, `/big`
    100,000 bytes, and everything else its own target."""

    def __init__(self) -> None:
        self.targets: list[bytes] = []
        self.held: list[tuple[Exchange, Subscription[Any]]] = []
        self.later: list[Exchange] = []
        self.abandoned: list[Held] = []
        self.deepest = 0

    def __call__(self, request: Request, exchange: Exchange) -> None:
        self.targets.append(request.target)
        self.deepest = max(self.deepest, _depth())
        if request.target == b"/held":
            subscription: Subscription[Any] = Subscription(Selection(("a",)), (), 0, 0.0, exchange)
            self.held.append((exchange, subscription))
            exchange.hold(subscription)
        elif request.target == b"/later":
            self.later.append(exchange)
        elif request.target == b"/echo":
            exchange.respond(Response(200, request.body))
        elif request.target == b"/big":
            exchange.respond(Response(200, b"x" * 100_000))
        else:
            exchange.respond(Response(200, request.target))

    def admit(self, request: Request) -> int:
        """`/small` takes a body of 100 bytes, `/refused` none."""
        if request.target == b"/refused":
            raise Forbidden("not here")
        return 100 if request.target == b"/small" else 1024 * 1024

    def refuse(self, error: PushUpError, request: Request, exchange: Exchange) -> None:
        exchange.respond(problem(error))

    def abandon(self, subscription: Held) -> None:
        assert subscription not in self.abandoned
        self.abandoned.append(subscription)

    def answer_held(self, answer: Answer = NOTHING) -> None:
        """Answer all held polls whose clients are still there."""
        held, self.held = self.held, []
        for exchange, subscription in held:
            if subscription not in self.abandoned:
                exchange.answer(answer)


def _depth() -> int:
    """How many calls there are inside each other from the test on."""
    frame, depth = sys._getframe(), 0
    while frame.f_back is not None and not frame.f_code.co_name.startswith("test_"):
        frame, depth = frame.f_back, depth + 1
    return depth


class ScriptedServer(InMemoryServer):
    """An in-memory server with a scripted application."""

    def __init__(self, application: ScriptedApplication, **settings: Any) -> None:
        super().__init__(application, **settings)
        self.application = application


def serve(
    *,
    limits: EdgeLimits | None = None,
    request_limits: RequestLimits | None = None,
    cors_origins: Iterable[str] = (),
) -> ScriptedServer:
    return ScriptedServer(
        ScriptedApplication(), limits=limits, request_limits=request_limits, cors_origins=cors_origins
    )


def get(target: bytes, fields: bytes = b"", method: bytes = b"GET") -> bytes:
    return b"%b %b HTTP/1.1\r\nHost: a\r\n%b\r\n" % (method, target, fields)
