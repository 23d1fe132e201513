"""The paper's client: "a continuous stream of arbitrary fixed sized messages via N connections".

Each connection always has `WINDOW` messages under way, sent and not yet echoed, so that the server never waits for the
client's next message, and what waits in the kernel's buffers is bounded. Every byte that comes back is compared with
what was sent, and each connection begins at another place of the message, so that they are told apart.
"""

from __future__ import annotations

import random
import select
import socket
import struct
import time
from collections.abc import Sequence
from typing import NamedTuple

from loadtest.reports.results import percentile

WINDOW = 8
"""Messages under way on each connection."""

READ_BYTES = 64 * 1024
EVENTS = 256
CONNECT_SECONDS = 20.0
PATTERN_SEED = 2005

_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: a connection is closed by a reset, and leaves nothing behind in the kernel for the next measurement."""


class WrongEcho(Exception):
    """The server has sent what it was not sent."""


class Measured(NamedTuple):
    """What was received in `seconds`. `trips`: seconds that one message at a time of each connection took."""

    seconds: float
    messages: float
    received_bytes: int
    trips: Sequence[float]
    stalled: int
    """Connections on which nothing came back."""

    ended: int
    """Connections that the server has closed."""

    own_share: float
    """The client's share of its processor."""

    @property
    def bits_per_second(self) -> float:
        """In one direction: as many were sent."""
        return 8 * self.received_bytes / self.seconds

    def trip(self, share: float) -> float:
        return percentile(self.trips, share)


class _Connection:
    __slots__ = ("is_blocked", "marked_at", "marked_byte", "offset", "received", "sent", "socket")

    def __init__(self, sock: socket.socket, offset: int) -> None:
        self.socket = sock
        self.offset = offset
        self.sent = 0
        self.received = 0
        self.is_blocked = False
        self.marked_byte = 0
        """The message that is timed ends before this byte of the stream; 0 if none is."""
        self.marked_at = 0.0


class Stream:
    """N connections that stream; closed at the end of a `with`."""

    def __init__(self, address: tuple[str, int], *, connections: int, message_bytes: int) -> None:
        """Raises: OSError if it cannot connect."""
        self._message_bytes = message_bytes
        self._window_bytes = WINDOW * message_bytes
        message = random.Random(PATTERN_SEED).randbytes(message_bytes)  # noqa: S311  # any bytes will do
        self._pattern = message * (2 + max(self._window_bytes, READ_BYTES) // message_bytes)
        self._view = memoryview(self._pattern)
        self._epoll = select.epoll()
        self._connections: dict[int, _Connection] = {}
        self._trips: list[float] = []
        self._received = 0
        self._ended = 0
        try:
            for number in range(connections):
                sock = socket.create_connection(address, timeout=CONNECT_SECONDS)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.setblocking(False)
                self._connections[sock.fileno()] = _Connection(sock, number % message_bytes)
        except OSError:
            self.close()
            raise

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.socket.close()
        self._connections.clear()
        self._epoll.close()

    def begin(self, *, patience: float) -> None:
        """Start the streams; returns when each has received something, or after `patience` seconds."""
        for fd, connection in self._connections.items():
            self._epoll.register(fd, select.EPOLLIN)
            self._send(connection)
        end = time.monotonic() + patience
        while time.monotonic() < end and not all(c.received for c in self._connections.values()):
            self._run(min(end, time.monotonic() + 0.2))

    def measure(self, seconds: float) -> Measured:
        """Stream for some seconds. Raises: WrongEcho."""
        before = {fd: connection.received for fd, connection in self._connections.items()}
        self._trips, received, ended = [], self._received, self._ended
        began, cpu = time.monotonic(), time.process_time()
        self._run(began + seconds)
        took = time.monotonic() - began
        got = self._received - received
        stalled = sum(1 for fd, connection in self._connections.items() if connection.received == before[fd])
        return Measured(
            took, got / self._message_bytes, got, self._trips, stalled, self._ended - ended,
            (time.process_time() - cpu) / took,
        )  # fmt: skip

    def _run(self, end: float) -> None:
        connections, poll = self._connections, self._epoll.poll
        while (left := end - time.monotonic()) > 0:
            for fd, event in poll(left, EVENTS):
                connection = connections[fd]
                if event & ~select.EPOLLOUT:
                    self._receive(fd, connection)
                if event & select.EPOLLOUT and fd in connections:
                    self._send(connection)

    def _receive(self, fd: int, connection: _Connection) -> None:
        try:
            data = connection.socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._ended += 1
            del self._connections[fd]
            connection.socket.close()
            return
        at = (connection.received + connection.offset) % self._message_bytes
        if data != self._pattern[at : at + len(data)]:
            raise WrongEcho(f"{len(data)} bytes after {connection.received} are not those that were sent")
        connection.received += len(data)
        self._received += len(data)
        if 0 < connection.marked_byte <= connection.received:
            self._trips.append(time.monotonic() - connection.marked_at)
            connection.marked_byte = 0
        self._send(connection)

    def _send(self, connection: _Connection) -> None:
        """Fill the window with whole messages."""
        size = self._message_bytes
        due = connection.received // size * size + self._window_bytes - connection.sent
        if due <= 0:
            return
        at = (connection.sent + connection.offset) % size
        try:
            sent = connection.socket.send(self._view[at : at + due])
        except BlockingIOError:
            sent = 0
        except OSError:
            return  # the read will tell
        connection.sent += sent
        if not connection.marked_byte and sent:
            connection.marked_byte = connection.sent
            connection.marked_at = time.monotonic()
        if sent < due:
            self._epoll.modify(connection.socket.fileno(), select.EPOLLIN | select.EPOLLOUT)
            connection.is_blocked = True
        elif connection.is_blocked:
            self._epoll.modify(connection.socket.fileno(), select.EPOLLIN)
            connection.is_blocked = False
