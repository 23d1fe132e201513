"""Malicious or broken clients: each gets a 4xx problem or is disconnected, and the next client is served."""

from __future__ import annotations

import random
import time

import pytest

from tests.net.smuggling_vectors import REFUSED, SMUGGLED
from tests.server.caller import poll_path
from tests.server.conftest import Serve
from tests.server.raw_client import get, post
from tests.server.server_process import Server, wait_until

MALFORMED = {
    **REFUSED,
    "garbage": b"\x00\xff\x16\x03\x01garbage\r\n\r\n",
    "unknown expectation": b"POST / HTTP/1.1\r\nHost: a\r\nExpect: cake\r\nContent-Length: 1\r\n\r\n",
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_or_ambiguous_request_is_refused(server: Server, name: str) -> None:
    """It gets a 4xx problem, its connection is closed, and what follows it is not answered."""
    with server.connect() as client:
        client.send(MALFORMED[name] + SMUGGLED)
        response = client.read_response()
        assert response.is_problem
        assert 400 <= response.status < 500
        assert response.headers["connection"] == "close"
        assert client.ends()
    _assert_serves(server)


OVERSIZED = {
    "target": (b"GET /" + b"x" * 20_000, 414),
    "header": (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-A: " + b"x" * 200_000, 431),
    "header name": (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + b"x" * 200_000, 431),
    "many headers": (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 5000 + b"\r\n", 431),
    "announced body": (b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2000000\r\n\r\n", 413),
    "chunked body": (
        b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        + (b"10000\r\n" + b"x" * 65536 + b"\r\n") * 20,
        413,
    ),
    "chunk extensions": (
        b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"x" * 4_000_000,
        413,
    ),
    "trailers": (
        b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
        + b"X: y\r\n" * 700_000,
        413,
    ),
}


@pytest.mark.parametrize(("data", "status"), OVERSIZED.values(), ids=OVERSIZED.keys())
def test_oversized_request_is_refused(server: Server, data: bytes, status: int) -> None:
    """Input that exceeds a limit is refused before all of it has arrived."""
    with server.connect() as client:
        try:
            client.send(data)
            response = client.read_response()
        except ConnectionError:
            assert len(data) > 1_000_000  # it kept sending after the refusal, and was reset
        else:
            assert response.status == status
            assert response.is_problem
            assert client.ends()
    _assert_serves(server)


def test_truncated_requests_leave_nothing_behind(serve: Serve) -> None:
    """A client that disconnects anywhere within a request is dropped, and nothing of its request takes effect."""
    with serve() as server:
        fds = server.process.num_fds()
        data = post("/v1/messages", {"channels": ["a"], "data": "whole"})
        for end in range(0, len(data), 3):
            with server.connect() as client:
                client.send(data[:end])
                client.half_close()
                assert client.ends()
        wait_until(lambda: server.process.num_fds() == fds, "the connections to be forgotten")
        assert server.metric("messages_total") == 0


def test_request_split_into_small_segments(server: Server, channel: str) -> None:
    """A request works the same however it is split into segments."""
    draw = random.Random(3)
    data = post("/v1/messages", {"channels": [channel], "data": "in pieces"}) * 3
    with server.connect() as client:
        for start in range(len(data)):
            client.send(data[start : start + 1])
            if draw.random() < 0.05:
                time.sleep(0.001)
        assert [client.read_response().status for _ in range(3)] == [201] * 3


def test_slow_requests_time_out(serve: Serve) -> None:
    """A head or a body that trickles in gets 408 after request_timeout_seconds, however steady the trickle."""
    with serve(request_timeout_seconds="2s") as server, server.connect() as head, server.connect() as body:
        head.send(b"GET /healthz HTTP/1.1\r\nX-A: ")
        body.send(b"POST /v1/poll HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999\r\n\r\n")
        began = time.monotonic()
        while head.silent(0.05) and body.silent(0.05):
            head.send(b"x")
            body.send(b"x")
            assert time.monotonic() - began < 15
        assert time.monotonic() - began > 0.5
        for client in (head, body):
            response = client.read_response()
            assert (response.status, response.is_problem) == (408, True)
            assert client.ends()
        _assert_serves(server)


def test_silent_client_is_disconnected(serve: Serve) -> None:
    """A connection idle for idle_timeout_seconds is closed silently, unless it has a held poll."""
    with serve(idle_timeout_seconds="2s") as server, server.connect() as new, server.connect() as used:
        used.send(get("/healthz"))
        assert used.read_response().status == 200
        with server.connect() as held, server.caller() as caller:
            held.send(get(poll_path("a", timeout=60)))
            assert new.ends()
            assert used.ends()
            caller.publish(["a"], "still there")
            assert held.read_response().value["messages"][0]["data"] == "still there"


def test_connection_close_does_not_affect_the_next_client(server: Server) -> None:
    """One client's `Connection: close` ends with its response and does not affect later clients."""
    for _ in range(3):
        with server.connect() as client:
            client.send(get("/healthz", "Connection: close"))
            assert client.read_response().status == 200
            assert client.ends()
        with server.connect() as client:
            client.send(b"GET /healthz HTTP/1.0\r\n\r\n")
            assert client.read_response().status == 200
            assert client.ends()
        for _ in range(2):
            with server.connect() as client:
                client.send(get("/healthz"))
                assert client.read_response().status == 200


def test_upgrade_is_answered_with_http_1_1(server: Server) -> None:
    """A client that asks to upgrade gets an HTTP/1.1 response and is closed; what follows is not read as a request."""
    with server.connect() as client:
        client.send(get("/healthz", "Connection: Upgrade", "Upgrade: websocket") + SMUGGLED)
        assert client.read_response().status == 200
        assert client.ends()
    _assert_serves(server)


def test_pipelined_requests_are_answered_in_order(server: Server, channel: str) -> None:
    """Pipelined requests are answered in order, even those behind a held poll."""
    with server.connect() as client, server.caller() as caller:
        cursor = caller.cursor()
        client.send(
            get("/healthz")
            + get(poll_path(channel, cursor=cursor))
            + get("/v1/nothing")
            + post("/v1/messages", {"channels": [f"{channel}:2"], "data": 1})
            + b"garbage\r\n\r\n"
            + get("/healthz")
        )
        assert client.read_response().status == 200
        assert client.silent(0.2)
        caller.publish([channel], "wakes it")
        assert client.read_response().value["messages"][0]["data"] == "wakes it"
        assert [client.read_response().status for _ in range(3)] == [404, 201, 400]
        assert client.ends()


def test_100_continue(server: Server, channel: str) -> None:
    """A client that waits for 100 Continue before its body gets it, unless the body would be refused."""
    body = b'{"channels": ["%b"], "data": 1}' % channel.encode()
    head = b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
    with server.connect() as client:
        client.send(head % len(body))
        assert client.read_response().status == 100
        client.send(body)
        assert client.read_response().status == 201
        client.send(head % 99_000_000)
        assert client.read_response().status == 413


def _assert_serves(server: Server) -> None:
    with server.caller() as caller:
        assert caller.call("GET", "/healthz").status == 200
