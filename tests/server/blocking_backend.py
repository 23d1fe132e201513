"""Web backends that block, each in its own threads: one gives the answers that a test sets, others misbehave."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit


class Question(NamedTuple):
    """A received request; header names in lower case."""

    method: str
    path: str
    channels: list[str]
    headers: dict[str, str]
    body: bytes = b""


class Verdict(NamedTuple):
    """The response to a request."""

    status: int = 200
    body: bytes = b'{"allow": true}'
    headers: tuple[tuple[str, str], ...] = ()


def allowed(seconds: float | None = None) -> Verdict:
    return Verdict(body=json.dumps({"allow": True, "seconds": seconds}).encode())


class WebBackend:
    """A web application. A test may replace `answer`, which may block."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.questions: list[Question] = []
        self.connections = 0
        self._scheme = "https" if tls else "http"
        self.answer: Callable[[Question], Verdict] = lambda question: Verdict()
        self._server = _Server(self)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}/may"

    @property
    def count(self) -> int:
        """How many questions it has received."""
        return len(self.questions)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, backend: WebBackend) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.backend = backend

    def process_request(self, request: Any, client_address: Any) -> None:
        self.backend.connections += 1
        super().process_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # ignore clients that disconnect


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self.rfile.read(int(headers.get("content-length", 0)))
        question = Question(self.command, self.path, parse_qs(parts.query).get("channel", []), headers, body)
        self.server.backend.questions.append(question)
        verdict = self.server.backend.answer(question)
        self.send_response(verdict.status)
        for name, value in verdict.headers:
            self.send_header(name, value)
        if verdict.status != 204:
            self.send_header("Content-Length", str(len(verdict.body)))
        self.end_headers()
        if verdict.status != 204:
            self.wfile.write(verdict.body)

    do_POST = do_GET  # noqa: N815 - its name in the standard library

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name in the standard library
        pass


@contextmanager
def web_backend(tls: ssl.SSLContext | None = None) -> Iterator[WebBackend]:
    """Run a web backend within a `with` block."""
    backend = WebBackend(tls)
    backend.start()
    try:
        yield backend
    finally:
        backend.stop()


class RudeBackend:
    """Accepts connections and passes each to `behaviour`, in its own thread."""

    def __init__(self, behaviour: Callable[[socket.socket], None]) -> None:
        self.connections = 0
        self._behaviour = behaviour
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listening.getsockname()[1]}/may"

    def stop(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()
        for sock in self._open:
            sock.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                sock, _ = self._listening.accept()
                self.connections += 1
                self._open.append(sock)
                threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        with suppress(OSError):
            sock.settimeout(20)
            self._behaviour(sock)


@contextmanager
def rude_backend(behaviour: Callable[[socket.socket], None]) -> Iterator[RudeBackend]:
    """Run a misbehaving backend within a `with` block."""
    backend = RudeBackend(behaviour)
    try:
        yield backend
    finally:
        backend.stop()
