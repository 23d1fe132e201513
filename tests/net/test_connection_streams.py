"""A stream on a connection: it accumulates what its client does not read, up to a limit (Hsu §3.2)."""

from __future__ import annotations

from typing import cast

import pytest

from pushup.net.connection import Connection
from pushup.net.connection_states import Phase
from pushup.net.edge_limits import EdgeLimits
from tests.net.event_reader import read_chunks
from tests.net.in_memory_server import Client
from tests.net.scripted_application import ScriptedServer, chunk, get, serve

LIMITS = EdgeLimits(output_limit_bytes=10_000, idle_timeout_seconds=30)


@pytest.fixture
def server() -> ScriptedServer:
    return serve(limits=LIMITS, cors_origins=["https://page.example"])


def body(client: Client) -> tuple[bytes, bool]:
    """The content of the stream so far, and whether it has ended."""
    head, _, rest = client.take().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    return read_chunks(rest)


def test_a_stream_is_written_in_chunks(server: ScriptedServer) -> None:
    """Its first bytes come at once, and with the head."""
    client = server.connect()
    client.send(get(b"/stream", b"Origin: https://page.example\r\n"))
    head, _, rest = client.take().partition(b"\r\n\r\n")
    fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:])
    assert fields[b"Transfer-Encoding"] == b"chunked"
    assert fields[b"Content-Type"] == b"text/event-stream"
    assert fields[b"X-Accel-Buffering"] == b"no"
    assert fields[b"Access-Control-Allow-Origin"] == b"https://page.example"
    assert b"Content-Length" not in fields
    assert rest == chunk(b"begin.")
    server.application.write_streams(b"more")
    assert client.take() == chunk(b"more")


def test_the_next_request_is_answered_after_the_stream(server: ScriptedServer) -> None:
    """It waits until the stream ends, which its client sees from the last chunk."""
    client = server.connect()
    client.send(get(b"/stream") + get(b"/next"))
    server.application.write_streams(b"x")
    assert body(client) == (b"begin.x", False)
    server.application.end_streams()
    assert client.take().startswith(b"0\r\n\r\nHTTP/1.1 200 OK")
    client.send(get(b"/stream"))
    assert body(client) == (b"begin.", False)


def test_what_a_client_does_not_read_accumulates(server: ScriptedServer) -> None:
    """Up to the limit nothing is lost, and nobody else waits for it. The application is told when all is sent."""
    slow, fast = server.connect(capacity=0), server.connect()
    slow.send(get(b"/stream"))
    fast.send(get(b"/stream"))
    stream = server.application.streams[0]
    for n in range(90):
        server.application.write_streams(b"%0100d" % n)
    assert not slow.closed()
    expected = b"begin." + b"".join(b"%0100d" % n for n in range(90))
    assert body(fast) == (expected, False)
    for _ in range(30):
        slow.read(50)
    assert stream.drained_count == 0
    slow.read(None)
    assert body(slow) == (expected, False)
    assert stream.drained_count == 1
    server.application.write_streams(b"live")
    assert slow.take() == chunk(b"live")


def test_a_client_that_lags_too_far_is_closed(server: ScriptedServer) -> None:
    """Beyond the limit its connection is closed and its stream abandoned; the other goes on."""
    slow, fast = server.connect(capacity=1000), server.connect()
    slow.send(get(b"/stream"))
    fast.send(get(b"/stream"))
    stream = server.application.streams[0]
    for _ in range(120):
        server.application.write_streams(b"x" * 100)
    assert slow.closed()
    assert server.application.abandoned == [stream]
    assert server.metrics.failed_outputs == 1
    assert len(body(fast)[0]) == 12_006
    assert server.edge.connection_count == 1
    assert stream.exchange.write(b"too late") is False


def test_a_client_that_reads_nothing_for_too_long_is_closed(server: ScriptedServer) -> None:
    """One that has read everything may stay for as long as it likes."""
    slow, quiet = server.connect(capacity=100), server.connect()
    slow.send(get(b"/stream"))
    quiet.send(get(b"/stream"))
    server.application.write_streams(b"x" * 200)
    server.advance(LIMITS.idle_timeout_seconds - 2)
    slow.read(10)
    server.advance(LIMITS.idle_timeout_seconds - 2)
    assert not slow.closed()
    server.advance(5)
    assert slow.closed()
    server.advance(1000)
    assert not quiet.closed()


@pytest.mark.parametrize("how", ["end", "reset"])
def test_a_client_that_leaves(server: ScriptedServer, how: str) -> None:
    """Its stream is abandoned at once."""
    client = server.connect()
    client.send(get(b"/stream"))
    (stream,) = server.application.streams
    getattr(client, how)()
    assert client.closed()
    assert server.application.abandoned == [stream]
    server.application.write_streams(b"x")


def test_an_ended_stream_that_is_not_read_yet(server: ScriptedServer) -> None:
    """The rest is sent when the client reads, and the connection can be used again."""
    client = server.connect(capacity=0)
    client.send(get(b"/stream"))
    server.application.end_streams()
    (connection,) = server.demultiplexer.wanted
    assert cast(Connection, connection).phase is Phase.SENDING
    client.read(None)
    assert body(client) == (b"begin.", True)
    client.send(get(b"/a"))
    assert client.reply().body == b"/a"


def test_a_drain_closes_the_connection_after_the_stream(server: ScriptedServer) -> None:
    """Streams that are open are ended by the application; each is the last response of its connection."""
    client, late = server.connect(), server.connect()
    client.send(get(b"/stream"))
    server.edge.drain()
    late.send(get(b"/stream"))
    assert not client.server_half_closed()
    server.application.end_streams()
    assert body(client) == (b"begin.", True)
    assert client.server_half_closed()
    assert late.server_half_closed()


def test_http_1_0_has_no_chunks(server: ScriptedServer) -> None:
    """The end of the connection is the end of the stream, as `Connection: close` says."""
    client = server.connect()
    client.send(b"GET /later HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    (exchange,) = server.application.later
    exchange.stream(_Ignored(), b"text/event-stream", b"begin.", chunked=False)
    exchange.write(b"x")
    exchange.finish(b"")
    head, _, content = client.take().partition(b"\r\n\r\n")
    assert b"Transfer-Encoding" not in head
    assert b"Connection: close" in head
    assert content == b"begin.x"
    assert client.server_half_closed()


class _Ignored:
    def drained(self) -> None: ...

    def cancel(self) -> None: ...
