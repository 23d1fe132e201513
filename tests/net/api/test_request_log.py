"""The line that is logged for each request at level debug."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from pushup.net.api.request_log import TARGET_LIMIT, RequestLog, shown_target
from pushup.net.requests_and_responses import Request
from tests.net.api.publishing_node import TRACE
from tests.net.in_memory_node import InMemoryNode, RecordingExchange
from tests.net.in_memory_server import InMemoryServer
from tests.net.observed_log import logged_at
from tests.net.scripted_application import get

BODY = b'{"channels": ["a"], "data": "secret"}'
PUBLICATION = b"POST /v1/messages HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer secret\r\nContent-Length: %d\r\n\r\n%b"


@pytest.fixture
def lines() -> Iterator[list[str]]:
    with logged_at("debug") as lines:
        yield lines


def test_each_request_is_logged(lines: list[str]) -> None:
    """Held polls with their waiting time, publications and refusals, in the order of their responses."""
    node = InMemoryNode()
    server = InMemoryServer(RequestLog(node.api, node.clock), clock=node.clock)
    poller, publisher = server.connect(), server.connect()
    poller.send(get(b"/v1/poll?channel=a&cursor=now"))
    server.advance(3)
    assert lines == []
    publisher.send(PUBLICATION % (len(BODY), BODY))
    node.run()
    assert poller.reply().status == 200
    publisher.send(get(b"/nothing"))
    publisher.send(get(b"/v1/poll?channel=a&timeout=0"))
    assert lines == [
        "POST /v1/messages 201 0.0 ms 127.0.0.1:50000",
        "GET /v1/poll?channel=a&cursor=now 200 3000.0 ms 127.0.0.1:50000",
        "GET /nothing 404 0.0 ms 127.0.0.1:50000",
        "GET /v1/poll?channel=a&timeout=0 200 0.0 ms 127.0.0.1:50000",
    ]


def test_the_trace_of_a_request(lines: list[str]) -> None:
    """If the request belongs to one."""
    node = InMemoryNode()
    server = InMemoryServer(RequestLog(node.api, node.clock), clock=node.clock)
    for value in (TRACE, "nonsense"):
        client = server.connect()
        client.send(PUBLICATION.replace(b"Host", b"TraceParent: %b\r\nHost" % value.encode()) % (len(BODY), BODY))
        assert client.reply().status == 201
    assert [line.partition("127.0.0.1:")[2].partition(" ")[2] for line in lines] == [f"traceparent {TRACE}", ""]


def test_a_request_that_is_refused_by_its_head_is_logged(lines: list[str]) -> None:
    """The application never gets it, but a wrong key is what an operator looks for."""
    node = InMemoryNode(publish_keys=("a-key-that-is-long-enough",))
    server = InMemoryServer(RequestLog(node.api, node.clock), clock=node.clock)
    client = server.connect()
    client.send(PUBLICATION % (len(BODY), BODY))
    assert client.reply().status == 403
    assert lines == ["POST /v1/messages 403 0.0 ms 127.0.0.1:50000"]


def test_a_held_poll_keeps_only_the_log_line_of_its_request() -> None:
    """Header fields and body may take 80 KB."""
    node = InMemoryNode()
    application = RequestLog(node.api, node.clock)
    exchange = RecordingExchange()
    request = Request(b"POST", b"/v1/poll", {b"host": b"a"}, keep_alive=True, body=b'{"channels": ["a"]}')
    references = sys.getrefcount(request)
    application(request, exchange)
    assert node.polls.count == 1
    assert sys.getrefcount(request) == references


def test_a_client_that_disconnects_is_forgotten(lines: list[str]) -> None:
    """The log passes on that a held poll is abandoned."""
    node = InMemoryNode()
    server = InMemoryServer(RequestLog(node.api, node.clock), clock=node.clock)
    client = server.connect()
    client.send(get(b"/v1/poll?channel=a"))
    assert node.polls.count == 1
    client.reset()
    assert (node.polls.count, lines) == (0, [])


@pytest.mark.parametrize(
    ("target", "shown"),
    [
        (b"/v1/poll?channel=a&cursor=e-1&timeout=5&limit=1&from=1&to=2&_=77", None),
        (b"/v1/channels?after=5", None),
        (b"/v1/poll?channel=a&token=hush&key=hush", "/v1/poll?channel=a&token=...&key=..."),
        (b"/v1/poll?hush", "/v1/poll?..."),
        (b"http://user:hush@localhost/v1/poll?channel=a", "http://...@localhost/v1/poll?channel=a"),
        (b"/v1/poll?xchannel=hush", "/v1/poll?xchannel=..."),
        (b"/\x1b[31m\xe9\n", "/\\x1b[31m\\xe9\\n"),
        (b"/" + b"x" * 1000, "/" + "x" * (TARGET_LIMIT - 1) + "..."),
        (b"*", None),
    ],
)
def test_targets_are_harmless(target: bytes, shown: str | None) -> None:
    """A logged target has no values of unknown parameters, no control characters, and a limited length."""
    assert shown_target(target) == (target.decode() if shown is None else shown)
