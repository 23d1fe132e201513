"""A line for each request, at level debug: method, target, status, milliseconds, client, traceparent."""

from __future__ import annotations

import re

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from pushup.core.answer import Answer
from pushup.core.errors import PushUpError
from pushup.net.api.traceparent import traceparent_of
from pushup.net.application_interface import Application, Exchange, Streamed
from pushup.net.requests_and_responses import Request, Response

TARGET_LIMIT = 200
"""Characters of a target that are logged."""

_LOGGED_VALUES = re.compile(r"(channel|cursor|timeout|limit|from|to|after|_)=")
"""Parameters that are logged with their values. The value of any other has no meaning here, and may be a secret."""

_USER = re.compile(r"^([A-Za-z]+://)[^/@]*@")
"""The user and password in a target in absolute form."""

_log = Logger()


class RequestLog:
    """An application that logs the requests to another one."""

    def __init__(self, application: Application, clock: IReactorTime) -> None:
        self._application = application
        self._clock = clock
        self.admit, self.headers_for, self.abandon = application.admit, application.headers_for, application.abandon

    def refuse(self, error: PushUpError, request: Request | None, exchange: Exchange) -> None:
        logged = exchange if request is None else _LoggedExchange(request, exchange, self._clock)
        self._application.refuse(error, request, logged)

    def __call__(self, request: Request, exchange: Exchange) -> None:
        self._application(request, _LoggedExchange(request, exchange, self._clock))


class _LoggedExchange:
    """Logs how its request was answered. It keeps only what it logs of the request: a poll may be held for a while."""

    def __init__(self, request: Request, exchange: Exchange, clock: IReactorTime) -> None:
        self._method = request.method
        self._target = request.target
        self._traceparent = traceparent_of(request)
        self._exchange = exchange
        self._clock = clock
        self._began_at = clock.seconds()
        self.client = exchange.client
        self.hold, self.write, self.finish = exchange.hold, exchange.write, exchange.finish

    @property
    def route(self) -> str:
        return self._exchange.route

    @route.setter
    def route(self, route: str) -> None:
        self._exchange.route = route

    def answer(self, answer: Answer) -> None:
        self._line(200)
        self._exchange.answer(answer)

    def respond(self, response: Response) -> None:
        self._line(response.status)
        self._exchange.respond(response)

    def stream(self, streamed: Streamed, content_type: bytes, first: bytes, *, chunked: bool) -> bool:
        self._line(200)
        return self._exchange.stream(streamed, content_type, first, chunked=chunked)

    def _line(self, status: int) -> None:
        _log.debug(
            "{method} {target} {status} {milliseconds:.1f} ms {client}"
            + " traceparent {traceparent}" * bool(self._traceparent),
            method=self._method.decode(),
            target=shown_target(self._target),
            status=status,
            milliseconds=1000 * (self._clock.seconds() - self._began_at),
            client=self.client,
            traceparent=self._traceparent or None,
        )


def shown_target(target: bytes) -> str:
    """A target that is safe to log: printable, of bounded length, and without the values of unknown parameters."""
    path, mark, query = target.decode("latin-1").partition("?")
    path = _USER.sub(r"\1...@", path)
    pairs = [pair if _LOGGED_VALUES.match(pair) else _without_value(pair) for pair in query.split("&")]
    text = ascii(path + mark + ("&".join(pairs) if mark else ""))[1:-1]
    return text if len(text) <= TARGET_LIMIT else text[:TARGET_LIMIT] + "..."


def _without_value(pair: str) -> str:
    name, equals, _ = pair.partition("=")
    return f"{name}=..." if equals else "..."


_check: type[Exchange] = _LoggedExchange
