"""A small application and its proxy: pages with a list, and PushUp's streams below the same origin.

It does what docs/guide/pages.md says. The streams can be cut, and refused for a while; while PushUp does not run, they
are empty, as from the proxy that the page describes.
"""

from __future__ import annotations

import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from typing import NamedTuple, TypeVar

from tests.server.caller import Caller
from tests.server.web_server import web_server

RETRY_SECONDS = 0.05
"""Until the application calls PushUp again, when that does not run."""

AGAIN = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\nretry: 500\n\n"

COOKIE = "__Secure-pushup"

T = TypeVar("T")

TYPES = {"js": "text/javascript", "html": "text/html; charset=utf-8"}


class Page(NamedTuple):
    """What the application serves and publishes. `files`: by their names. `part`: how the part of the page begins that
    `/list` returns. `newest`: of how many messages the list is; 0: of all. `policy`: its `Content-Security-Policy`.
    """

    html: str = ""
    files: Mapping[str, bytes] = {}
    part: str = "<!doctype"
    message: str = "<li>Hello</li>"
    event: str = ""
    newest: int = 0
    policy: str = ""


class Site:
    """The application, in front of the PushUp at this address."""

    def __init__(self, pushup: str, page: Page, token: str = "", by: str = "") -> None:
        """`token`: its user's, which PushUp gets by a `cookie` or a `ticket`; empty: the channel is not private."""
        self.page = page
        self.cookie = f"{COOKIE}={token}; Path=/v1/events; HttpOnly; SameSite=Strict; Secure" if by == "cookie" else ""
        self._token = token
        self._by = by
        self.url = ""
        self.list: list[str] = []
        self.rendered = 0
        """How often the list was rendered."""
        self.refuses = False
        """Whether streams get no answer."""
        self._pushup = pushup
        self._lock = threading.Lock()
        self._streams: set[socket.socket] = set()

    def publish(self, text: str) -> None:
        """Store a message and publish it, however long PushUp does not run."""
        item, key = f"<li>{text}</li>", str(uuid.uuid4())
        with self._lock:
            self.list.append(item)
            data = self.page.message.replace("Hello", text).replace("{{ items }}", self._items)
            body = {"channels": ["news"], "data": data, "event": self.page.event}
            self._until_done(lambda caller: _publish(caller, body, key))

    @property
    def _items(self) -> str:
        return "".join(self.list[-self.page.newest :])

    def cut(self) -> None:
        """Break all streams off."""
        while self._streams:
            with suppress(OSError):
                self._streams.pop().shutdown(socket.SHUT_RDWR)

    @property
    def streams(self) -> int:
        """How many there are."""
        return len(self._streams)

    def render(self, path: str) -> bytes | None:
        """What there is at a path."""
        if path.lstrip("/") in self.page.files:
            return self.page.files[path.lstrip("/")]
        if path not in ("/", "/list"):
            return None
        html, part = self.page.html, self.page.part
        template = html if path == "/" else part + html.partition(part)[2]
        with self._lock:
            self.rendered += 1
            values = {"cursor": self._until_done(lambda caller: caller.cursor()), "items": self._items}
            if self._by == "ticket":
                values["token"] = self._token
                values["ticket"] = self._until_done(self._ticket)
            return re.sub(r"{{ (\w+) }}", lambda found: values.get(found[1], ""), template).encode()

    def pass_on(self, request: bytes, client: socket.socket) -> None:
        """Pass the answer of PushUp on to a client, until one of them ends the connection."""
        if self.refuses:
            return
        host, _, port = self._pushup.rpartition(":")
        try:
            server = socket.create_connection((host, int(port)))
        except OSError:
            client.sendall(AGAIN)
            return
        with server, suppress(OSError):
            self._streams.add(server)
            try:
                server.sendall(request)
                while data := server.recv(65536):
                    client.sendall(data)
            finally:
                self._streams.discard(server)

    def _ticket(self, caller: Caller) -> str:
        body = {"channels": ["news"], "token": self._token}
        reply = caller.call("POST", "/v1/url-tickets", body, {"Origin": self.url})
        assert reply.status == 200, reply
        return str(reply.value["ticket"])

    def _until_done(self, call: Callable[[Caller], T]) -> T:
        while True:
            try:
                with Caller(self._pushup) as caller:
                    return call(caller)
            except (OSError, AssertionError):
                time.sleep(RETRY_SECONDS)


def _publish(caller: Caller, body: object, key: str) -> None:
    assert caller.call("POST", "/v1/messages", body, {"Idempotency-Key": key}).status == 201


@contextmanager
def serving(site: Site) -> Iterator[Site]:
    """Serve it until the end of the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.close_connection = True
            head = f"{self.requestline}\r\n" + "".join(f"{n}: {v}\r\n" for n, v in self.headers.items())
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            site.pass_on(f"{head}\r\n".encode() + body, self.connection)

        def do_GET(self) -> None:
            if self.path.startswith("/v1/"):
                self.do_POST()
                return
            self.close_connection = True
            body = site.render(self.path)
            self.send_response(404 if body is None else 200)
            self.send_header("Content-Type", TYPES.get(self.path.rpartition(".")[2], TYPES["html"]))
            if site.cookie:
                self.send_header("Set-Cookie", site.cookie)
            if site.page.policy:
                self.send_header("Content-Security-Policy", site.page.policy)
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *_: object) -> None:
            pass

    with web_server(Handler) as port:
        site.url = f"http://127.0.0.1:{port}"
        try:
            yield site
        finally:
            site.cut()
