"""How connections end: by time, by the client, by the server; and that nothing of them is left then."""

from __future__ import annotations

import gc

import pytest

from pushup.net.connection import LINGER_SECONDS, Connection
from pushup.net.edge import SWEEP_SECONDS, EdgeLimits
from pushup.net.http1 import Request
from tests.net.scripted_application import ScriptedServer, get, serve

LIMITS = EdgeLimits(request_timeout_seconds=10, idle_timeout_seconds=30)
PARTIAL = b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 300\r\n\r\n"


@pytest.fixture
def server() -> ScriptedServer:
    return serve(limits=LIMITS)


@pytest.mark.parametrize("part", [b"G", b"GET / HTTP/1.1\r\nHo", PARTIAL, PARTIAL + b"abc"])
def test_a_partial_request_times_out(server: ScriptedServer, part: bytes) -> None:
    """A request that does not come to its end in time gets a 408, and its connection ends."""
    client = server.connect()
    client.send(part)
    server.advance(LIMITS.request_timeout_seconds)
    assert client.take() == b""
    server.advance(2 * SWEEP_SECONDS)
    reply = client.reply()
    assert (reply.status, reply.headers["connection"]) == (408, "close")
    assert client.told_to_go()
    server.advance(LINGER_SECONDS + 2 * SWEEP_SECONDS)
    assert client.closed()
    assert server.edge.connection_count == 0


@pytest.mark.parametrize("before", [b"", get(b"/before")])
def test_a_byte_a_second_does_not_help(server: ScriptedServer, before: bytes) -> None:
    """A request that trickles in has as long as any other (slow loris)."""
    client = server.connect()
    client.send(before + PARTIAL)
    client.take()
    for _ in range(12):
        server.advance(1)
        client.send(b"x")
    assert client.reply().status == 408
    assert client.told_to_go()


@pytest.mark.parametrize("part", [b"GET /second HT", PARTIAL + b"abc"])
@pytest.mark.parametrize("between", [b"", get(b"/between")])
def test_a_partial_request_behind_a_held_poll_times_out(server: ScriptedServer, part: bytes, between: bytes) -> None:
    """Its memory is free then, though the poll is held on; it is answered 408 when its turn has come."""
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
    assert client.told_to_go()
    assert server.edge.waiting_bytes == 0


def test_a_request_is_not_late_while_nothing_is_read(server: ScriptedServer) -> None:
    """It has come in part only because too many wait before it; its time goes on when reading does."""
    client = server.connect()
    client.send(get(b"/held") + get(b"/next") * 300)
    server.advance(LIMITS.request_timeout_seconds + 5)
    server.application.answer_held()
    server.advance(5)
    assert [reply.status for reply in client.replies()] == [200] * 301
    client.send(b"GET /never HT")
    server.advance(LIMITS.request_timeout_seconds + 2 * SWEEP_SECONDS)
    assert client.reply().status == 408


def test_a_part_that_came_before_reading_stopped_times_out_after_it_has_gone_on(server: ScriptedServer) -> None:
    """However little was missing of it."""
    client = server.connect()
    client.send(get(b"/held") + get(b"/next") * 70 + b"GET /never HT")
    server.advance(LIMITS.request_timeout_seconds + 5)
    server.application.answer_held()
    server.advance(LIMITS.request_timeout_seconds + 3 * SWEEP_SECONDS)
    assert [reply.status for reply in client.replies()] == [200] * 71 + [408]


def test_a_second_request_has_its_own_time(server: ScriptedServer) -> None:
    """The time of a request begins with its own first byte, however long the one before it was held."""
    client = server.connect()
    client.send(get(b"/held"))
    server.advance(20)
    client.send(b"GET /second HT")
    server.application.answer_held()
    server.advance(8)
    assert len(client.replies()) == 1
    client.send(b"TP/1.1\r\nHost: a\r\n\r\n")
    assert client.reply().body == b"/second"


def test_a_client_that_waits_to_be_told_to_continue_is_not_late(server: ScriptedServer) -> None:
    """Behind a held poll it is not its fault; once it was told, its time begins."""
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
    """A connection on which nothing comes is closed without a word after the idle timeout."""
    client = server.connect()
    client.send(before)
    client.take()
    server.advance(LIMITS.idle_timeout_seconds)
    assert not client.closed()
    server.advance(2 * SWEEP_SECONDS)
    assert client.closed()
    assert client.take() == b""
    assert server.edge.connection_count == 0


def test_empty_lines_do_not_keep_a_connection(server: ScriptedServer) -> None:
    """Empty lines are no requests: who sends nothing else is idle."""
    client = server.connect()
    for _ in range(8):
        client.send(b"\r\n")
        server.advance(5)
    assert client.told_to_go()


def test_requests_keep_a_connection(server: ScriptedServer) -> None:
    """Each request begins the idle time anew."""
    client = server.connect()
    for _ in range(4):
        client.send(get(b"/a"))
        assert client.reply().status == 200
        server.advance(25)
    assert not client.told_to_go()


@pytest.mark.parametrize("target", [b"/held", b"/later"])
def test_an_open_request_does_not_time_out(server: ScriptedServer, target: bytes) -> None:
    """What the application has is the application's to end."""
    client = server.connect()
    client.send(get(target))
    server.advance(500)
    assert not client.told_to_go()
    assert client.take() == b""


def test_a_held_client_that_leaves_is_let_go(server: ScriptedServer) -> None:
    """The end of a held poll's client abandons its subscription at once, and closes."""
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
def test_a_held_client_on_its_last_request_is_let_go(server: ScriptedServer, request_: bytes) -> None:
    """The end of a client whose poll is its last request (nginx sends all so, Java offers h2c) is noticed at once."""
    client = server.connect()
    client.send(request_)
    client.end()
    assert len(server.application.abandoned) == 1
    assert client.closed()


def test_a_reset_is_noticed_while_nothing_is_read(server: ScriptedServer) -> None:
    """A client that vanishes behind a full pipeline is let go, too."""
    client = server.connect()
    client.send(get(b"/held") + get(b"/1") * 100)
    client.send(get(b"/unread"))
    client.reset()
    assert len(server.application.abandoned) == 1
    assert server.edge.connection_count == 0


def test_half_closed_and_still_answered(server: ScriptedServer) -> None:
    """A client that has ended after its request gets its response, and is then closed."""
    client = server.connect()
    client.send(get(b"/later"))
    client.end()
    assert not client.told_to_go()
    (connection,) = server.application.later
    server.application(_request(b"/now"), connection)
    assert client.reply().body == b"/now"
    assert client.closed()
    assert server.edge.connection_count == 0


def test_half_closed_behind_a_pipeline(server: ScriptedServer) -> None:
    """A client that has ended after several requests gets all its responses, and is then closed."""
    client = server.connect()
    client.send(get(b"/later") + get(b"/1") + get(b"/2"))
    client.end()
    (connection,) = server.application.later
    server.application(_request(b"/now"), connection)
    assert [reply.body for reply in client.replies()] == [b"/now", b"/1", b"/2"]
    assert client.closed()
    assert server.edge.connection_count == 0


def test_half_closed_with_bytes_unsent(server: ScriptedServer) -> None:
    """A client that has ended and reads slowly gets its whole response, and is then closed."""
    client = server.connect(capacity=1000)
    client.send(get(b"/big"))
    client.end()
    client.read(None)
    assert len(client.reply().body) == 100_000
    assert client.closed()


def test_half_closed_and_then_held(server: ScriptedServer) -> None:
    """A poll that would be held for a client that has ended is abandoned."""
    client = server.connect()
    client.send(get(b"/later") + get(b"/held"))
    client.end()
    (connection,) = server.application.later
    server.application(_request(b"/now"), connection)
    assert client.reply().body == b"/now"
    assert len(server.application.abandoned) == 1
    assert client.closed()
    assert server.edge.connection_count == 0


@pytest.mark.parametrize("part", [b"", b"GET / HT", PARTIAL])
def test_an_end_between_and_within_requests(server: ScriptedServer, part: bytes) -> None:
    """A client that ends while nothing of it is open is closed."""
    client = server.connect()
    client.send(part)
    client.end()
    assert client.closed()
    assert client.take() == b""
    assert server.edge.connection_count == 0


def test_lingering(server: ScriptedServer) -> None:
    """After an error the client's bytes are read and thrown away, so that no reset destroys the response."""
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


def test_a_slow_client_can_send_what_was_refused_and_read_why(server: ScriptedServer) -> None:
    """It is read on while something comes, so that no reset destroys the response; then it is closed."""
    client = server.connect()
    client.send(PARTIAL.replace(b"/echo", b"/refused"))
    for _ in range(round(LIMITS.request_timeout_seconds) - 1):
        server.advance(1)
        assert not client.closed()
        client.send(b"x" * 30)
    assert client.reply().status == 403
    server.advance(LINGER_SECONDS + 2 * SWEEP_SECONDS)
    assert client.closed()


def test_sending_does_not_prolong_lingering_for_ever(server: ScriptedServer) -> None:
    """A client that sends on and on after an error is closed when a request would have timed out."""
    client = server.connect()
    client.send(b"NONSENSE\r\n\r\n")
    for _ in range(round(LIMITS.request_timeout_seconds) + 2):
        server.advance(1)
        if not client.closed():
            client.send(get(b"/"))
    assert client.closed()
    assert server.application.targets == []


def test_drain(server: ScriptedServer) -> None:
    """When the edge drains, idle connections end at once, and every response says that it is the last."""
    idle, used, held, partial = (server.connect() for _ in range(4))
    used.send(get(b"/before"))
    used.take()
    held.send(get(b"/held") + get(b"/dropped"))
    partial.send(b"GET /partial HT")
    server.edge.drain()
    assert [idle.told_to_go(), used.told_to_go(), held.told_to_go(), partial.told_to_go()] == [True, True, False, False]
    server.application.answer_held()
    partial.send(b"TP/1.1\r\nHost: a\r\n\r\n")
    late = server.connect()
    late.send(get(b"/late", method=b"HEAD"))
    for reply in (held.reply(), partial.reply(), late.reply(head=True)):
        assert (reply.status, reply.headers["connection"]) == (200, "close")
    assert b"/dropped" not in server.application.targets
    server.advance(LINGER_SECONDS + 2 * SWEEP_SECONDS)
    assert server.edge.connection_count == 0


def test_close(server: ScriptedServer) -> None:
    """When the edge closes, everything ends, held polls are abandoned and no timer is left."""
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
    """A connection that is gone is held by nobody; only an error's traceback may leave a reference cycle."""
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
