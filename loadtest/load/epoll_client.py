"""Clients on a bare epoll loop: a request costs about 10 us, so that one processor can saturate a server on another."""

from __future__ import annotations

import heapq
import select
import socket
import time
from collections.abc import Callable
from itertools import count

READ_BYTES = 64 * 1024

Responded = Callable[["Connection", int, bytes], None]
"""Called with each response: connection, status, body."""

Streamed = Callable[["Connection", bytes], None]
"""Called with each event of a stream: connection, its lines."""


class Loop:
    """Reads from connections and runs timers until it is stopped."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._connections: dict[int, Connection] = {}
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._running = False

    def at(self, moment: float, call: Callable[[], None]) -> None:
        """Schedule a call for a time in seconds since the epoch."""
        heapq.heappush(self._timers, (moment, next(self._numbers), call))

    def run_until(self, end: float) -> None:
        """Run until a time in seconds since the epoch, or until `stop`."""
        self._running = True
        while self._running and (now := time.time()) < end:
            while self._timers and self._timers[0][0] <= now:
                heapq.heappop(self._timers)[2]()
            next_time = min(end, self._timers[0][0]) if self._timers else end
            # epoll rounds its timeout up to whole milliseconds, so wait less and poll repeatedly for the rest.
            wait = max(0.0, next_time - time.time() - 0.0005)
            for fd, _ in self._epoll.poll(wait, 256):
                connection = self._connections.get(fd)
                if connection is not None:
                    connection.read()

    def stop(self) -> None:
        self._running = False

    def watch(self, connection: Connection) -> None:
        self._connections[connection.socket.fileno()] = connection
        self._epoll.register(connection.socket.fileno(), select.EPOLLIN)

    def unwatch(self, connection: Connection) -> None:
        """Stop reading from a connection, so that its data stays in the kernel, and then at the server."""
        self._epoll.unregister(connection.socket.fileno())
        del self._connections[connection.socket.fileno()]

    def close(self) -> None:
        """Close all connections."""
        for connection in list(self._connections.values()):
            connection.close()
        self._epoll.close()


class Connection:
    """One keep-alive connection; requests may be pipelined."""

    def __init__(
        self,
        loop: Loop,
        address: tuple[str, int],
        responded: Responded,
        *,
        ended: Callable[[Connection], None] | None = None,
        receive_buffer_bytes: int | None = None,
    ) -> None:
        """`ended` is called when the server closes the connection. Raises: OSError if it cannot connect."""
        self._loop = loop
        self._responded = responded
        self._ended = ended
        self.head = b""
        """The status line and header fields of the latest response."""
        self._buffer = b""
        self._streamed: Streamed | None = None
        self.socket = socket.socket()
        if receive_buffer_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        try:
            self.socket.connect(address)
        except OSError:
            self.socket.close()
            raise
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.closed = False
        loop.watch(self)

    def get(self, target: str, headers: str = "") -> None:
        self.socket.send(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n".encode())

    def stream(self, target: str, streamed: Streamed, headers: str = "") -> None:
        """Open a stream of server-sent events; nothing else can be asked for on this connection.

        If the server refuses, that is a response like any other.
        """
        self._streamed = streamed
        self.get(target, f"Accept: text/event-stream\r\n{headers}")

    def post(self, target: str, body: bytes, headers: str = "") -> None:
        head = f"POST {target} HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
        self.socket.send(head.encode() + body)

    def read(self) -> None:
        try:
            data = self.socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            if self._ended is not None:
                self._ended(self)
            return
        self._buffer += data
        if self._streamed is not None and self._has_begun():
            self._read_events(self._streamed)
            return
        while not self.closed and (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = self.head = self._buffer[:end]
            at = head.lower().find(b"content-length: ")
            length = int(head[at + 16 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            whole = end + 4 + length
            if len(self._buffer) < whole:
                return
            body = self._buffer[end + 4 : whole]
            self._buffer = self._buffer[whole:]
            self._responded(self, int(head[9:12]), body)

    def _has_begun(self) -> bool:
        """Whether the head of the stream has come."""
        if not self.head and self._buffer.startswith(b"HTTP/1.1 200") and b"\r\n\r\n" in self._buffer:
            self.head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        return bool(self.head)

    def _read_events(self, streamed: Streamed) -> None:
        """Pass on the events that are complete. Sizes of chunks stand before them, where there are any."""
        while not self.closed and (end := self._buffer.find(b"\n\n")) >= 0:
            event, self._buffer = self._buffer[:end], self._buffer[end + 2 :]
            streamed(self, event)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            if self.socket.fileno() in self._loop._connections:
                self._loop.unwatch(self)
            self.socket.close()
