"""A connection of the edge on in-memory sockets: requests are served one at a time and in order."""

from __future__ import annotations

import pytest
from httptools import HttpParserCallbackError

from pushup.net.pipeline import PIPELINE_LIMIT, PIPELINE_LIMIT_BYTES
from pushup.net.requests_and_responses import Request
from tests.net.scripted_application import ScriptedServer, get, post, serve
from tests.net.smuggling_vectors import LAST, REFUSED, SMUGGLED

ECHO_HEAD = b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"


@pytest.fixture
def server() -> ScriptedServer:
    return serve()


def test_keep_alive(server: ScriptedServer) -> None:
    client = server.connect()
    for n in range(5):
        client.send(get(b"/%d" % n))
        reply = client.reply()
        assert (reply.status, reply.body) == (200, b"/%d" % n)
        assert "connection" not in reply.headers
    assert not client.server_half_closed()


def test_a_parser_that_failed_is_not_reused(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unexpected error of the shared parser ends one connection only."""

    def fail(request: Request) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(server.application, "admit", fail)
    client = server.connect()
    with pytest.raises(HttpParserCallbackError):
        client.send(post(b"/a", 4))
    monkeypatch.undo()
    client = server.connect()
    client.send(get(b"/b"))
    assert client.reply().body == b"/b"


def test_connections_do_not_mix(server: ScriptedServer) -> None:
    clients = [server.connect() for _ in range(3)]
    wholes = [get(b"/%d" % n) for n in range(3)]
    for pieces in zip(*wholes, strict=True):
        for client, byte in zip(clients, pieces, strict=True):
            client.send(bytes([byte]))
    assert [client.reply().body for client in clients] == [b"/0", b"/1", b"/2"]


def test_pipelining_in_order_behind_a_held_poll(server: ScriptedServer) -> None:
    client = server.connect()
    client.send(get(b"/held") + get(b"/1") + get(b"/2"))
    client.send(get(b"/3"))
    assert client.take() == b""
    assert server.application.targets == [b"/held"]
    server.application.answer_held()
    assert [reply.body for reply in client.replies()][1:] == [b"/1", b"/2", b"/3"]
    assert server.edge.connection_count == 1
    client.send(get(b"/4"))
    assert client.reply().body == b"/4"


def test_a_long_pipeline_pauses_reading(server: ScriptedServer) -> None:
    client = server.connect()
    client.send(get(b"/held"))
    for n in range(PIPELINE_LIMIT):
        client.send(get(b"/%d" % n))
    assert not client.socket.incoming
    client.send(get(b"/late"))
    assert client.socket.incoming
    server.application.answer_held()
    server.demultiplexer.run()
    bodies = [reply.body for reply in client.replies()]
    assert bodies[1:] == [b"/%d" % n for n in range(PIPELINE_LIMIT)] + [b"/late"]
    client.send(get(b"/after"))
    assert client.reply().body == b"/after"


def test_a_pipeline_takes_turns_with_other_connections(server: ScriptedServer) -> None:
    pipelining, other = server.connect(), server.connect()
    requests = [get(b"/%d" % n) for n in range(20)]
    pipelining.socket.incoming += b"".join(requests)
    other.socket.incoming += get(b"/other")
    server.demultiplexer.turn()
    targets = server.application.targets
    assert targets == [b"/0", b"/other", b"/1"]
    pipelining.end()
    assert [reply.body for reply in pipelining.replies()] == [b"/%d" % n for n in range(20)]
    assert pipelining.closed()


def test_a_drain_in_the_middle_of_a_pipeline(server: ScriptedServer) -> None:
    """The connection is not idle: the next request of the pipeline is answered, and that response is the last."""
    client = server.connect()
    client.socket.incoming += b"".join([get(b"/%d" % n) for n in range(20)])
    server.demultiplexer.turn()
    assert server.application.targets == [b"/0", b"/1"]
    server.edge.drain()
    assert not client.server_half_closed()
    server.demultiplexer.run()
    assert [reply.body for reply in client.replies()] == [b"/0", b"/1", b"/2"]
    assert client.server_half_closed()


def test_continue_behind_a_long_pipeline(server: ScriptedServer) -> None:
    """`100 Continue` is sent after all requests before it are answered, not in between."""
    client = server.connect()
    client.send(get(b"/a") * 20 + ECHO_HEAD)
    assert [reply.status for reply in client.replies()] == 20 * [200] + [100]


def test_a_pipeline_of_large_requests_pauses_reading(server: ScriptedServer) -> None:
    """The bodies of waiting requests count as well, so a few large ones pause reading."""
    client = server.connect()
    body = b"x" * (PIPELINE_LIMIT_BYTES // 2)
    echo = b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    client.send(get(b"/held"))
    client.send(2 * echo)
    assert not client.socket.incoming
    client.send(echo)
    assert client.socket.incoming == echo
    server.application.answer_held()
    server.demultiplexer.run()
    assert [reply.body for reply in client.replies()][1:] == 3 * [body]


@pytest.mark.parametrize("held", [False, True])
def test_deep_pipelines_do_not_recurse(server: ScriptedServer, held: bool) -> None:
    client = server.connect()
    first = get(b"/held") if held else b""
    client.send(first + b"".join(get(b"/%d" % n) for n in range(3000)))
    if held:
        server.application.answer_held()
    server.demultiplexer.run()
    replies = client.replies()
    assert [reply.body for reply in replies][held:] == [b"/%d" % n for n in range(3000)]
    assert server.application.deepest < 100


def test_head(server: ScriptedServer) -> None:
    """HEAD gets the headers of the GET without its body, and the next response follows immediately."""
    client = server.connect()
    client.send(get(b"/abc", method=b"HEAD") + get(b"/abc"))
    head, whole = client.replies(heads=[0])
    assert head.headers == whole.headers
    assert (head.headers["content-length"], head.body, whole.body) == ("4", b"", b"/abc")


@pytest.mark.parametrize("name", LAST)
def test_the_last_request_closes_the_connection(server: ScriptedServer, name: str) -> None:
    """After HTTP/1.0 or `Connection: close` the response has `Connection: close`, and only this connection ends."""
    client = server.connect()
    client.send(LAST[name] + get(b"/smuggled"))
    reply = client.reply(head=LAST[name].startswith(b"HEAD"))
    assert (reply.status, reply.headers["connection"]) == (200, "close")
    other = server.connect()
    other.send(get(b"/next"))
    assert other.reply().status == 200
    other.end()
    assert server.application.targets == [b"/", b"/next"]
    assert client.server_half_closed()
    client.end()
    assert client.closed()
    assert server.edge.connection_count == 0


def test_continue(server: ScriptedServer) -> None:
    """A client that waits for `100 Continue` gets it; one that sends its body at once does not."""
    client = server.connect()
    client.send(ECHO_HEAD)
    assert client.take() == b"HTTP/1.1 100 Continue\r\n\r\n"
    client.send(b"a")
    assert client.take() == b""
    client.send(b"bc")
    assert client.reply().body == b"abc"
    client.send(ECHO_HEAD + b"abc")
    assert [reply.status for reply in client.replies()] == [200]


def test_continue_is_sent_once(server: ScriptedServer) -> None:
    """A client that sends the head of a chunk and pauses gets no second `100 Continue`."""
    client = server.connect()
    client.send(b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n")
    for part in (b"3", b"\r\n", b"abc\r\n0\r\n\r\n"):
        client.send(part)
    assert [reply.status for reply in client.replies()] == [100, 200]


def test_continue_when_the_kernel_is_full(server: ScriptedServer) -> None:
    """If the kernel accepts `100 Continue` in two parts, the response begins after both."""
    client = server.connect(capacity=10)
    client.send(ECHO_HEAD)
    assert client.socket.outgoing == b"HTTP/1.1 1"
    client.send(b"abc")
    client.read(None)
    assert [(reply.status, reply.body) for reply in client.replies()] == [(100, b""), (200, b"abc")]


def test_continue_behind_a_held_poll(server: ScriptedServer) -> None:
    """`100 Continue` is sent as soon as the poll before it is answered, without another byte from the client."""
    client = server.connect()
    client.send(get(b"/held") + ECHO_HEAD)
    assert client.take() == b""
    server.application.answer_held()
    assert [reply.status for reply in client.replies()] == [200, 100]


def test_other_expectations(server: ScriptedServer) -> None:
    client = server.connect()
    client.send(ECHO_HEAD.replace(b"100-continue", b"200-ok"))
    assert client.reply().status == 417
    assert client.server_half_closed()


@pytest.mark.parametrize("name", REFUSED)
def test_nothing_is_smuggled(server: ScriptedServer, name: str) -> None:
    for follow in (False, True):
        client = server.connect()
        client.send(get(b"/good") + REFUSED[name] + (b"" if follow else SMUGGLED))
        if follow and not client.server_half_closed():
            client.send(SMUGGLED)
        good, bad = client.replies()
        assert good.body == b"/good"
        assert 400 <= bad.status < 500
        assert bad.headers["connection"] == "close"
        assert bad.headers["content-type"] == "application/problem+json"
        client.send(SMUGGLED)
        assert client.take() == b""
        assert client.server_half_closed()
        client.end()
    assert set(server.application.targets) == {b"/good"}
    assert server.edge.connection_count == 0


def test_a_bad_request_behind_a_held_poll(server: ScriptedServer) -> None:
    client = server.connect()
    client.send(get(b"/held") + b"NONSENSE\r\n\r\n" + get(b"/smuggled"))
    assert client.take() == b""
    server.application.answer_held()
    assert [reply.status for reply in client.replies()] == [200, 400]
    assert client.server_half_closed()
