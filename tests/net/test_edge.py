"""The edge in front of the HTTP API of a complete node: CORS, limits, failures, leaks."""

from __future__ import annotations

import errno
import json
from email.utils import formatdate

import pytest

from pushup.metrics import Metrics
from pushup.net.edge import Edge
from pushup.net.edge_limits import EdgeLimits, RequestLimits
from pushup.net.wait.demultiplexer import Watched
from pushup.testing.in_memory import InMemoryDemultiplexer, InMemoryReactor
from tests.net.in_memory_node import InMemoryNode, behind_an_edge
from tests.net.in_memory_server import START, InMemoryServer, make_clock
from tests.net.scripted_application import ScriptedApplication, get, serve

_BODY = b'{"channels": ["a"], "data": "hello"}'
MESSAGE = b"POST /v1/messages HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%b" % (len(_BODY), _BODY)


def test_from_publication_to_clients() -> None:
    """Every waiting client gets a published message, in the same bytes."""
    _, server = behind_an_edge()
    waiting = [server.connect() for _ in range(700)]
    for client in waiting:
        client.send(get(b"/v1/poll?channel=a&cursor=now"))
    publisher = server.connect()
    publisher.send(MESSAGE)
    assert publisher.reply().status == 201
    taken = {client.take() for client in waiting}
    (data,) = taken
    assert b'"data":"hello"' in data
    waiting[0].send(get(b"/v1/poll?channel=a&timeout=0"))
    assert json.loads(waiting[0].reply().body)["messages"][0]["data"] == "hello"


def test_nothing_leaks() -> None:
    node, server = behind_an_edge()
    poll = get(b"/v1/poll?channel=a&channel=b&cursor=now&timeout=20")
    bad, last = b"NONSENSE\r\n\r\n", get(b"/v1/poll?channel=a&cursor=now", b"Connection: close\r\n")
    ways = [b"", b"GET", poll, poll + poll, poll + MESSAGE, MESSAGE + poll, bad, poll + bad, last]
    clients = []
    for way in ways:
        for leave in ("end", "reset", "stay"):
            for capacity in (None, 50):
                client = server.connect(capacity)
                client.send(way)
                clients.append((client, leave))
    assert node.polls.count > 0
    for client, leave in clients:
        if leave != "stay" and not client.closed():
            getattr(client, leave)()
    server.advance(30)
    for client, _ in clients:
        if not client.closed():
            client.reset()
    assert server.edge.connection_count == 0
    assert server.demultiplexer.wanted == {}
    assert node.polls.count == 0
    node.check()


def test_a_cursor_in_the_second_segment() -> None:
    """A stream whose head is known, but for the cursor that arrives with the next segment, continues there."""
    _, server = behind_an_edge()
    head = b"GET /v1/events?channel=a HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream"
    server.connect().send(head + b"\r\n\r\n")
    publisher = server.connect()
    publisher.send(get(b"/v1/cursor"))
    cursor = json.loads(publisher.reply().body)["cursor"].encode()
    publisher.send(MESSAGE)
    client = server.connect()
    client.send(head)
    assert client.take() == b""
    client.send(b"\r\nLast-Event-ID: %b\r\n\r\n" % cursor)
    assert b'"data":"hello"' in client.take()


def test_the_date_is_of_the_wall_clock() -> None:
    """It follows that clock within a second, and timeouts do not."""
    _, server = behind_an_edge()
    wall = [START]
    server.wall = lambda: wall[0]
    client = server.connect()
    for ahead in (3600.0, -3600.0):
        wall[0] = START + ahead
        server.advance(1.0)
        client.send(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
        assert client.reply().headers["date"] == formatdate(START + ahead, usegmt=True)
    assert not client.closed()


def test_making_an_edge_starts_nothing() -> None:
    """Timers run from `start` until `close`, and an edge that was never started can be closed."""
    clock, reactor, metrics = make_clock(), InMemoryReactor(), Metrics()

    def make() -> Edge:
        return Edge(
            application=ScriptedApplication(),
            demultiplexer=InMemoryDemultiplexer(),
            reactor=reactor,
            clock=clock,
            wall=clock.seconds,
            limits=EdgeLimits(),
            request_limits=RequestLimits(),
            metrics=metrics,
        )

    make().close()
    edge = make()
    assert clock.getDelayedCalls() == []
    edge.start()
    assert len(clock.getDelayedCalls()) == 1
    edge.close()
    assert clock.getDelayedCalls() == []
    assert reactor.readers == []


def test_connections_limit() -> None:
    server = serve(limits=EdgeLimits(connections_limit=2))
    first, _ = server.connect(), server.connect()
    refused = server.connect()
    refused.send(get(b"/a"))
    reply = refused.reply()
    assert (reply.status, reply.headers["connection"]) == (503, "close")
    assert int(reply.headers["retry-after"]) > 0
    refused.end()
    assert refused.closed()
    assert server.edge.connection_count == 2
    assert (server.metrics.accepted_connections, server.metrics.refused_connections) == (2, 1)
    first.end()
    later = server.connect()
    later.send(get(b"/a"))
    assert later.reply().status == 200


def test_a_connection_that_cannot_be_watched(logged_failures: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is logged, closed and forgotten, and the next ones are accepted."""
    server = serve()
    add = server.demultiplexer.add

    def none_left(connection: Watched) -> None:
        monkeypatch.setattr(server.demultiplexer, "add", add)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(server.demultiplexer, "add", none_left)
    failed = server.connect()
    assert failed.closed()
    assert (server.edge.connection_count, server.metrics.accepted_connections) == (0, 0)
    assert len(logged_failures) == 1
    logged_failures.clear()
    client = server.connect()
    client.send(get(b"/a"))
    assert client.reply().body == b"/a"


def test_a_failure_in_the_application(logged_failures: list[str]) -> None:
    """An unexpected exception is logged once and answered 500, without details; other connections are not affected."""
    node = InMemoryNode()

    def fail(command: object, on_outcome: object) -> None:
        raise ZeroDivisionError("what nobody expected")

    node.node.submit = fail  # type: ignore[method-assign]
    client = InMemoryServer(node.api).connect()
    client.send(MESSAGE + get(b"/healthz"))
    failed, healthy = client.replies()
    assert (failed.status, healthy.status) == (500, 200)
    assert failed.headers["content-type"] == "application/problem+json"
    assert b"nobody expected" not in failed.body
    assert len(logged_failures) == 1
    assert "what nobody expected" in logged_failures[0]
    logged_failures.clear()
    assert not client.server_half_closed()


ALLOWED, OTHER = b"https://app.example", b"https://evil.example"


def test_a_page_of_another_origin() -> None:
    """It may read answers, errors and preflights. (Which pages may: test_cors.py.)"""
    field = b"Origin: %b\r\n" % ALLOWED
    _, server = behind_an_edge(cors_origins=("https://app.example",))
    client = server.connect()
    client.send(
        get(b"/v1/poll?channel=a&timeout=0", field)
        + get(b"/v1/poll", field)
        + get(b"/healthz", field)
        + get(b"/v1/messages", field + b"Access-Control-Request-Method: POST\r\n", method=b"OPTIONS")
    )
    replies = client.replies()
    assert [reply.status for reply in replies] == [200, 400, 200, 204]
    for reply in replies:
        assert reply.headers["access-control-allow-origin"] == "https://app.example"
        assert reply.headers["vary"] == "Origin"
    assert replies[3].headers["access-control-allow-methods"] == "POST, DELETE, OPTIONS"


def test_an_answer_for_each_origin() -> None:
    _, server = behind_an_edge(cors_origins=("https://app.example",))
    clients = [server.connect() for _ in range(3)]
    for client, origin in zip(clients, (ALLOWED, OTHER, None), strict=True):
        client.send(get(b"/v1/poll?channel=a", b"Origin: %b\r\n" % origin if origin else b""))
    server.connect().send(MESSAGE)
    replies = [client.reply() for client in clients]
    assert [reply.headers.get("access-control-allow-origin") for reply in replies] == [
        "https://app.example",
        None,
        None,
    ]
    assert len({reply.body for reply in replies}) == 1
