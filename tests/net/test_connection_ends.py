"""How connections end: by timeout, by the client, by the server. Nothing of them is left behind."""

from __future__ import annotations

import gc

import pytest

from pushup.net.connection import Connection
from pushup.net.edge import LINGER_SECONDS, SWEEP_SECONDS
from pushup.net.edge_limits import EdgeLimits
from pushup.net.pipeline import PIPELINE_LIMIT
from pushup.net.requests_and_responses import Request, Response
from tests.net.scripted_application import ScriptedServer, get, serve

LIMITS = EdgeLimits(request_timeout_seconds=10, idle_timeout_seconds=30)
PARTIAL = b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 300\r\n\r\n"


@pytest.fixture
def server() -> ScriptedServer:
    return serve(limits=LIMITS)


@pytest.mark.parametrize("part", [b"G", b"GET / HTTP/1.1\r\nHo", PARTIAL, PARTIAL + b"abc"])
def test_a_partial_request_times_out(server: ScriptedServer, part: bytes) -> None:
    client = server.connect()
    client.send(part)
    server.advance(LIMITS.request_timeout_seconds)
    assert client.take() == b""
    server.advance(2 * SWEEP_SECONDS)
    reply = client.reply()
    assert (reply.status, reply.headers["connection"]) == (408, "close")
    assert client.server_half_closed()
    server.advance(LINGER_SECONDS + 2 * SWEEP_SECONDS)
    assert client.closed()
    assert server.edge.connection_count == 0


@pytest.mark.parametrize("before", [b"", get(b"/before")])
def test_a_byte_a_second_does_not_help(server: ScriptedServer, before: bytes) -> None:
    """A request that trickles in gets no more time than any other (slowloris)."""
    client = server.connect()
    client.send(before + PARTIAL)
    client.take()
    for _ in range(12):
        server.advance(1)
        client.send(b"x")
    assert client.reply().status == 408
    assert client.server_half_closed()


@pytest.mark.parametrize("part", [b"GET /second HT", PARTIAL + b"abc"])
@pytest.mark.parametrize("between", [b"", get(b"/between")])
def test_a_partial_request_behind_a_held_poll_times_out(server: ScriptedServer, part: bytes, between: bytes) -> None:
    """Its memory is freed while the poll is still held, and the 408 is sent after the poll's answer."""
    client = server.connect()
    client.send(get(b"/held") + between + part)
    assert server.edge.waiting_bytes > 0
    server.advance(LIMITS.request_timeout_seconds + 2 * SWEEP_SECONDS)
    client.send(b"x" * 500)
    assert client.replies() == []
    assert server.edge.waiting_bytes <= (Request(b"GET", b"/between", {b"host": b"a"}, True).size if between else 0)
    server.application.answer_held()
    replies = client.replies()
    assert [reply.status for reply in replies] == [200, 408] if not between else [200, 200, 408]
    assert client.server_half_closed()
    assert server.edge.waiting_bytes == 0


def test_a_request_does_not_time_out_while_reading_is_paused(server: ScriptedServer) -> None:
    """The request is incomplete because reading is paused; its time resumes with reading."""
    client = server.connect()
    client.send(get(b"/held") + get(b"/next") * 300)
    server.advance(LIMITS.request_timeout_seconds + 5)
    server.application.answer_held()
    server.advance(5)
    assert [reply.status for reply in client.replies()] == [200] * 301
    client.send(b"GET /never HT")
    server.advance(LIMITS.request_timeout_seconds + 2 * SWEEP_SECONDS)
    assert client.reply().status == 408


def test_a_partial_request_times_out_after_reading_has_resumed(server: ScriptedServer) -> None:
    """However little of the request is missing."""
    client = server.connect()
    client.send(get(b"/held") + get(b"/next") * 70 + b"GET /never HT")
    server.advance(LIMITS.request_timeout_seconds + 5)
    server.application.answer_held()
    server.advance(LIMITS.request_timeout_seconds + 3 * SWEEP_SECONDS)
    assert [reply.status for reply in client.replies()] == [200] * 71 + [408]


def test_a_second_request_has_its_own_timeout(server: ScriptedServer) -> None:
    """Its time starts with its own first byte, however long the previous request was held."""
    client = server.connect()
    client.send(get(b"/held"))
    server.advance(20)
    client.send(b"GET /second HT")
    server.application.answer_held()
    server.advance(8)
    assert len(client.replies()) == 1
    client.send(b"TP/1.1\r\nHost: a\r\n\r\n")
    assert client.reply().body == b"/second"


def test_a_client_that_waits_for_continue_does_not_time_out(server: ScriptedServer) -> None:
    """Behind a held poll the client has to wait; its time starts when it gets `100 Continue`."""
    client = server.connect()
    client.send(get(b"/held") + PARTIAL.replace(b"Host", b"Expect: 100-continue\r\nHost"))
    server.advance(3 * LIMITS.request_timeout_seconds)
    server.application.answer_held()
    assert [reply.status for reply in client.replies()] == [200, 100]
    server.advance(LIMITS.request_timeout_seconds / 2)
    client.send(b"x" * 300)
    assert client.reply().body == b"x" * 300


@pytest.mark.parametrize("before", [b"", get(b"/before")], ids=["never used", "used"])
def test_an_idle_connection_is_closed(server: ScriptedServer, before: bytes) -> None:
    client = server.connect()
    client.send(before)
    client.take()
    server.advance(LIMITS.idle_timeout_seconds)
    assert not client.closed()
    server.advance(2 * SWEEP_SECONDS)
    assert client.closed()
    assert client.take() == b""
    assert server.edge.connection_count == 0


def test_empty_lines_do_not_keep_a_connection_open(server: ScriptedServer) -> None:
    """Empty lines are not requests, so a client that sends nothing else is idle."""
    client = server.connect()
    for _ in range(8):
        client.send(b"\r\n")
        server.advance(5)
    assert client.server_half_closed()


def test_requests_keep_a_connection_open(server: ScriptedServer) -> None:
    client = server.connect()
    for _ in range(4):
        client.send(get(b"/a"))
        assert client.reply().status == 200
        server.advance(25)
    assert not client.server_half_closed()


@pytest.mark.parametrize("target", [b"/held", b"/later"])
def test_a_complete_request_does_not_time_out(server: ScriptedServer, target: bytes) -> None:
    """The application decides when to answer."""
    client = server.connect()
    client.send(get(target))
    server.advance(500)
    assert not client.server_half_closed()
    assert client.take() == b""


def test_a_held_client_that_disconnects_is_forgotten(server: ScriptedServer) -> None:
    for leave in ("end", "reset"):
        client = server.connect()
        client.send(get(b"/held"))
        _, subscription = server.application.held[-1]
        getattr(client, leave)()
        assert server.application.abandoned[-1] is subscription
        assert client.closed()
    assert len(server.application.abandoned) == 2
    assert server.edge.connection_count == 0


@pytest.mark.parametrize(
    "request_",
    [
        get(b"/held", b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n"),
        get(b"/held", b"Connection: close\r\n"),
        b"GET /held HTTP/1.0\r\n\r\n",
    ],
    ids=["h2c", "close", "HTTP/1.0"],
)
def test_a_held_client_on_its_last_request_is_forgotten(server: ScriptedServer, request_: bytes) -> None:
    """A disconnect is noticed even after the client's last request (nginx sends such polls, and Java offers h2c)."""
    client = server.connect()
    client.send(request_)
    client.end()
    assert len(server.application.abandoned) == 1
    assert client.closed()


def test_the_end_of_a_held_client_is_noticed_behind_a_full_pipeline(server: ScriptedServer) -> None:
    """A full pipeline pauses reading, but not after the client's last request, so that its end is noticed."""
    client = server.connect()
    client.send(get(b"/held") + get(b"/1") * PIPELINE_LIMIT + get(b"/last", b"Connection: close\r\n"))
    client.end()
    assert len(server.application.abandoned) == 1
    assert client.closed()


def test_a_connection_fails_behind_a_full_pipeline() -> None:
    """If the last of many waiting requests exceeds the output limit, everything of the connection is freed."""
    server = serve(limits=EdgeLimits(output_limit_bytes=1000))
    client = server.connect(capacity=20_000)
    client.send(get(b"/held") + get(b"/1") * (PIPELINE_LIMIT - 1) + get(b"/big"))
    server.application.answer_held()
    server.demultiplexer.run()
    assert len(server.application.targets) == PIPELINE_LIMIT + 1
    assert client.closed()
    assert server.edge.connection_count == 0
    assert server.edge.waiting_bytes == 0


def test_a_response_after_the_client_has_left(server: ScriptedServer) -> None:
    """The response is dropped: an application need not know which clients are still connected."""
    client = server.connect()
    client.send(get(b"/later"))
    client.reset()
    (connection,) = server.application.later
    connection.respond(Response(204))
    assert client.take() == b""
    assert server.edge.connection_count == 0


def test_a_reset_is_noticed_while_reading_is_paused(server: ScriptedServer) -> None:
    client = server.connect()
    client.send(get(b"/held") + get(b"/1") * 100)
    client.send(get(b"/unread"))
    client.reset()
    assert len(server.application.abandoned) == 1
    assert server.edge.connection_count == 0


@pytest.mark.parametrize("behind", [[], [b"/1", b"/2"]])
def test_half_closed_and_still_answered(server: ScriptedServer, behind: list[bytes]) -> None:
    """A client that closes its side after its requests gets all responses, and then the connection is closed."""
    client = server.connect()
    client.send(get(b"/later") + b"".join(map(get, behind)))
    client.end()
    assert not client.server_half_closed()
    (connection,) = server.application.later
    server.application(_request(b"/now"), connection)
    server.demultiplexer.run()
    assert [reply.body for reply in client.replies()] == [b"/now", *behind]
    assert client.closed()
    assert server.edge.connection_count == 0


def test_half_closed_with_bytes_unsent(server: ScriptedServer) -> None:
    """A client that has closed its side and reads slowly gets its complete response before the connection is closed."""
    client = server.connect(capacity=1000)
    client.send(get(b"/big"))
    client.end()
    client.read(None)
    assert len(client.reply().body) == 100_000
    assert client.closed()


def test_half_closed_and_then_held(server: ScriptedServer) -> None:
    """A poll that would be held for a client that has closed its side is abandoned."""
    client = server.connect()
    client.send(get(b"/later") + get(b"/held"))
    client.end()
    (connection,) = server.application.later
    server.application(_request(b"/now"), connection)
    server.demultiplexer.run()
    assert client.reply().body == b"/now"
    assert len(server.application.abandoned) == 1
    assert client.closed()
    assert server.edge.connection_count == 0


@pytest.mark.parametrize("part", [b"", b"GET / HT", PARTIAL])
def test_an_end_between_and_within_requests(server: ScriptedServer, part: bytes) -> None:
    client = server.connect()
    client.send(part)
    client.end()
    assert client.closed()
    assert client.take() == b""
    assert server.edge.connection_count == 0


def test_lingering(server: ScriptedServer) -> None:
    """After an error the client's bytes are read and dropped, so that no reset destroys the response."""
    client = server.connect()
    client.send(b"NONSENSE\r\n\r\n")
    assert client.reply().status == 400
    for _ in range(5):
        client.send(b"x" * 10_000)
        assert not client.socket.incoming
    assert client.socket.shut
    assert not client.closed()
    server.advance(LINGER_SECONDS - SWEEP_SECONDS)
    assert not client.closed()
    server.advance(3 * SWEEP_SECONDS)
    assert client.closed()
    assert client.take() == b""
    assert server.edge.connection_count == 0


def test_a_slow_client_can_finish_a_refused_request_and_read_the_response(server: ScriptedServer) -> None:
    """Its bytes are read as long as they arrive, so that no reset destroys the response."""
    client = server.connect()
    client.send(PARTIAL.replace(b"/echo", b"/refused"))
    for _ in range(round(LIMITS.request_timeout_seconds) - 1):
        server.advance(1)
        assert not client.closed()
        client.send(b"x" * 30)
    assert client.reply().status == 403
    server.advance(LINGER_SECONDS + 2 * SWEEP_SECONDS)
    assert client.closed()


def test_sending_does_not_prolong_lingering_without_limit(server: ScriptedServer) -> None:
    """A client that keeps sending after an error is disconnected after the request timeout."""
    client = server.connect()
    client.send(b"NONSENSE\r\n\r\n")
    for _ in range(round(LIMITS.request_timeout_seconds) + 2):
        server.advance(1)
        if not client.closed():
            client.send(get(b"/"))
    assert client.closed()
    assert server.application.targets == []


def test_drain(server: ScriptedServer) -> None:
    """A draining edge ends idle connections at once, and every response has `Connection: close`."""
    idle, used, held, partial = (server.connect() for _ in range(4))
    used.send(get(b"/before"))
    used.take()
    held.send(get(b"/held") + get(b"/dropped"))
    partial.send(b"GET /partial HT")
    server.edge.drain()
    assert [
        idle.server_half_closed(),
        used.server_half_closed(),
        held.server_half_closed(),
        partial.server_half_closed(),
    ] == [True, True, False, False]
    server.application.answer_held()
    partial.send(b"TP/1.1\r\nHost: a\r\n\r\n")
    late = server.connect()
    late.send(get(b"/late", method=b"HEAD"))
    for reply in (held.reply(), partial.reply(), late.reply(head=True)):
        assert (reply.status, reply.headers["connection"]) == (200, "close")
    assert b"/dropped" not in server.application.targets
    server.advance(LINGER_SECONDS + 2 * SWEEP_SECONDS)
    assert server.edge.connection_count == 0


def test_a_drain_reads_what_has_arrived(server: ScriptedServer) -> None:
    """A request that a connection has received, and the edge has not read yet, is answered, and is the last."""
    clients = whole, partial, left = [server.connect() for _ in range(3)]
    for client, data in zip(clients, (get(b"/late"), b"GET /partial HT", b""), strict=True):
        client.socket.incoming += data
    left.socket.peer_ended = True
    server.edge.drain()
    assert left.closed()
    partial.send(b"TP/1.1\r\nHost: a\r\n\r\n")
    for client in (whole, partial):
        reply = client.reply()
        assert (reply.status, reply.headers["connection"]) == (200, "close")
        assert client.server_half_closed()


def test_close(server: ScriptedServer) -> None:
    clients = [server.connect() for _ in range(3)]
    clients[0].send(get(b"/held"))
    clients[1].send(b"GET")
    server.edge.close()
    assert all(client.closed() for client in clients)
    assert server.listening.closed
    assert len(server.application.abandoned) == 1
    assert server.edge.connection_count == 0
    assert server.clock.getDelayedCalls() == []


@pytest.mark.parametrize(
    "part", [b"", b"GET", get(b"/held"), get(b"/big"), get(b"/a", b"Connection: close\r\n"), b"NONSENSE\r\n\r\n"]
)
def test_nothing_of_a_connection_is_left(server: ScriptedServer, part: bytes) -> None:
    """Nothing refers to a closed connection; only an error's traceback may leave a reference cycle."""
    client = server.connect(capacity=500)
    gc.collect()
    gc.disable()
    try:
        assert _connections() == 1
        client.send(part)
        client.reset()
        server.application.held.clear()
        server.application.abandoned.clear()
        assert server.edge.connection_count == 0
        if part.startswith(b"NONSENSE"):
            gc.collect()
        assert _connections() == 0
    finally:
        gc.enable()


def _connections() -> int:
    return sum(type(thing) is Connection for thing in gc.get_objects())


def _request(target: bytes) -> Request:
    return Request(b"GET", target, {}, keep_alive=True)
