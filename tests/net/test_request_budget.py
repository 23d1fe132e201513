"""The memory of incomplete and waiting requests: refused by their heads, limited in total, and freed afterwards."""

from __future__ import annotations

import tracemalloc
from random import Random
from typing import cast

import pytest

from pushup.net.connection import Connection
from pushup.net.connection_states import Phase
from pushup.net.edge import SWEEP_SECONDS
from pushup.net.edge_limits import EdgeLimits, RequestLimits
from pushup.net.requests_and_responses import Response
from pushup.net.wait.demultiplexer import Watched
from tests.net.in_memory_server import Client
from tests.net.scripted_application import CHUNKED, act_at_random, get, post, serve

BODY = 200_000


ORIGIN = b"Origin: https://example.org\r\n"


@pytest.mark.parametrize("head", [post(b"/refused", BODY), post(b"/refused", 1), CHUNKED % b"/refused"])
def test_a_request_is_refused_as_soon_as_its_head_is_complete(head: bytes) -> None:
    """None of its body is kept, no later request is served, and the connection ends."""
    server = serve()
    client = server.connect()
    client.send(head)
    reply = client.reply()
    assert (reply.status, reply.headers["connection"]) == (403, "close")
    client.send(b"x" * BODY + get(b"/smuggled"))
    assert server.edge.waiting_bytes == 0
    assert server.application.targets == []
    assert client.server_half_closed()


@pytest.mark.parametrize("head", [post(b"/refused", 1, ORIGIN), post(b"/small", 101, ORIGIN)])
@pytest.mark.parametrize("before", [b"", get(b"/before")])
def test_scripts_may_read_why_a_request_is_refused(before: bytes, head: bytes) -> None:
    server = serve(cors_origins=["https://example.org"])
    client = server.connect()
    client.send(before + head)
    assert client.replies()[-1].headers["access-control-allow-origin"] == "https://example.org"
    assert client.server_half_closed()


def test_scripts_may_read_that_a_request_took_too_long() -> None:
    server = serve(cors_origins=["https://example.org"])
    client = server.connect()
    client.send(post(b"/echo", BODY, ORIGIN))
    server.advance(EdgeLimits().request_timeout_seconds + 2 * SWEEP_SECONDS)
    reply = client.reply()
    assert (reply.status, reply.headers["access-control-allow-origin"]) == (408, "https://example.org")


def test_a_head_request_is_refused_without_a_body() -> None:
    server = serve()
    client = server.connect()
    client.send(get(b"/refused", b"Content-Length: 1\r\n", b"HEAD"))
    assert client.reply(head=True).status == 403


def test_a_request_behind_a_held_poll_is_refused_in_order() -> None:
    server = serve()
    client = server.connect()
    client.send(get(b"/held") + post(b"/refused", BODY))
    client.send(b"x" * BODY)
    assert (client.replies(), server.edge.waiting_bytes) == ([], 0)
    server.application.answer_held()
    assert [reply.status for reply in client.replies()] == [200, 403]


@pytest.mark.parametrize(
    "head",
    [get(b"/refused"), get(b"/refused", b"Content-Length: 0\r\n"), get(b"/refused", b"Expect: 100-continue\r\n")],
)
def test_without_a_body_the_application_answers(head: bytes) -> None:
    server = serve()
    client = server.connect()
    client.send(head)
    assert client.reply().body == b"/refused"
    assert not client.server_half_closed()


@pytest.mark.parametrize(("size", "status"), [(100, 200), (101, 413)])
@pytest.mark.parametrize("chunked", [False, True])
def test_each_call_has_its_own_limit(size: int, status: int, chunked: bool) -> None:
    """A body larger than its call allows is refused before all of it has arrived, announced or not."""
    server = serve()
    client = server.connect()
    if chunked:
        client.send(CHUNKED % b"/small" + b"%x\r\n%b\r\n0\r\n\r\n" % (size, b"x" * size))
    else:
        client.send(post(b"/small", size) + (b"x" * size if status == 200 else b""))
    assert client.reply().status == status


def test_the_general_body_limit_applies_to_each_call() -> None:
    """Even if the application would accept a larger body."""
    server = serve(request_limits=RequestLimits(body_limit_bytes=1000))
    client = server.connect()
    client.send(post(b"/echo", 1001))
    assert client.reply().status == 413


def test_incomplete_requests_are_limited_in_total() -> None:
    """A client that exceeds the limit gets 503 with Retry-After; others are served, and their memory is freed."""
    server = serve(limits=EdgeLimits(waiting_requests_limit_bytes=3 * BODY))
    clients = [server.connect() for _ in range(5)]
    for client in clients:
        client.send(post(b"/echo", BODY) + b"x" * (BODY - 1))
    refused = [client for client in clients if client.server_half_closed()]
    assert len(refused) == 3, "heads and overheads count as well"
    for client in refused:
        reply = client.reply()
        assert (reply.status, reply.headers["connection"], reply.headers["retry-after"]) == (503, "close", "5")
    assert 2 * (BODY - 1) < server.edge.waiting_bytes <= 3 * BODY
    small = server.connect()
    small.send(post(b"/echo", 5) + b"whole")
    assert small.reply().body == b"whole", "a request that arrives in one piece never counts"
    for client in clients:
        if client not in refused:
            client.send(b"x")
            assert len(client.reply().body) == BODY
    assert server.edge.waiting_bytes == 0
    again = server.connect()
    again.send(post(b"/echo", BODY) + b"x" * (BODY - 1))
    again.send(b"x")
    assert len(again.reply().body) == BODY


MANY_FIELDS = b"".join(b"%x:\r\n" % number for number in range(2000))


@pytest.mark.parametrize(
    "data",
    [
        b"G",
        b"GET / HTTP/1.1\r\nHost: a\r\n" + MANY_FIELDS,
        get(b"/held") + get(b"/") * 60,
        get(b"/held") + get(b"/", MANY_FIELDS),
    ],
    ids=["one byte", "many fields", "pipeline", "pipeline with many fields"],
)
def test_memory_counts_and_not_bytes(data: bytes) -> None:
    """Small parts take many times their size in memory, and count as that much."""
    server = serve()
    clients = [server.connect() for _ in range(10)]
    tracemalloc.start()
    try:
        for client in clients:
            client.send(data)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [client.take() for client in clients] == [b""] * 10
    # In the pipelines, the held poll takes memory as well, which counts elsewhere.
    assert 0.7 * taken < server.edge.waiting_bytes < 3 * taken


def test_requests_behind_held_polls_are_limited_in_total() -> None:
    """A client that exceeds the limit gets the answers to its polls first, and then 503."""
    server = serve(limits=EdgeLimits(waiting_requests_limit_bytes=50_000))
    clients = [server.connect() for _ in range(20)]
    for client in clients:
        client.send(get(b"/held") + post(b"/echo", 3000) + b"x" * 3000)
        client.send(post(b"/echo", 3000) + b"x" * 3000)
    assert 0 < server.edge.waiting_bytes <= 50_000
    server.application.answer_held()
    statuses = [[reply.status for reply in client.replies()] for client in clients]
    assert [200, 200, 200] in statuses
    assert any(status[0] == 200 and status[-1] == 503 for status in statuses)
    assert server.edge.waiting_bytes == 0


def test_a_request_that_is_completed_is_not_refused() -> None:
    """However much waits on other connections, it gets one response, and its connection stays open."""
    server = serve(limits=EdgeLimits(waiting_requests_limit_bytes=50_000))
    client, poller = server.connect(), server.connect()
    client.send(post(b"/echo", 10) + b"x" * 5)
    poller.send(get(b"/held")[:-1])
    for _ in range(20):
        server.connect().send(get(b"/held") + (post(b"/echo", 3000) + b"x" * 3000) * 2)
    client.send(b"x" * 5)
    poller.send(b"\n")
    assert [reply.status for reply in client.replies()] == [200]
    server.application.answer_held()
    assert [reply.status for reply in poller.replies()] == [200]
    assert not client.server_half_closed()
    assert not poller.server_half_closed()


def test_beyond_the_limit_a_connection_keeps_nothing() -> None:
    """A connection that exceeds the limit drops its waiting requests, so that many cannot exceed it by much."""
    server = serve(limits=EdgeLimits(waiting_requests_limit_bytes=50_000))
    clients = [server.connect() for _ in range(40)]
    for client in clients:
        client.send(get(b"/held") + (post(b"/echo", 3000) + b"x" * 3000) * 2)
        assert server.edge.waiting_bytes <= 50_000
    server.application.answer_held()
    assert [reply.status for reply in clients[-1].replies()] == [200, 503]
    assert clients[-1].server_half_closed()


def _counted_bytes(connection: Watched) -> int:
    pipeline = cast(Connection, connection).pipeline
    return 0 if pipeline is None else pipeline.counted_bytes


@pytest.mark.parametrize("seed", range(40))
def test_counted_memory_is_always_released(seed: int) -> None:
    """Whatever clients do, in whatever order: when all have left or been answered, nothing is counted."""
    random = Random(seed)
    server = serve(limits=EdgeLimits(waiting_requests_limit_bytes=random.choice([2_000, 10_000, 10**6])))
    clients: list[Client] = []
    for _ in range(150):
        if not clients or random.random() < 0.1:
            clients.append(server.connect(random.choice([None, 1000])))
        act_at_random(random, random.choice(clients), server)
        assert server.edge.waiting_bytes >= 0
        assert server.edge.waiting_bytes == sum(map(_counted_bytes, server.demultiplexer.wanted))
    for _ in range(100):
        server.application.answer_held()
        server.application.end_streams()
        later, server.application.later = server.application.later, []
        for client in clients:
            if not client.closed():
                client.read(None)
        for exchange in later:
            if cast(Connection, exchange).phase is not Phase.CLOSED:
                exchange.respond(Response(204))
        server.advance(2)
    assert server.edge.waiting_bytes == 0
