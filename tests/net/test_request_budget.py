"""What requests may take before they are whole: refused by their heads, bounded in all, and free again afterwards."""

from __future__ import annotations

import tracemalloc
from random import Random

import pytest

from pushup.net.edge import SWEEP_SECONDS, EdgeLimits
from pushup.net.http1 import RequestLimits
from pushup.net.responses import Response
from tests.net.in_memory_server import Client
from tests.net.scripted_application import ScriptedServer, get, serve

BODY = 200_000


def post(target: bytes, length: int, fields: bytes = b"") -> bytes:
    return b"POST %b HTTP/1.1\r\nHost: a\r\n%bContent-Length: %d\r\n\r\n" % (target, fields, length)


ORIGIN = b"Origin: https://example.org\r\n"

CHUNKED = b"POST %b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("head", [post(b"/refused", BODY), post(b"/refused", 1), CHUNKED % b"/refused"])
def test_a_request_is_refused_when_its_head_is_there(head: bytes) -> None:
    """Nothing of the body is kept, nothing of what follows is served, and the connection ends."""
    server = serve()
    client = server.connect()
    client.send(head)
    reply = client.reply()
    assert (reply.status, reply.headers["connection"]) == (403, "close")
    client.send(b"x" * BODY + get(b"/smuggled"))
    assert server.edge.waiting_bytes == 0
    assert server.application.targets == []
    assert client.told_to_go()


@pytest.mark.parametrize("head", [post(b"/refused", 1, ORIGIN), post(b"/small", 101, ORIGIN)])
@pytest.mark.parametrize("before", [b"", get(b"/before")])
def test_scripts_may_read_why_a_request_is_refused(before: bytes, head: bytes) -> None:
    """The response says so to a page that may read other responses (CORS)."""
    server = serve(cors_origins=["https://example.org"])
    client = server.connect()
    client.send(before + head)
    assert client.replies()[-1].headers["access-control-allow-origin"] == "https://example.org"
    assert client.told_to_go()


def test_scripts_may_read_that_a_request_took_too_long() -> None:
    """That response, too."""
    server = serve(cors_origins=["https://example.org"])
    client = server.connect()
    client.send(post(b"/echo", BODY, ORIGIN))
    server.advance(EdgeLimits().request_timeout_seconds + 2 * SWEEP_SECONDS)
    reply = client.reply()
    assert (reply.status, reply.headers["access-control-allow-origin"]) == (408, "https://example.org")


def test_a_head_request_is_refused_without_a_body() -> None:
    """As every response to HEAD."""
    server = serve()
    client = server.connect()
    client.send(get(b"/refused", b"Content-Length: 1\r\n", b"HEAD"))
    assert client.reply(head=True).status == 403


def test_a_request_behind_a_held_poll_is_refused_in_its_turn() -> None:
    """The poll is held on and answered as ever."""
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
def test_without_a_body_the_application_is_asked_as_ever(head: bytes) -> None:
    """It answers, and the connection lives on."""
    server = serve()
    client = server.connect()
    client.send(head)
    assert client.reply().body == b"/refused"
    assert not client.told_to_go()


@pytest.mark.parametrize(("size", "status"), [(100, 200), (101, 413)])
@pytest.mark.parametrize("chunked", [False, True])
def test_each_call_has_its_own_limit(size: int, status: int, chunked: bool) -> None:
    """Announced or not: a body that is larger than its call takes is refused, before it is all there."""
    server = serve()
    client = server.connect()
    if chunked:
        client.send(CHUNKED % b"/small" + b"%x\r\n%b\r\n0\r\n\r\n" % (size, b"x" * size))
    else:
        client.send(post(b"/small", size) + (b"x" * size if status == 200 else b""))
    assert client.reply().status == status


def test_the_limit_of_all_holds_for_each_call() -> None:
    """Whatever the application would take."""
    server = serve(request_limits=RequestLimits(body_limit_bytes=1000))
    client = server.connect()
    client.send(post(b"/echo", 1001))
    assert client.reply().status == 413


def test_what_has_come_in_part_is_bounded_in_all() -> None:
    """Who would go past it is told 503 and when to come again; the others are served, and then there is room."""
    server = serve(limits=EdgeLimits(waiting_requests_limit_bytes=3 * BODY))
    clients = [server.connect() for _ in range(5)]
    for client in clients:
        client.send(post(b"/echo", BODY) + b"x" * (BODY - 1))
    refused = [client for client in clients if client.told_to_go()]
    assert len(refused) == 3, "heads and what lies in the way count, too"
    for client in refused:
        reply = client.reply()
        assert (reply.status, reply.headers["connection"], reply.headers["retry-after"]) == (503, "close", "5")
    assert 2 * (BODY - 1) < server.edge.waiting_bytes <= 3 * BODY
    small = server.connect()
    small.send(post(b"/echo", 5) + b"whole")
    assert small.reply().body == b"whole", "a request that comes at once never counts"
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
def test_what_counts_is_what_it_takes(data: bytes) -> None:
    """Small parts take many times their bytes in memory, so more than their bytes counts."""
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
    # In the pipelines a held poll takes some, too, which counts elsewhere.
    assert 0.7 * taken < server.edge.waiting_bytes < 3 * taken


def test_what_waits_behind_held_polls_is_bounded_in_all() -> None:
    """Requests of a pipeline, too; who goes past it is answered its polls first, and then 503."""
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


def test_a_request_that_has_become_whole_is_not_refused() -> None:
    """However much waits on other connections: it gets one response, and its connection lives on."""
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
    assert not client.told_to_go()
    assert not poller.told_to_go()


def test_past_the_bound_no_connection_keeps_anything() -> None:
    """What waits on one that goes past it is given up, too, so that any number of them cannot go far past it."""
    server = serve(limits=EdgeLimits(waiting_requests_limit_bytes=50_000))
    clients = [server.connect() for _ in range(40)]
    for client in clients:
        client.send(get(b"/held") + (post(b"/echo", 3000) + b"x" * 3000) * 2)
        assert server.edge.waiting_bytes <= 50_000
    server.application.answer_held()
    assert [reply.status for reply in clients[-1].replies()] == [200, 503]
    assert clients[-1].told_to_go()


def _do(random: Random, client: Client, server: ScriptedServer) -> None:
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
                    get(b"/last", b"Connection: close\r\n"), get(b"/later"),
                ]
            )
        )  # fmt: skip
    elif kind < 0.82:
        client.read(random.choice([None, 50_000]))
    elif kind < 0.85:
        client.end()
    elif kind < 0.88:
        client.reset()
    elif kind < 0.94:
        server.application.answer_held()
    else:
        server.advance(random.choice([1, 1, 5, 12]))


@pytest.mark.parametrize("seed", range(40))
def test_nothing_is_counted_twice_or_for_ever(seed: int) -> None:
    """Whatever clients do, in whatever order: when all have gone, or all is answered, nothing is counted."""
    random = Random(seed)
    server = serve(limits=EdgeLimits(waiting_requests_limit_bytes=random.choice([2_000, 10_000, 10**6])))
    clients: list[Client] = []
    for _ in range(150):
        if not clients or random.random() < 0.1:
            clients.append(server.connect(random.choice([None, 1000])))
        _do(random, random.choice(clients), server)
        assert server.edge.waiting_bytes >= 0
        assert server.edge.waiting_bytes == sum(c._counted_bytes for c in server.edge._connections)
    for _ in range(100):
        server.application.answer_held()
        later, server.application.later = server.application.later, []
        for client in clients:
            if not client.closed():
                client.read(None)
        for exchange in later:
            if exchange in server.edge._connections:
                exchange.respond(Response(204))
        server.advance(2)
    assert server.edge.waiting_bytes == 0
