"""The demultiplexer: waits for connections to become ready and does their reading (Libman: "emulated proactor").

It reads, and hands the bytes to the connection; it tells when a connection is writable again. How it waits is a
strategy, and the two are interchangeable:

- `reactor`: each connection is a reader of the Twisted reactor. Runs wherever Twisted does.
- `epoll`: one `select.epoll` of our own is ONE reader of the reactor, and is drained in batches. The default on Linux:
  a connection costs no reactor objects, and an event no pass through the reactor's dispatch.
"""

from __future__ import annotations

import select
from typing import Protocol

from twisted.internet.interfaces import IReactorFDSet, IReadDescriptor, IReadWriteDescriptor
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from pushup.net.connection import Connection

READ_BYTES = 64 * 1024
"""What one read takes at most; a client that sends more is read again after the others."""

BATCH = 256
"""Events handled in one turn of the reactor: about 5 ms of work, so that timers and other readers get their turn."""


class Demultiplexer(Protocol):
    """Watches connections."""

    def add(self, connection: Connection) -> None:
        """Begin to watch, for reading."""

    def want(self, connection: Connection, *, reading: bool, writing: bool) -> None:
        """Change what is watched for. That the connection broke is reported whatever is wanted."""

    def remove(self, connection: Connection) -> None:
        """Stop watching; the socket must still be open."""

    def close(self) -> None:
        """Stop watching anything."""


_log = Logger()


def _read(connection: Connection) -> None:
    """Read what is there and hand it on. An error in here ends this connection and no other."""
    try:
        try:
            data = connection.socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            connection.lost()
            return
        if data:
            connection.received(data)
        else:
            connection.ended()
    except Exception:
        _log.failure("a connection failed while it was read")
        connection.lost()


def _write(connection: Connection) -> None:
    try:
        connection.writable()
    except Exception:
        _log.failure("a connection failed while it was written")
        connection.lost()


_BROKEN = 0x008 | 0x010  # EPOLLERR | EPOLLHUP, by number: `select` has no epoll on every system


@implementer(IReadDescriptor)
class EpollDemultiplexer:
    """The `epoll` strategy."""

    def __init__(self, reactor: IReactorFDSet) -> None:
        self._reactor = reactor
        self._epoll = select.epoll()
        self._connections: dict[int, Connection] = {}
        reactor.addReader(self)

    def add(self, connection: Connection) -> None:
        fd = connection.socket.fileno()
        self._connections[fd] = connection
        self._epoll.register(fd, select.EPOLLIN)

    def want(self, connection: Connection, *, reading: bool, writing: bool) -> None:
        mask = (select.EPOLLIN if reading else 0) | (select.EPOLLOUT if writing else 0)
        self._epoll.modify(connection.socket.fileno(), mask)

    def remove(self, connection: Connection) -> None:
        fd = connection.socket.fileno()
        del self._connections[fd]
        self._epoll.unregister(fd)

    def close(self) -> None:
        self._reactor.removeReader(self)
        self._epoll.close()

    # What the reactor calls.

    def fileno(self) -> int:
        return self._epoll.fileno()

    def doRead(self) -> None:
        """Handle one batch. What is left makes the epoll readable again."""
        connections = self._connections
        for fd, events in self._epoll.poll(0, BATCH):
            connection = connections.get(fd)
            if connection is None:
                continue  # closed by another event of this batch
            if events & select.EPOLLOUT:
                _write(connection)
            if events & select.EPOLLIN:
                _read(connection)
            elif events & _BROKEN:
                connection.lost()

    def connectionLost(self, reason: Failure) -> None:
        """The reactor gives up; never happens to an epoll."""

    def logPrefix(self) -> str:
        return "epoll"


@implementer(IReadWriteDescriptor)
class _Watched:
    """A connection as the Twisted reactor wants one."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._fd = connection.socket.fileno()

    def fileno(self) -> int:
        return self._fd

    def doRead(self) -> None:
        _read(self._connection)

    def doWrite(self) -> None:
        _write(self._connection)

    def connectionLost(self, reason: Failure) -> None:
        self._connection.lost()

    def logPrefix(self) -> str:
        return "connection"


class ReactorDemultiplexer:
    """The `reactor` strategy."""

    def __init__(self, reactor: IReactorFDSet) -> None:
        self._reactor = reactor
        self._watched: dict[Connection, _Watched] = {}

    def add(self, connection: Connection) -> None:
        watched = self._watched[connection] = _Watched(connection)
        self._reactor.addReader(watched)

    def want(self, connection: Connection, *, reading: bool, writing: bool) -> None:
        watched = self._watched[connection]
        (self._reactor.addReader if reading else self._reactor.removeReader)(watched)
        (self._reactor.addWriter if writing else self._reactor.removeWriter)(watched)

    def remove(self, connection: Connection) -> None:
        watched = self._watched.pop(connection)
        self._reactor.removeReader(watched)
        self._reactor.removeWriter(watched)

    def close(self) -> None:
        for connection in list(self._watched):
            self.remove(connection)


STRATEGIES: dict[str, type[EpollDemultiplexer] | type[ReactorDemultiplexer]] = {"reactor": ReactorDemultiplexer}
if hasattr(select, "epoll"):
    STRATEGIES["epoll"] = EpollDemultiplexer
"""The wait strategies of this system, by the name of the setting."""

_check_reactor: type[Demultiplexer] = ReactorDemultiplexer
_check_epoll: type[Demultiplexer] = EpollDemultiplexer
