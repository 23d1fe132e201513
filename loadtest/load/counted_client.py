"""An HTTP client that counts the bytes it sends and receives; small, as a thousand of them share a processor.

It makes plain blocking calls of `socket`, which locust replaces by gevent's, so other users continue meanwhile. It
counts the bytes passed to and from the kernel, so without TCP and IP headers.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

READ_BYTES = 16 * 1024

_LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]+)", re.IGNORECASE)


class CountedClient:
    """One client of a server; connects on its first request. Raises: OSError, from every request."""

    def __init__(self, url: str, headers: str = "", *, closing: bool = False, source: str = "") -> None:
        """`headers`: fields sent with every request, each ending in CRLF. `closing`: a connection for each request.
        `source`: the address to connect from; else the system chooses one.
        """
        parts = urlsplit(url if "//" in url else f"//{url}")
        self._address = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._fields = f" HTTP/1.1\r\nHost: {self._address[0]}:{self._address[1]}\r\n{headers}"
        self._closing = closing
        self._source = (source, 0) if source else None
        if closing:
            self._fields += "Connection: close\r\n"
        self._socket: socket.socket | None = None
        self._length = 0  # of the body that is being received
        self.sent = 0
        self.received = 0

    def get(self, target: str) -> tuple[int, bytes]:
        """Returns the status and body of the response."""
        return self._exchange(f"GET {target}{self._fields}\r\n".encode())

    def post(self, target: str, body: bytes) -> tuple[int, bytes]:
        head = f"POST {target}{self._fields}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        return self._exchange(head.encode() + body)

    def stream(self, target: str) -> Iterator[bytes]:
        """The chunks of an event stream as lines of JSON, until the server ends it; the connection is closed then.

        Raises: OSError, also if the server answers with anything but a stream.
        """
        self.close()
        request = f"GET {target}{self._fields}Accept: application/x-ndjson\r\n\r\n".encode()
        try:
            status, data = self._begin(request)
            if status != 200:
                raise ConnectionError(f"the server answered {status}")
            while True:
                while (end := data.find(b"\r\n")) < 0:
                    data += self._receive()
                if (size := int(data[:end], 16)) == 0:
                    return
                whole = end + 2 + size + 2
                while len(data) < whole:
                    data += self._receive()
                yield data[end + 2 : whole - 2]
                data = data[whole:]
        finally:
            self.close()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _exchange(self, request: bytes) -> tuple[int, bytes]:
        try:
            status, data = self._begin(request)
            while len(data) < self._length:
                data += self._receive()
        except BaseException:
            self.close()  # the rest of this response must not be read as the next one
            raise
        if self._closing:
            self.close()
        return status, data

    def _begin(self, request: bytes) -> tuple[int, bytes]:
        """Send a request; returns the status, and what has come of the body."""
        if self._socket is None:
            self._socket = socket.create_connection(self._address, source_address=self._source)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(request)
        self.sent += len(request)
        data = self._receive()
        while (end := data.find(b"\r\n\r\n")) < 0:
            data += self._receive()
        length = _LENGTH.search(data, 0, end + 2)
        self._length = int(length[1]) if length else 0
        return int(data[9:12]), data[end + 4 :]

    def _receive(self) -> bytes:
        assert self._socket is not None
        data = self._socket.recv(READ_BYTES)
        if not data:
            raise ConnectionError("the server has closed the connection")
        self.received += len(data)
        return data
