"""Malicious or broken clients: each gets a 4xx problem or is disconnected, and the next client is served."""

from __future__ import annotations

import time

import pytest

from tests.net.smuggling_vectors import REFUSED, SMUGGLED
from tests.server.conftest import Serve
from tests.server.raw_client import post
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
    "many headers": (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 5000 + b"\r\n", 431),
    "announced body": (b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2000000\r\n\r\n", 413),
    "chunk extensions": (
        b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"x" * 4_000_000,
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


def _assert_serves(server: Server) -> None:
    with server.caller() as caller:
        assert caller.call("GET", "/healthz").status == 200
