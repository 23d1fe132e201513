"""What the real `net` package and the real Redis connection use instead of the operating system's sockets."""

from __future__ import annotations

import errno
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, cast

from twisted.internet.error import ConnectionAborted, ConnectionDone, ConnectionLost
from twisted.python.failure import Failure

from pushup.net.wait.demultiplexer import Demultiplexer, Watched, make_call, read_from, write_to
from pushup.transport import SharedTransport
from pushup.transport.framed_link import Link
from tests.simulation.network import End
from tests.simulation.world import Process


class SimulatedSocket:
    """A socket that was accepted: the server's end of a connection."""

    def __init__(self, end: End, number: int) -> None:
        self.end = end
        self.incoming = bytearray()
        self.peer_ended = False
        self.broken = False
        self._number = number
        self._closed = False
        self.ready: Callable[[], None] = lambda: None
        """Called when it becomes readable, writable or broken."""
        end.on_data = self._received
        end.on_end = self._ended
        end.on_lost = self._lost
        end.on_room = lambda: self.ready()

    def _received(self, data: bytes) -> None:
        self.incoming += data
        self.ready()

    def _ended(self) -> None:
        self.peer_ended = True
        self.ready()

    def _lost(self) -> None:
        self.broken = True
        self.ready()

    @property
    def readable(self) -> bool:
        return bool(self.incoming or self.peer_ended or self.broken)

    @property
    def writable(self) -> bool:
        return self.broken or self.end.room > 0

    def recv_into(self, buffer: memoryview, most: int) -> int:
        if self.broken:
            raise ConnectionResetError
        if not self.incoming and not self.peer_ended:
            raise BlockingIOError
        size = min(len(self.incoming), most)
        buffer[:size] = self.incoming[:size]
        del self.incoming[:size]
        return size

    def send(self, data: bytes | memoryview) -> int:
        if self.broken:
            raise BrokenPipeError
        size = min(len(data), self.end.room)
        if not size:
            raise BlockingIOError
        self.end.send(bytes(data[:size]))
        return size

    def shutdown(self, how: int) -> None:
        if self.broken:
            raise OSError("not connected")
        self.end.end()

    def getsockopt(self, level: int, option: int) -> int:
        return errno.ECONNRESET if self.broken else 0

    def getpeername(self) -> tuple[str, int]:
        return "127.0.0.1", 40000

    def setblocking(self, flag: bool) -> None:
        """It never blocks."""

    def fileno(self) -> int:
        return -1 if self._closed else self._number

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.ready = lambda: None
            if self.incoming and not self.broken:
                self.end.reset()  # as TCP does when something was left unread
            else:
                self.end.close()


class ListeningSocket:
    """Gives the accepted sockets to the listener."""

    family = socket.AF_INET

    def __init__(self, name: str) -> None:
        self.queue: deque[SimulatedSocket] = deque()
        self._name = name

    def accept(self) -> tuple[SimulatedSocket, tuple[str, int]]:
        if not self.queue:
            raise BlockingIOError
        return self.queue.popleft(), ("127.0.0.1", 40000)

    def getsockname(self) -> tuple[str, int]:
        return self._name, 8080

    def fileno(self) -> int:
        return 3

    def close(self) -> None:
        while self.queue:
            self.queue.popleft().close()


class SimulatedDemultiplexer:
    """Each connection that is ready is one turn; so is each round of deferred calls."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.longest_turn = 0.0
        self._wanted: dict[Watched, tuple[bool, bool]] = {}
        self._soon: list[Callable[[], None]] = []

    def start(self) -> None:
        pass

    def add(self, connection: Watched) -> None:
        sock = cast(SimulatedSocket, connection.socket)
        sock.ready = lambda: self._serve(connection)
        self.want(connection, reading=True, writing=False)

    def want(self, connection: Watched, *, reading: bool, writing: bool) -> None:
        self._wanted[connection] = (reading, writing)
        sock = cast(SimulatedSocket, connection.socket)
        if (reading and sock.readable) or (writing and sock.writable):
            self._process.later(0, lambda: self._serve(connection))

    def remove(self, connection: Watched) -> None:
        del self._wanted[connection]

    def adopt(self, transport: object) -> SharedTransport:
        raise AssertionError("there is no transport of Twisted's here")

    def soon(self, call: Callable[[], None]) -> None:
        self._soon.append(call)
        if len(self._soon) == 1:
            self._process.later(0, self._call)

    in_turn = soon

    def _call(self) -> None:
        calls, self._soon = self._soon, []
        for call in calls:
            make_call(call)

    def close(self) -> None:
        assert not self._wanted, "still watching"

    def _serve(self, connection: Watched) -> None:
        """One turn for a connection; another follows while it stays ready."""
        sock = cast(SimulatedSocket, connection.socket)
        if connection in self._wanted and self._wanted[connection][1] and sock.writable:
            write_to(connection)
        reading, _ = self._wanted.get(connection, (False, False))
        if reading and sock.readable:
            read_from(connection)
            if self._wanted.get(connection, (False, False))[0] and sock.readable:
                self._process.later(0, lambda: self._serve(connection))
        elif connection in self._wanted and sock.broken:
            connection.lost()


class SimulatedTransport:
    """The transport of a Redis connection, or of a link to another process; that is told to pause."""

    def __init__(self, end: End, protocol: Any) -> None:
        self._end = end
        self._protocol = protocol
        self._is_lost = False
        self._is_full = False
        end.on_data = self._received
        end.on_room = self._has_room
        end.on_end = lambda: self._lose(ConnectionDone())
        end.on_lost = lambda: self._lose(ConnectionLost())
        protocol.makeConnection(self)

    def write(self, data: bytes) -> None:
        if not self._is_lost:
            self._end.send(data)
            if not self._end.room and not self._is_full and isinstance(self._protocol, Link):
                self._is_full = True
                self._protocol.pauseProducing()

    def flush_soon(self) -> None:
        if self._end.process is not None:
            self._end.process.later(0, self._protocol.on_flush)

    def _has_room(self) -> None:
        if self._is_full and not self._is_lost:
            self._is_full = False
            self._protocol.resumeProducing()

    def registerProducer(self, producer: object, streaming: bool) -> None:
        """The producer is the protocol."""

    def pauseProducing(self) -> None:
        self._end.read(False)

    def resumeProducing(self) -> None:
        self._end.read()

    def loseConnection(self) -> None:
        process = self._end.process
        if not self._is_lost and process is not None and process.alive:
            self._end.end()
            process.later(0, lambda: self._lose(ConnectionDone()))

    def abortConnection(self) -> None:
        process = self._end.process
        if not self._is_lost and process is not None and process.alive:
            self._end.reset()
            process.later(0, lambda: self._lose(ConnectionAborted()))

    def _received(self, data: bytes) -> None:
        if not self._is_lost:
            self._protocol.dataReceived(data)

    def _lose(self, reason: Exception) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._end.close()
            self._protocol.connectionLost(Failure(reason))  # type: ignore[no-untyped-call]


_check: type[Demultiplexer] = SimulatedDemultiplexer
