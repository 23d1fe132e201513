"""A client that sends arbitrary bytes over a socket: pipelines, partial requests, nothing at all, a reset."""

from __future__ import annotations

import json
import socket
import struct
import time
from types import TracebackType
from typing import Any, NamedTuple, Self

WAIT_SECONDS = 30.0
"""How long anything here waits at most; ample even for a server that shares two cores with a benchmark."""


class RawResponse(NamedTuple):
    """One response; header names in lower case, the last value of repeated fields."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def value(self) -> Any:
        """The body parsed as JSON."""
        return json.loads(self.body)

    @property
    def is_problem(self) -> bool:
        """Whether it is an RFC 9457 problem whose status matches the response's."""
        if self.headers.get("content-type") != "application/problem+json":
            return False
        value = self.value
        return bool(value["status"] == self.status and value["type"] and value["title"] and value["detail"])


def request(method: str, target: str, body: bytes = b"", *headers: str) -> bytes:
    """The bytes of a well-formed request."""
    lines = [f"{method} {target} HTTP/1.1", "Host: localhost", *headers]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join((*lines, "", "")).encode() + body


def get(target: str, *headers: str) -> bytes:
    """The bytes of a GET."""
    return request("GET", target, b"", *headers)


def post(target: str, value: object, *headers: str) -> bytes:
    """The bytes of a POST of JSON."""
    return request("POST", target, json.dumps(value).encode(), *headers)


def connected_socket(address: str, receive_buffer_bytes: int | None = None) -> socket.socket:
    """A socket connected to `127.0.0.1:8080`, `[::1]:8080` or `unix:/run/pushup.sock`."""
    if address.startswith("unix:"):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        target: Any = address.removeprefix("unix:")
    else:
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
        target = (host, int(port))
    try:
        sock.settimeout(WAIT_SECONDS)
        if receive_buffer_bytes is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        if sock.family != socket.AF_UNIX:  # without this, a head and a body in two segments would be 40 ms apart
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.connect(target)
    except BaseException:
        sock.close()
        raise
    return sock


class RawClient:
    """One connection. It reads from the server only when a method asks for it."""

    def __init__(self, address: str, *, receive_buffer_bytes: int | None = None) -> None:
        self.socket = connected_socket(address, receive_buffer_bytes)
        self._received = b""

    def send(self, data: bytes) -> None:
        """Send all of it; raises TimeoutError if the server does not read it."""
        self.socket.sendall(data)

    def send_what_fits(self, data: bytes, quiet_seconds: float = 1.0) -> int:
        """Send until the server has read nothing for `quiet_seconds`; returns how many bytes were sent."""
        sent = 0
        view = memoryview(data)
        self.socket.settimeout(quiet_seconds)
        try:
            while sent < len(data):
                sent += self.socket.send(view[sent : sent + 65536])
        except TimeoutError:
            pass
        finally:
            self.socket.settimeout(WAIT_SECONDS)
        return sent

    def read_response(self) -> RawResponse:
        """The next response; raises ConnectionError if the connection ends before it is complete."""
        head = self.read_until(b"\r\n\r\n").decode("latin-1")
        status_line, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
        version, status, _ = status_line.split(" ", 2)
        assert version == "HTTP/1.1"
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        return RawResponse(int(status), headers, self._read(int(headers.get("content-length", 0))))

    def read_to_end(self) -> bytes:
        """Everything until the server closes or resets the connection."""
        try:
            while self._receive():
                pass
        except ConnectionResetError:
            pass
        rest, self._received = self._received, b""
        return rest

    def ends(self) -> bool:
        """Whether the server closes without sending anything more."""
        return self.read_to_end() == b""

    def silent(self, seconds: float) -> bool:
        """Whether nothing arrives for this long."""
        self.socket.settimeout(seconds)
        try:
            return not self._received and self._receive() == 0
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(WAIT_SECONDS)

    def half_close(self) -> None:
        """Close the sending side of the connection."""
        self.socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Reset the connection with an RST."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def read_until(self, end: bytes) -> bytes:
        deadline = time.monotonic() + WAIT_SECONDS
        while end not in self._received:
            if time.monotonic() > deadline:
                raise TimeoutError("no whole response")
            if not self._receive():
                raise ConnectionError(f"closed after {self._received[:200]!r}")
        return self._read(self._received.index(end) + len(end))

    def _read(self, size: int) -> bytes:
        while len(self._received) < size:
            if not self._receive():
                raise ConnectionError(f"closed after {len(self._received)} of {size} bytes")
        part, self._received = self._received[:size], self._received[size:]
        return part

    def _receive(self) -> int:
        data = self.socket.recv(65536)
        self._received += data
        return len(data)
