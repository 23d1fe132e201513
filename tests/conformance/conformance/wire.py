"""One connection: any bytes out, responses in. Reads responses with a length, in chunks, or up to the end.

A body is read as a whole, or piece by piece while it is sent (`Body`).
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
import time
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from conformance.registry import Failed


class Address(NamedTuple):
    """Where a server is; `host` as in the header field, `path` is what all targets begin with."""

    name: str
    port: int
    secure: bool
    host: str
    path: str

    @classmethod
    def of(cls, url: str) -> Address:
        """Raises: ValueError."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is not a URL such as http://127.0.0.1:8080")
        secure = parts.scheme == "https"
        port = parts.port or (443 if secure else 80)
        return cls(parts.hostname, port, secure, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"))


class Response(NamedTuple):
    """A response; names of header fields in lower case, repeated ones joined by commas."""

    status: int
    headers: dict[str, str]
    body: bytes
    version: str = "HTTP/1.1"

    @property
    def json(self) -> Any:
        """The body as JSON. Raises: Failed."""
        try:
            return json.loads(self.body)
        except ValueError:
            raise Failed(f"expected JSON, and {self} came") from None

    @property
    def closes(self) -> bool:
        """Whether the connection ends with it."""
        return "close" in self.headers.get("connection", "").lower()

    def __str__(self) -> str:
        text = self.body[:200].decode(errors="replace")
        return f"{self.status} {text}{'...' * (len(self.body) > 200)}".rstrip()


class Wire:
    """A connection. Whatever does not come within `patience` seconds is a failure of the check."""

    def __init__(self, address: Address, patience: float, receive_buffer_bytes: int = 0) -> None:
        self._patience = patience
        self._received = b""
        family, kind, protocol, _, where = socket.getaddrinfo(address.name, address.port, type=socket.SOCK_STREAM)[0]
        self.socket: socket.socket = socket.socket(family, kind, protocol)
        try:
            if receive_buffer_bytes:
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.socket.settimeout(patience)
            self.socket.connect(where)
            if address.secure:
                self.socket = ssl.create_default_context().wrap_socket(self.socket, server_hostname=address.name)
        except BaseException:
            self.socket.close()
            raise

    @property
    def pending(self) -> bool:
        """Whether something has been received that is not read yet."""
        return bool(self._received)

    def send(self, data: bytes) -> None:
        """Send all of it; that the server has closed already is no failure: what it said is still to be read."""
        try:
            self.socket.sendall(data)
        except TimeoutError:
            raise Failed(
                f"expected the server to read what is sent, and it read nothing for {self._patience:g} s"
            ) from None
        except OSError:
            pass

    def response(self, *, head: bool = False, within: float = 0.0) -> Response:
        """The next response, without those that are provisional. `head`: to a HEAD, so it has no body.

        `within`: seconds instead of `patience`. Raises: Failed if none comes.
        """
        while True:
            response = self.any_response(head=head, within=within)
            if response.status >= 200:
                return response

    def any_response(self, *, head: bool = False, within: float = 0.0) -> Response:
        """The next response, even a provisional one. Raises: Failed if none comes."""
        deadline = time.monotonic() + (within or self._patience)
        response = self.head(deadline)
        return response if head else response._replace(body=Body(self, response).rest(deadline))

    def head(self, deadline: float) -> Response:
        """The head of the next response, even of a provisional one. `deadline` is a time of `time.monotonic`.

        Raises: Failed if none comes.
        """
        lines = self.until(b"\r\n\r\n", deadline).decode("latin-1").split("\r\n")
        version, _, rest = lines[0].partition(" ")
        if not (version.startswith("HTTP/1.") and rest[:3].isdigit()):
            raise Failed(f"expected a status line, and {lines[0][:100]!r} came")
        headers: dict[str, str] = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            name = name.lower()
            headers[name] = f"{headers[name]}, {value.strip()}" if name in headers else value.strip()
        return Response(int(rest[:3]), headers, b"", version)

    def silent(self, seconds: float) -> bool:
        """Whether nothing comes for this long, and the connection stays open."""
        if self._received:
            return False
        self.socket.settimeout(seconds)
        try:
            data = self.socket.recv(65536)
        except TimeoutError:
            return True
        except OSError:
            return False
        self._received += data
        return False

    def ends(self) -> bool:
        """Whether the server closes the connection and sends nothing more."""
        if self._received:
            return False
        self.socket.settimeout(self._patience)
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True
        except OSError:
            return False

    def some(self, size: int) -> int:
        """Read this many bytes at most and drop them; returns how many came."""
        self.socket.settimeout(self._patience)
        return len(self.socket.recv(size))

    def half_close(self) -> None:
        self.socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Break the connection off (RST)."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def close(self) -> None:
        self.socket.close()

    def until(self, end: bytes, deadline: float) -> bytes:
        """What comes before `end`, which is dropped."""
        while (at := self._received.find(end)) < 0:
            if not self._receive(deadline):
                raise Failed(f"expected a response, and the connection ended{self._so_far()}")
        found, self._received = self._received[:at], self._received[at + len(end) :]
        return found

    def next_bytes(self, most: int, deadline: float) -> bytes:
        """The next bytes, as soon as there are any; none at the end of the connection."""
        if not self._received:
            self._receive(deadline)
        found, self._received = self._received[:most], self._received[most:]
        return found

    def _receive(self, deadline: float) -> bool:
        """Receive more; False at the end of the connection. Raises: Failed when the time is over."""
        left = deadline - time.monotonic()
        try:
            if left <= 0:
                raise TimeoutError
            self.socket.settimeout(left)
            data = self.socket.recv(65536)
        except TimeoutError:
            raise Failed(f"expected a response, and none came in time{self._so_far()}") from None
        except OSError as error:
            raise Failed(f"expected a response, and the connection broke ({error}){self._so_far()}") from None
        self._received += data
        return bool(data)

    def _so_far(self) -> str:
        return f" after {self._received[:100]!r}" if self._received else ""


class Body:
    """The body of a response, of which `head` has been read."""

    def __init__(self, wire: Wire, head: Response) -> None:
        self._wire = wire
        self.is_chunked = "chunked" in head.headers.get("transfer-encoding", "").lower()
        self.has_ended = head.status < 200 or head.status in (204, 304)
        length = head.headers.get("content-length")
        self._is_open = not self.is_chunked and length is None  # it ends with the connection
        self._size = 0 if self.is_chunked or length is None else int(length)
        self._left = self._size
        """Bytes that are still to come, of the chunk or of the whole body."""

    def piece(self, deadline: float) -> bytes:
        """What comes next, as soon as there is any of it; nothing after the last.

        Raises: Failed if nothing comes in time, or the connection ends too early.
        """
        wire = self._wire
        if self.has_ended:
            return b""
        if self._is_open:
            data = wire.next_bytes(1 << 20, deadline)
            self.has_ended = not data
            return data
        if not self._left and self.is_chunked:
            if self._size and (more := wire.until(b"\r\n", deadline)):
                raise Failed(f"expected the end of a chunk of {self._size} bytes, and {more[:100]!r} came")
            self._size = self._left = int(wire.until(b"\r\n", deadline).split(b";")[0], 16)
        if not self._left:
            self.has_ended = True
            while self.is_chunked and wire.until(b"\r\n", deadline):
                pass
            return b""
        data = wire.next_bytes(self._left, deadline)
        self._left -= len(data)
        if not data:
            came = self._size - self._left
            raise Failed(f"expected a body of {self._size} bytes, and the connection ended after {came}")
        return data

    def rest(self, deadline: float) -> bytes:
        """All that is left. Raises: as `piece`."""
        return b"".join(iter(lambda: self.piece(deadline), b""))
