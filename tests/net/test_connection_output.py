"""A client that reads slowly or never costs its output buffer and nothing else (architecture.md, promise 3)."""

from __future__ import annotations

import pytest

from pushup.core.answer import Answer
from pushup.net.edge import SWEEP_SECONDS
from pushup.net.edge_limits import EdgeLimits
from pushup.net.pipeline import PIPELINE_LIMIT, READ_BODY_BYTES, READ_BYTES
from tests.net.scripted_application import ScriptedServer, get, serve

LIMITS = EdgeLimits(output_limit_bytes=200_000, idle_timeout_seconds=30)


@pytest.fixture
def server() -> ScriptedServer:
    return serve(limits=LIMITS)


@pytest.mark.parametrize("step", [1, 7, 300])
def test_bytes_that_the_kernel_refuses_are_sent_later(server: ScriptedServer, step: int) -> None:
    client = server.connect(capacity=0)
    client.send(get(b"/first") + get(b"/second"))
    assert server.application.targets == [b"/first"]
    for _ in range(1000 // step):
        client.read(step)
    assert [reply.body for reply in client.replies()] == [b"/first", b"/second"]
    client.read(None)
    client.send(get(b"/third"))
    assert client.reply().body == b"/third"


def test_writing_is_watched_only_while_there_is_something_to_write(server: ScriptedServer) -> None:
    client = server.connect(capacity=50)
    client.send(get(b"/a"))
    assert list(server.demultiplexer.wanted.values()) == [(True, True)]
    client.read(None)
    assert list(server.demultiplexer.wanted.values()) == [(True, False)]


def test_output_limit(server: ScriptedServer) -> None:
    """A connection with more unsent bytes than the limit is closed; others are not affected."""
    other, client = server.connect(), server.connect(capacity=100)
    client.send(get(b"/held"))
    (connection, _) = server.application.held[0]
    big = Answer("e-1", (), False, (), ("x" * (LIMITS.output_limit_bytes + 1000),))
    connection.answer(big)
    assert client.closed()
    assert (server.metrics.failed_outputs, server.edge.connection_count) == (1, 1)
    other.send(get(b"/a"))
    assert other.reply().status == 200


def test_at_the_output_limit(server: ScriptedServer) -> None:
    """A response within the limit is buffered, however large."""
    client = server.connect(capacity=0)
    client.send(get(b"/held"))
    server.application.answer_held(Answer("e-1", (), False, (), ("x" * (LIMITS.output_limit_bytes - 1000),)))
    assert not client.closed()
    client.read(None)
    assert len(client.reply().body) > LIMITS.output_limit_bytes - 1000


def test_a_client_that_does_not_read_costs_bounded_memory(server: ScriptedServer) -> None:
    """Only one response is made for it, and only a limited number of its requests is read."""
    client = server.connect(capacity=10)
    for _ in range(20 * PIPELINE_LIMIT):
        client.send(get(b"/big"))
    assert server.application.targets == [b"/big"]
    assert len(client.socket.incoming) == 19 * PIPELINE_LIMIT * len(get(b"/big")) - len(get(b"/big"))


def test_a_client_that_resumes_reading_gets_everything(server: ScriptedServer) -> None:
    client = server.connect(capacity=10)
    for _ in range(3 * PIPELINE_LIMIT):
        client.send(get(b"/big"))
    for _ in range(3 * PIPELINE_LIMIT):
        client.read(50_000)
        client.read(60_000)
    assert len(client.replies()) == 3 * PIPELINE_LIMIT


def test_a_stuck_client_is_disconnected(server: ScriptedServer) -> None:
    client = server.connect(capacity=10)
    client.send(get(b"/big"))
    server.advance(LIMITS.idle_timeout_seconds)
    assert not client.closed()
    server.advance(2 * SWEEP_SECONDS)
    assert client.closed()
    assert server.edge.connection_count == 0


def test_a_slow_client_stays_connected(server: ScriptedServer) -> None:
    client = server.connect(capacity=10)
    client.send(get(b"/big"))
    for _ in range(10):
        server.advance(20)
        client.read(100)
    assert not client.closed()


def test_a_client_has_the_whole_timeout_after_a_long_hold(server: ScriptedServer) -> None:
    """The time in which a client must accept bytes starts with the response, however long the poll was held."""
    client = server.connect(capacity=100)
    client.send(get(b"/held"))
    server.advance(LIMITS.idle_timeout_seconds + 10)
    server.application.answer_held(Answer("e-1", (), False, (), ("x" * 1000,)))
    server.advance(LIMITS.idle_timeout_seconds - 10)
    assert not client.closed()
    client.read(None)
    assert client.reply().status == 200


def test_a_last_response_is_sent_completely(server: ScriptedServer) -> None:
    """`Connection: close` takes effect only when the kernel has accepted the whole response."""
    client = server.connect(capacity=1000)
    client.send(get(b"/big", b"Connection: close\r\n"))
    assert not client.server_half_closed()
    client.read(None)
    assert len(client.reply().body) == 100_000
    assert client.server_half_closed()


def test_a_connection_that_breaks_during_a_response(server: ScriptedServer) -> None:
    """It is forgotten without a log line, whether `send` fails at once or later."""
    at_once, later = server.connect(), server.connect(capacity=100)
    at_once.send(get(b"/held"))
    at_once.socket.broken = True
    server.application.answer_held()
    later.send(get(b"/big"))
    later.reset()
    assert server.edge.connection_count == 0
    assert server.application.abandoned == []


def test_sent_and_received_bytes_are_counted(server: ScriptedServer) -> None:
    """The metrics count every byte read, and every byte that the kernel accepted, buffered or not."""
    client = server.connect(capacity=10)
    client.send(get(b"/big"))
    client.read(500)
    client.read(None)
    assert server.metrics.received_bytes == len(get(b"/big"))
    assert server.metrics.sent_bytes == len(client.take())


def test_only_bodies_are_read_in_large_pieces(server: ScriptedServer) -> None:
    """Requests are read in small pieces, so that little of a flood is in memory; a large body in large pieces."""
    client = server.connect()
    (connection,) = server.demultiplexer.wanted
    assert connection.read_bytes == READ_BYTES
    client.send(get(b"/echo", b"Content-Length: 200000\r\n", b"POST"))
    assert connection.read_bytes == READ_BODY_BYTES
    client.send(b"x" * 150_000)
    assert connection.read_bytes == READ_BYTES
    client.send(b"x" * 50_000)
    assert len(client.reply().body) == 200_000
    assert connection.read_bytes == READ_BYTES
