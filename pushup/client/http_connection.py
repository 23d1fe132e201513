"""An HTTP connection on which every wait ends: at a deadline, or soon after `stop`; and what a client raises."""

from __future__ import annotations

import errno
import http.client
import io
import json
import os
import select
import socket
import ssl
import threading
import time
from typing import Any
from urllib.parse import urlsplit

STEP_SECONDS = 0.5
"""The longest wait in one system call. After each, the deadline, `stop` and Ctrl-C are looked at."""


class ClientError(Exception):
    """The server cannot be reached, or refused; then `status` is the HTTP status and `problem` the response's body."""

    def __init__(self, text: str, status: int = 0, problem: dict[str, Any] | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.problem = problem or {}

    @property
    def may_pass(self) -> bool:
        """Whether a retry may succeed."""
        return self.status == 0 or self.status in (429, 502, 503, 504)


def connection(url: str) -> Connection:
    """A connection to the server at `url`. Raises: ClientError if the URL is not valid."""
    if url.startswith("unix:"):
        return Connection("localhost", path=url.removeprefix("unix:"))
    try:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname:
            return Connection(parts.hostname, parts.port, tls=parts.scheme == "https")
    except ValueError:
        pass  # the port is not valid
    raise ClientError(f"{url!r} is not a valid URL; write one such as http://127.0.0.1:8080 or unix:/run/pushup.sock")


class Connection(http.client.HTTPConnection):
    """A connection to an HTTP server, or with `path` to a Unix socket. It connects when it is used.

    Until `allow` is called, no wait is allowed. A wait that ends raises an OSError.
    """

    def __init__(self, host: str, port: int | None = None, *, tls: bool = False, path: str = "") -> None:
        """Raises: http.client.InvalidURL if the host is not valid."""
        if tls:
            self.default_port = http.client.HTTPS_PORT
        super().__init__(host, port)
        self.response_class = self._response  # type: ignore[assignment]  # a factory will do
        self._tls = ssl.create_default_context() if tls else None
        self._path = path
        self._seconds = self._until = 0.0
        self.stopped = threading.Event()

    def allow(self, seconds: float) -> None:
        """From now on, all waits together may take this long."""
        self._seconds, self._until = seconds, time.monotonic() + seconds

    def connect(self) -> None:
        addresses = self._addresses()
        for number, (family, address) in enumerate(addresses):
            left = self._until - time.monotonic()
            try:
                self.sock = self._open(family, address, time.monotonic() + left / (len(addresses) - number))
                return
            except OSError:
                self.close()
                if number == len(addresses) - 1:
                    raise

    def send(self, data: Any) -> None:
        if self.sock is None:
            self.connect()
        unsent = memoryview(data)
        while unsent:
            self.sock.settimeout(self._step())
            try:
                unsent = unsent[self.sock.send(unsent) :]
            except TimeoutError:
                continue

    def read_into(self, sock: socket.socket, buffer: Any) -> int:
        """Read what is there into the buffer; returns the number of bytes, 0 at the end."""
        while True:
            sock.settimeout(self._step())
            try:
                return sock.recv_into(buffer)
            except TimeoutError:
                continue

    def _response(self, sock: socket.socket, **options: Any) -> http.client.HTTPResponse:
        response = http.client.HTTPResponse(sock, **options)
        response.fp = io.BufferedReader(_Reader(self, sock, response.fp.detach()))
        return response

    def _addresses(self) -> list[tuple[int, Any]]:
        """The families and addresses to try. Looked up in a thread, because a lookup has no timeout."""
        if self._path:
            return [(socket.AF_UNIX, self._path)]
        found: list[tuple[int, Any]] = []
        failed: list[OSError] = []

        def look_up() -> None:
            try:
                for family, _, _, _, address in socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM):
                    found.append((family, address))
            except OSError as error:
                failed.append(error)
            except UnicodeError as error:  # no valid name
                failed.append(OSError(str(error)))

        thread = threading.Thread(target=look_up, daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(self._step())
        if failed:
            raise failed[0]
        return found

    def _open(self, family: int, address: Any, until: float) -> socket.socket:
        """A socket that is connected, with TLS if wanted. Raises: OSError."""
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            failed = sock.connect_ex(address)
            if failed == errno.EINPROGRESS:
                poll = select.poll()
                poll.register(sock, select.POLLOUT)
                while not poll.poll(1000 * self._step(until)):
                    pass
                failed = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if failed:
                raise OSError(failed, os.strerror(failed))
            if family != socket.AF_UNIX:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock if self._tls is None else self._with_tls(self._tls, sock, until)
        except BaseException:
            sock.close()
            raise

    def _with_tls(self, context: ssl.SSLContext, sock: socket.socket, until: float) -> socket.socket:
        wrapped = context.wrap_socket(sock, server_hostname=self.host, do_handshake_on_connect=False)
        try:
            while True:
                wrapped.settimeout(self._step(until))
                try:
                    wrapped.do_handshake()
                    return wrapped
                except TimeoutError:
                    continue
        except BaseException:
            wrapped.close()
            raise

    def _step(self, until: float | None = None) -> float:
        """How long to wait now, at most. Raises: OSError if no longer, because it is too late or after a stop."""
        if self.stopped.is_set():
            raise ConnectionAbortedError("the client was stopped")
        left = (self._until if until is None else until) - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"no response within {self._seconds:.3g} s")
        return min(STEP_SECONDS, left)


class _Reader(io.RawIOBase):
    """The bytes of a response. `file` keeps the socket open for it, after the connection is closed."""

    def __init__(self, connection: Connection, sock: socket.socket, file: io.RawIOBase) -> None:
        self._connection = connection
        self._sock = sock
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._connection.read_into(self._sock, buffer)

    def close(self) -> None:
        self._file.close()
        super().close()


def read_reply(response: http.client.HTTPResponse) -> dict[str, Any]:
    """The JSON object in a response. Raises: ClientError for an error or anything else; OSError, HTTPException."""
    text = response.read()
    try:
        value = json.loads(text) if text else {}
    except ValueError:
        value = {}
    if response.status >= 400 or not isinstance(value, dict):
        detail = value.get("detail", "") if isinstance(value, dict) else ""
        raise ClientError(f"{response.status} {response.reason}: {detail}", response.status, value)
    return value
