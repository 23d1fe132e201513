"""At `connections_limit`: operators are answered, everybody else reads a 503, and the operator hears of it."""

from __future__ import annotations

import json
import socket
from typing import cast

import pytest

from pushup.net.edge import LINGER_SECONDS, SWEEP_SECONDS
from pushup.net.edge_limits import EdgeLimits
from pushup.net.log_throttle import LOG_SECONDS
from pushup.net.proxies import TrustedProxies
from pushup.net.requests_and_responses import Response
from pushup.net.reserve import OPERATOR_PATHS, RESERVED_CONNECTIONS
from pushup.testing.in_memory import InMemoryListeningSocket, InMemorySocket
from tests.net.in_memory_node import behind_an_edge
from tests.net.in_memory_server import START, Client, InMemoryServer
from tests.net.observed_log import logged_at
from tests.net.scripted_application import ScriptedApplication, get, serve

LIMIT = 3
MOST = LIMIT + RESERVED_CONNECTIONS

OPERATORS = sorted(OPERATOR_PATHS)
POLL = get(b"/v1/poll?channel=a&timeout=60")


def publication(size: int) -> bytes:
    body = json.dumps({"channels": ["a"], "data": "x" * size}).encode()
    return b"POST /v1/messages HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


@pytest.fixture
def server() -> InMemoryServer:
    """A server whose clients take all its connections with held polls."""
    _, server = behind_an_edge(EdgeLimits(connections_limit=LIMIT))
    for _ in range(LIMIT):
        server.connect().send(POLL)
    return server


def connect_together(server: InMemoryServer, requests: list[bytes]) -> list[Client]:
    """Clients that are accepted in one turn, after their requests have arrived."""
    sockets = [InMemorySocket() for _ in requests]
    for sock, request in zip(sockets, requests, strict=True):
        sock.incoming += request
    server.listening.queue += sockets
    (listener,) = server.reactor.readers
    listener.doRead()
    server.demultiplexer.run()
    return [Client(sock, server.demultiplexer.run) for sock in sockets]


@pytest.mark.parametrize("target", OPERATORS)
def test_operators_are_answered(server: InMemoryServer, target: bytes) -> None:
    """As ever, but each on a connection of its own."""
    for method in (b"GET", b"HEAD"):
        client = server.connect()
        client.send(get(target + b"?a=b", method=method) + get(target))
        reply = client.reply(head=method == b"HEAD")
        assert (reply.status, reply.headers["connection"]) == (200, "close")
        client.end()
        assert client.closed()
    assert server.metrics.refused_connections == 0
    assert server.metrics.accepted_connections == LIMIT + 2


@pytest.mark.parametrize(
    "request_bytes", [POLL, publication(3), get(b"/v1/events?channel=a"), get(b"/healthzz"), get(b"/", method=b"PUT")]
)
def test_everybody_else_is_refused(server: InMemoryServer, request_bytes: bytes) -> None:
    """A 503 that says when to try again, and why."""
    for again in range(1, 4):  # the second time its head is known
        client = server.connect()
        client.send(request_bytes + get(b"/healthz"))
        reply = client.reply()
        assert (reply.status, reply.headers["connection"]) == (503, "close")
        assert int(reply.headers["retry-after"]) > 0
        assert b"connections_limit (3)" in reply.body
        assert server.metrics.refused_connections == again
    assert server.metrics.accepted_connections == LIMIT
    assert server.metrics.messages == 0


def test_a_request_that_is_no_request(server: InMemoryServer) -> None:
    """It gets what it would get on any connection."""
    client = server.connect()
    client.send(b"NONSENSE\r\n\r\n")
    assert client.reply().status == 400


@pytest.mark.parametrize("pieces", [1, 50])
def test_a_publisher_reads_its_refusal(server: InMemoryServer, pieces: int) -> None:
    """It may send its whole body first, of which nothing is kept; then it reads the 503, and no reset."""
    client, data = server.connect(), publication(50_000)
    step = len(data) // pieces + 1
    for start in range(0, len(data), step):
        client.send(data[start : start + step])
        assert not client.closed()
        assert server.edge.waiting_bytes == 0
    assert client.socket.incoming == b""
    assert client.reply().status == 503
    assert client.server_half_closed()
    client.end()
    assert client.closed()


def test_lingering_is_bounded(server: InMemoryServer) -> None:
    """A refused client that does not close its side is disconnected, even if it sends for as long as it can."""
    silent, chatty = server.connect(), server.connect()
    for client in (silent, chatty):
        client.send(POLL)
    server.advance(LINGER_SECONDS + 2 * SWEEP_SECONDS)
    assert silent.closed()
    while not chatty.closed():
        assert server.clock.seconds() < START + EdgeLimits().request_timeout_seconds + 2 * SWEEP_SECONDS
        chatty.send(b"x")
        server.advance(1)
    assert server.edge.connection_count == LIMIT


def test_clients_that_send_nothing_keep_no_probe_out(server: InMemoryServer) -> None:
    """The one that came first makes room for the next, and gets its 503 as well; there are never more connections."""
    silent = [server.connect() for _ in range(2 * RESERVED_CONNECTIONS)]
    assert server.edge.connection_count == MOST
    assert [client.closed() for client in silent] == [True] * RESERVED_CONNECTIONS + [False] * RESERVED_CONNECTIONS
    assert {client.reply().status for client in silent[:RESERVED_CONNECTIONS]} == {503}
    probe = server.connect()
    probe.send(get(b"/readyz"))
    assert probe.reply().status == 200
    assert server.edge.connection_count == MOST
    assert server.metrics.refused_connections == RESERVED_CONNECTIONS + 1


def test_a_crowd_that_comes_at_once(server: InMemoryServer) -> None:
    """However many connections are accepted in one turn, probes among them are answered, and the others refused."""
    requests = [get(b"/readyz") if number % 20 == 7 else POLL for number in range(100)]
    clients = connect_together(server, requests)
    expected = [200 if b"readyz" in request else 503 for request in requests]
    assert [client.reply().status for client in clients] == expected
    assert server.metrics.refused_connections == expected.count(503)
    assert server.edge.connection_count == MOST


@pytest.mark.parametrize("place", [0, 1, 2, RESERVED_CONNECTIONS + 2])
def test_a_probe_that_is_answered_later_keeps_its_place(place: int) -> None:
    """With several workers, metrics come from the parent. The next oldest connection makes room."""
    server = serve(limits=EdgeLimits(connections_limit=1))
    server.connect()
    requests = [b""] * (RESERVED_CONNECTIONS + 3)
    requests[place] = get(b"/metrics?later")
    clients = connect_together(server, requests)
    (exchange,) = server.application.later
    exchange.respond(Response(200, b"all"))
    assert clients[place].reply().body == b"all"
    closed = [number for number, client in enumerate(clients) if client.closed()]
    assert closed == [number for number in range(4) if number != place][:3]


def test_the_oldest_probe_makes_room_if_all_are_answered_later() -> None:
    """Else operators who ask a server whose parent hangs could keep the next one out."""
    server = serve(limits=EdgeLimits(connections_limit=1))
    server.connect()
    clients = connect_together(server, [get(b"/metrics?later")] * (RESERVED_CONNECTIONS + 1))
    assert [client.closed() for client in clients] == [True] + [False] * RESERVED_CONNECTIONS


def test_room_again(server: InMemoryServer) -> None:
    """When a client leaves, the next one is served as usual, whoever is in the reserve."""
    refused = server.connect()
    refused.send(POLL)
    leaving, *_ = list(server.demultiplexer.wanted)
    leaving.lost()
    client = server.connect()
    client.send(get(b"/v1/cursor"))
    reply = client.reply()
    assert (reply.status, "connection" in reply.headers) == (200, False)


def test_the_operator_hears_of_it_once_a_minute(server: InMemoryServer) -> None:
    """The first refusal is logged at once, the others are counted and logged together a minute later."""
    with logged_at("warn") as lines:
        for _ in range(3):
            server.connect().send(POLL)
        server.advance(LOG_SECONDS)
        server.connect().send(POLL)
    assert [line.partition(",")[0] for line in lines] == ["refused 1 connections", "refused 3 connections"]
    assert "connections_limit (3)" in lines[0]


def test_nothing_is_left(server: InMemoryServer) -> None:
    """Whatever its clients are doing, an edge with a reserve in use drains and closes."""
    waiting = server.connect()
    waiting.send(b"GET /healthz")
    silent = server.connect()
    lingering = server.connect()
    lingering.send(POLL)
    server.edge.drain()
    assert silent.server_half_closed()
    waiting.send(b" HTTP/1.1\r\nHost: a\r\n\r\n")
    assert waiting.reply().status == 200
    server.edge.close()
    assert waiting.closed()
    assert lingering.closed()
    assert server.edge.connection_count == 0


def connect_operator(server: InMemoryServer, queue: InMemoryListeningSocket, request: bytes) -> Client:
    """A client on the address of operators."""
    sock = InMemorySocket()
    sock.incoming += request
    queue.queue.append(sock)
    for listener in list(server.reactor.readers):
        listener.doRead()
    server.demultiplexer.run()
    return Client(sock, server.demultiplexer.run)


def test_operators_have_a_reserve_of_their_own(server: InMemoryServer) -> None:
    """Whoever crowds the public address, or sends nothing on that of operators, keeps none of them out there."""
    queue = InMemoryListeningSocket()
    server.edge.listen(cast(socket.socket, queue), for_operators=True)

    silent = [connect_operator(server, queue, b"") for _ in range(2 * RESERVED_CONNECTIONS)]
    for _ in range(2):
        operator = connect_operator(server, queue, get(b"/v1/nodes"))  # refused on the public address, at this limit
        reply = operator.reply()
        assert (reply.status, reply.headers["connection"]) == (200, "close")
    assert [client.closed() for client in silent].count(False) < RESERVED_CONNECTIONS
    evicted = silent[0].reply()
    assert (evicted.status, b"operator_listen" in evicted.body) == (503, True)
    assert server.edge.connection_count == LIMIT + RESERVED_CONNECTIONS


def test_whom_a_proxy_speaks_for() -> None:
    """It is believed in both reserves, as everywhere: quotas and the log are about its clients."""
    application, queue = ScriptedApplication(), InMemoryListeningSocket()
    proxies = TrustedProxies(["127.0.0.1"], "X-Forwarded-For")
    server = InMemoryServer(application, limits=EdgeLimits(connections_limit=1), proxies=proxies)
    server.connect()
    server.connect().send(get(b"/metrics?later", b"X-Forwarded-For: 192.0.2.7\r\n"))
    server.edge.listen(cast(socket.socket, queue), for_operators=True)
    connect_operator(server, queue, get(b"/later", b"X-Forwarded-For: 192.0.2.8\r\n"))
    assert [exchange.client.host for exchange in application.later] == ["192.0.2.7", "192.0.2.8"]
