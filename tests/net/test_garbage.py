"""Nothing in the edge leaves reference cycles: memory is freed at once, not when the collector runs.

The server collects cycles rarely (`tune_garbage_collector`), so one cycle per request would add up: incomplete requests
used to leave their parser behind, with a body of up to 1 MiB in it.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from tests.net.scripted_application import get, serve


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Garbage is not collected unless the test does so."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


BODY = b"x" * 1000
TRIED = {
    "whole": [get(b"/a")],
    "in parts": [b"GET /a HTT", b"P/1.1\r\nHost: a\r", b"\n\r\n"],
    "a body in parts": [get(b"/echo", b"Content-Length: 1000\r\n", b"POST") + BODY[:500], BODY[500:]],
    "the last one": [get(b"/a", b"Connection: close\r\n")],
    "an upgrade": [get(b"/a", b"Connection: Upgrade\r\nUpgrade: h2c\r\n")],
    "bad": [b"GARBAGE\r\n\r\n"],
    "bad in parts": [b"GET / HTTP/1.1\r\nHost: a\r\n", b"Host: b\r\n\r\n"],
    "too large": [get(b"/echo", b"Content-Length: 9999999999\r\n", b"POST")],
    "held and left": [get(b"/held")],
    "never whole": [b"GET /a HTTP/1.1\r\nHo"],
}


@pytest.mark.parametrize("parts", TRIED.values(), ids=TRIED.keys())
def test_no_cycles(no_collector: None, parts: list[bytes]) -> None:
    server = serve()
    clients = []
    for number in range(21):
        client = server.connect()
        clients.append(client)
        for part in parts:
            client.send(part)
        client.end()
        assert client.closed() or client.server_half_closed()
        if number == 0:
            gc.collect()  # objects that are created only once
    assert server.edge.connection_count == 0
    server.application.held.clear()
    assert gc.collect() == 0
