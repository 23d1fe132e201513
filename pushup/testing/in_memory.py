"""In-memory sockets, a reactor and a demultiplexer."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from itertools import count
from typing import cast

from twisted.internet.interfaces import IReactorFDSet, IReadDescriptor, IWriteDescriptor
from zope.interface import implementer

from pushup.net.wait.demultiplexer import Demultiplexer, Watched
from pushup.transport import SharedTransport

_numbers = count(100)


class InMemorySocket:
    """The server's end of a connection. `capacity`: how many more bytes the kernel accepts; None for any number."""

    def __init__(self, capacity: int | None = None) -> None:
        self.capacity = capacity
        self.incoming = bytearray()
        self.outgoing = bytearray()
        self.peer_ended = False
        self.broken = False
        self.shut = False
        self.closed = False
        self._fd = next(_numbers)

    @property
    def readable(self) -> bool:
        return bool(self.incoming or self.peer_ended or self.broken)

    @property
    def writable(self) -> bool:
        return self.capacity is None or self.capacity > 0 or self.broken

    def recv_into(self, buffer: memoryview, most: int) -> int:
        assert not self.closed
        if self.broken:
            raise ConnectionResetError("reset by the client")
        if not self.incoming and not self.peer_ended:
            raise BlockingIOError
        size = min(len(self.incoming), most)
        buffer[:size] = self.incoming[:size]
        del self.incoming[:size]
        return size

    def send(self, data: bytes | memoryview) -> int:
        assert not self.closed
        if self.broken or self.shut:
            raise BrokenPipeError("nobody there")
        size = len(data) if self.capacity is None else min(len(data), self.capacity)
        if data and not size:
            raise BlockingIOError
        if self.capacity is not None:
            self.capacity -= size
        self.outgoing += data[:size]
        return size

    def shutdown(self, how: int) -> None:
        assert how == socket.SHUT_WR
        if self.broken:
            raise OSError("not connected")
        self.shut = True

    def getsockopt(self, level: int, option: int) -> int:
        assert (level, option) == (socket.SOL_SOCKET, socket.SO_ERROR)
        return errno.ECONNRESET if self.broken else 0

    def getpeername(self) -> tuple[str, int]:
        return "127.0.0.1", 50000

    def setblocking(self, flag: bool) -> None:
        assert not flag

    def fileno(self) -> int:
        return -1 if self.closed else self._fd

    def close(self) -> None:
        self.closed = True


class InMemoryListeningSocket:
    """Accepts the sockets in `queue`, and raises the errors in it."""

    family = socket.AF_INET

    def __init__(self) -> None:
        self.queue: list[InMemorySocket | OSError] = []
        self.closed = False

    def accept(self) -> tuple[InMemorySocket, tuple[str, int]]:
        if not self.queue:
            raise BlockingIOError
        first = self.queue.pop(0)
        if isinstance(first, OSError):
            raise first
        return first, ("127.0.0.1", 50000)

    def getsockname(self) -> tuple[str, int]:
        return "127.0.0.1", 8080

    def fileno(self) -> int:
        return 3

    def close(self) -> None:
        self.closed = True


@implementer(IReactorFDSet)
class InMemoryReactor:
    """Records who wants to read and write, and never calls them."""

    def __init__(self) -> None:
        self.readers: list[IReadDescriptor] = []
        self.writers: list[IWriteDescriptor] = []

    def addReader(self, reader: IReadDescriptor) -> None:
        if reader not in self.readers:
            self.readers.append(reader)

    def removeReader(self, reader: IReadDescriptor) -> None:
        if reader in self.readers:
            self.readers.remove(reader)

    def addWriter(self, writer: IWriteDescriptor) -> None:
        if writer not in self.writers:
            self.writers.append(writer)

    def removeWriter(self, writer: IWriteDescriptor) -> None:
        if writer in self.writers:
            self.writers.remove(writer)

    def removeAll(self) -> list[IReadDescriptor | IWriteDescriptor]:
        raise NotImplementedError

    def getReaders(self) -> list[IReadDescriptor]:
        return list(self.readers)

    def getWriters(self) -> list[IWriteDescriptor]:
        return list(self.writers)


class InMemoryDemultiplexer:
    """Watches in-memory sockets; a `turn` handles each connection that is ready, once, and then the deferred calls."""

    def __init__(self) -> None:
        self.longest_turn = 0.0
        self.wanted: dict[Watched, tuple[bool, bool]] = {}
        self._soon: list[Callable[[], None]] = []

    def start(self) -> None:
        pass

    def add(self, connection: Watched) -> None:
        assert connection not in self.wanted
        self.wanted[connection] = (True, False)

    def want(self, connection: Watched, *, reading: bool, writing: bool) -> None:
        assert connection in self.wanted, "not watched, or not any more"
        self.wanted[connection] = (reading, writing)

    def remove(self, connection: Watched) -> None:
        assert connection.socket.fileno() >= 0, "the socket must still be open"
        del self.wanted[connection]

    def adopt(self, transport: object) -> SharedTransport:
        raise AssertionError("there is no transport of Twisted's here")

    def soon(self, call: Callable[[], None]) -> None:
        self._soon.append(call)

    in_turn = soon

    def close(self) -> None:
        assert not self.wanted, "still watching"

    def turn(self) -> bool:
        """Handle each ready connection once, then the deferred calls; returns whether there was anything to do."""
        busy = bool(self._soon)
        for connection in list(self.wanted):
            reading, writing = self.wanted.get(connection, (False, False))
            sock = cast(InMemorySocket, connection.socket)
            if writing and sock.writable:
                busy = True
                connection.writable()
            if connection in self.wanted and reading and sock.readable:
                busy = True
                _read(connection)
            elif connection in self.wanted and sock.broken:
                busy = True
                connection.lost()
        calls, self._soon = self._soon, []
        for call in calls:
            call()
        return busy

    def run(self) -> None:
        """Repeat `turn` until there is nothing to do."""
        for _ in range(10_000):
            if not self.turn():
                return
        raise AssertionError("it does not come to rest")


def _read(connection: Watched) -> None:
    buffer = memoryview(bytearray(connection.read_bytes))
    try:
        size = connection.socket.recv_into(buffer, connection.read_bytes)
    except OSError:
        connection.lost()
        return
    if size:
        connection.received(buffer[:size].tobytes())
    else:
        connection.ended()


_check: type[Demultiplexer] = InMemoryDemultiplexer
