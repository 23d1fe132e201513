"""Event streams through nginx and HAProxy, which compress what they can, for a page of another origin."""

from __future__ import annotations

import http.client
import signal
import socketserver
import statistics
import threading
import time
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from pushup.net.api.browser_client import NAMES
from tests.server.caller import Caller
from tests.server.proxies import haproxy, nginx
from tests.server.server_process import running

PAGE = "https://page.example"

SECONDS = 10.0
"""Less than until the next heartbeat, with which a proxy might send what it kept."""

Proxy = Callable[[Path, str], AbstractContextManager[str]]

PROXIES: dict[str, Proxy] = {"nginx": nginx, "nginx that buffers": partial(nginx, buffers=True), "HAProxy": haproxy}


class Page:
    """A browser's request for a stream, and what comes."""

    def __init__(self, address: str, query: str) -> None:
        self._connection = http.client.HTTPConnection(address, timeout=SECONDS)
        headers = {"Accept": "text/event-stream", "Accept-Encoding": "gzip, deflate, br", "Origin": PAGE}
        self._connection.request("GET", f"/v1/events?channel=news&cursor=now{query}", headers=headers)
        self.response = self._connection.getresponse()
        is_gzip = self.response.headers.get("Content-Encoding") == "gzip"
        self._decoder = zlib.decompressobj(31) if is_gzip else None
        self._read = b""

    def event(self) -> str:
        """The next one, as soon as it is complete; raises TimeoutError."""
        while b"\n\n" not in self._read:
            data = self.response.read1(65536)
            assert data, "the stream has ended"
            self._read += self._decoder.decompress(data) if self._decoder else data
        event, _, self._read = self._read.partition(b"\n\n")
        return event.decode()

    def close(self) -> None:
        self._connection.close()


@pytest.mark.parametrize("query", ["&format=raw", ""])
@pytest.mark.parametrize("proxy", PROXIES)
def test_each_event_comes_at_once(proxy: str, query: str, tmp_path: Path) -> None:
    """None waits for the next one in a proxy's buffer, nor in what it compresses; the page of another origin may read
    the stream, and nobody may keep it."""
    with (
        running(tmp_path / "log", ("--set", f"cors_origins={PAGE}")) as server,
        PROXIES[proxy](tmp_path, server.address) as address,
        server.caller() as publisher,
        closing(Page(address, query)) as page,
    ):
        assert page.event() == ":\nretry: 1000"
        assert "id: " in page.event()
        head = page.response.headers
        assert (page.response.status, head["Content-Type"]) == (200, "text/event-stream")
        assert "no-store" in head["Cache-Control"]
        assert head["Access-Control-Allow-Origin"] == PAGE
        assert "Origin" in head["Vary"]
        delays = []
        for number in range(20):
            began = time.monotonic()
            publisher.publish(["news"], f"<li>{number}</li>")
            assert page.event().endswith(f"\ndata: <li>{number}</li>" if query else f'"data":"<li>{number}</li>"}}')
            delays.append(time.monotonic() - began)
        assert statistics.median(delays) < 0.15, delays


def test_nginx_passes_scripts_on_and_no_channels(tmp_path: Path) -> None:
    with (
        running(tmp_path / "log", ()) as server,
        nginx(tmp_path, server.address) as address,
        closing(Caller(address)) as page,
        server.caller() as publisher,
    ):
        assert [page.call("GET", f"/v1/{name}").status for name in NAMES] == [200] * len(NAMES)
        publisher.publish(["a.js"], 1)
        assert page.call("GET", "/v1/channels/a.js").status == 404
        assert publisher.call("GET", "/v1/channels/a.js").status == 200


def test_nginx_keeps_what_is_inside_from_the_world_and_nothing_else(tmp_path: Path) -> None:
    """Publishing, metrics and health; paths of the application that begin like these are its own."""
    with (
        running(tmp_path / "log", ()) as server,
        socketserver.TCPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as application,
        nginx(tmp_path, server.address, "{}:{}".format(*application.server_address)) as address,
        closing(Caller(address)) as page,
    ):
        threading.Thread(target=application.serve_forever, daemon=True).start()
        for path in ("/v1/messages", "/v1/nodes", "/v1/", "/metrics", "/readyz", "/healthz"):
            assert page.call("GET", path).status == 404, path
        assert page.call("POST", "/v1/messages", {"channels": ["news"], "data": 1}).status == 404
        for path in ("/metrics-of-sales", "/healthz/today", "/v1"):
            assert page.call("GET", path).status == 501, path  # the application's own answer
        application.shutdown()


def test_nginx_while_pushup_is_down(tmp_path: Path) -> None:
    """Raw streams are empty, so that browsers try again; clients that know PushUp get an error."""
    with running(tmp_path / "log", ()) as server, nginx(tmp_path, server.address) as address:
        server.end(signal.SIGKILL)
        with closing(Page(address, "&format=raw")) as page:
            assert (page.response.status, page.response.headers["Content-Type"]) == (200, "text/event-stream")
            assert page.event() == "retry: 1000"
            with pytest.raises(AssertionError, match="has ended"):
                page.event()
        with closing(Page(address, "")) as page:
            assert page.response.status == 502
