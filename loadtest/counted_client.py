"""A keep-alive HTTP client that counts the bytes of its socket, both ways; small, for it shares a processor.

It waits in plain calls of `socket`: under locust, which replaces those by gevent's, others go on meanwhile. What is
counted is what is handed to the kernel and what it hands over: without the headers of TCP and IP.
"""

from __future__ import annotations

import re
import socket
from urllib.parse import urlsplit

READ_BYTES = 16 * 1024

_LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]+)", re.IGNORECASE)


class CountedClient:
    """One client of a server; connects when it has something to ask. Raises everywhere: OSError."""

    def __init__(self, url: str, headers: str = "") -> None:
        """`headers`: fields for each request, each with its line's end."""
        parts = urlsplit(url if "//" in url else f"//{url}")
        self._address = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._fields = f" HTTP/1.1\r\nHost: {self._address[0]}:{self._address[1]}\r\n{headers}"
        self._socket: socket.socket | None = None
        self.sent = 0
        self.received = 0

    def get(self, target: str) -> tuple[int, bytes]:
        """The status and body of what is answered."""
        return self._exchange(f"GET {target}{self._fields}\r\n".encode())

    def post(self, target: str, body: bytes) -> tuple[int, bytes]:
        head = f"POST {target}{self._fields}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        return self._exchange(head.encode() + body)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _exchange(self, request: bytes) -> tuple[int, bytes]:
        sock = self._socket
        if sock is None:
            sock = self._socket = socket.create_connection(self._address)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            sock.sendall(request)
            self.sent += len(request)
            data = self._receive(sock)
            while (end := data.find(b"\r\n\r\n")) < 0:
                data += self._receive(sock)
            length = _LENGTH.search(data, 0, end + 2)
            whole = end + 4 + (int(length[1]) if length else 0)
            while len(data) < whole:
                data += self._receive(sock)
        except BaseException:
            self.close()  # what is left of the response must not be taken for the next one
            raise
        return int(data[9:12]), data[end + 4 :]

    def _receive(self, sock: socket.socket) -> bytes:
        data = sock.recv(READ_BYTES)
        if not data:
            raise ConnectionError("the server has closed the connection")
        self.received += len(data)
        return data
