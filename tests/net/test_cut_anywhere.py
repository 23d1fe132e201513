"""A request may arrive cut anywhere, whatever came before it: the outcome is that of the same bytes, uncut and first.

The edge is warm: it has seen the request whole on another connection, and each of its lines as the last of a head. So
whatever may be remembered from one request to the next, in the parser that connections share or beside it, is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

import pytest

from pushup.core.errors import PushUpError
from pushup.net.application_interface import Exchange
from pushup.net.http_errors import problem
from pushup.net.known_heads import HEAD_LIMIT_BYTES
from pushup.net.requests_and_responses import Request, Response
from tests.net.parser_readings import cut, line_ends
from tests.net.scripted_application import ScriptedApplication, ScriptedServer
from tests.net.smuggling_vectors import LAST, READ, REFUSED, SMUGGLED

_FIREFOX = (
    b"Host: push.example.org\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n"
    b"Accept: %b\r\nAccept-Language: en-US,en;q=0.5\r\nAccept-Encoding: gzip, deflate, br, zstd\r\n"
    b"Connection: keep-alive\r\nSec-Fetch-Dest: empty\r\nSec-Fetch-Mode: cors\r\nSec-Fetch-Site: same-origin\r\n"
)

BROWSERS = {
    "a poll": b"GET /v1/poll?channel=a&cursor=e-1 HTTP/1.1\r\n" + _FIREFOX % b"*/*" + b"Cookie: session=1\r\n\r\n",
    "a stream": b"GET /v1/events?channel=a HTTP/1.1\r\n" + _FIREFOX % b"text/event-stream" + b"\r\n",
    "a stream that continues": (
        b"GET /v1/events?channel=a HTTP/1.1\r\n" + _FIREFOX % b"text/event-stream" + b"Last-Event-ID: e-1\r\n\r\n"
    ),
    "a publication": (
        b"POST /v1/messages HTTP/1.1\r\n" + _FIREFOX % b"*/*" + b"Authorization: Bearer 0123456789abcdef\r\n"
        b"Content-Length: 3\r\n\r\nabc"
    ),
    "curl": b"GET /v1/poll?channel=a HTTP/1.1\r\nHost: a\r\nUser-Agent: curl/7.88.1\r\nAccept: */*\r\n\r\n",
}

_LONGEST = (
    b"POST /v1/messages HTTP/1.1\r\nHost: a\r\nUser-Agent: %b\r\nAuthorization: Bearer 0123456789abcdef\r\n"
    b"Content-Length: 0\r\n\r\n"
)
BROWSERS["the longest head that is remembered"] = _LONGEST % (b"x" * (HEAD_LIMIT_BYTES - len(_LONGEST % b"")))

WHOLE = {**BROWSERS, **REFUSED, **{name: data for name, (data, _) in READ.items()}, **LAST}

RUN = 16
"""Equal bytes in a row; inside of a longer run, each cut is like the others."""


class Outcome(NamedTuple):
    """The requests that reached the application, and the statuses that the client got, in order."""

    requests: list[tuple[object, ...]]
    statuses: list[int]
    is_over: bool


class Recorder(ScriptedApplication):
    """Records all of each request, and answers it at once."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[tuple[object, ...]] = []

    def __call__(self, request: Request, exchange: Exchange) -> None:
        fields = dict(request.headers)
        self.requests.append((request.method, request.target, fields, request.body, request.keep_alive, request.is_1_0))
        exchange.respond(Response(200))

    def refuse(self, error: PushUpError, request: Request | None, exchange: Exchange) -> None:
        exchange.respond(problem(error))


class Edge:
    """An edge in front of a recorder."""

    def __init__(self) -> None:
        self._application = Recorder()
        self._server = ScriptedServer(self._application)

    def outcome(self, parts: list[bytes]) -> Outcome:
        """What becomes of these bytes, sent in these parts on a new connection."""
        self._application.requests = []
        client = self._server.connect()
        for part in parts:
            client.send(part)
        statuses = [int(status) for status in re.findall(rb"HTTP/1\.1 ([0-9]+) ", client.take())]
        is_over = client.server_half_closed()
        if not client.closed():
            client.reset()
        # Whether a client needs `100 Continue` depends on whether its body has come already.
        return Outcome(self._application.requests, [status for status in statuses if status != 100], is_over)


def warmed_by(data: bytes) -> Edge:
    edge = Edge()
    edge.outcome([data])
    edge.outcome([data + SMUGGLED])
    for end in line_ends(data):
        edge.outcome([data[:end] + b"\r\n\r\n"])
        edge.outcome([data[:end] + b"\r\n"])
    return edge


def cuts(data: bytes) -> Iterator[list[bytes]]:
    """The data, cut at each byte, at each pair of line ends, and at all bytes."""
    places = [p for p in range(1, len(data)) if len(set(data[max(0, p - RUN) : p + RUN])) > 1]
    for place in places:
        yield cut(data, [place])
    for pair in combinations(line_ends(data), 2):
        yield cut(data, list(pair))
    yield cut(data, places)


@pytest.mark.parametrize("name", WHOLE)
def test_a_request_may_be_cut_anywhere(name: str) -> None:
    """Each smuggling vector, and the requests of browsers, with another request behind."""
    data = WHOLE[name] + SMUGGLED
    expected = Edge().outcome([data])
    edge = warmed_by(WHOLE[name])
    for parts in cuts(data):
        assert edge.outcome(parts) == expected, parts


@pytest.mark.parametrize("name", WHOLE)
def test_a_request_may_come_again(name: str) -> None:
    """Uncut, too: alone, with another request behind, and twice."""
    data = WHOLE[name]
    edge = warmed_by(data)
    for again in (data, data + SMUGGLED, data + data):
        assert edge.outcome([again]) == Edge().outcome([again])
