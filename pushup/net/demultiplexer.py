"""The demultiplexer: waits for connections to become ready and does their reading (Libman: "emulated proactor").

It reads, and hands the bytes to the connection; it tells when a connection is writable again. How it waits is a
strategy, and the two are interchangeable:

- `reactor`: each connection is a reader of the Twisted reactor. Runs wherever Twisted does.
- `epoll`: one `select.epoll` of our own is ONE reader of the reactor, and is drained in batches. The default on Linux:
  a connection costs no reactor objects, and an event no pass through the reactor's dispatch.
"""

from __future__ import annotations

import select
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any, Protocol

from twisted.internet.interfaces import IDelayedCall, IReadDescriptor, IReadWriteDescriptor
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from pushup.net.connection import Connection

BATCH = 256
"""Events taken from the epoll at a time: about 4 ms of work."""

TURN_SECONDS = 0.005
"""How long batches are handled before the reactor's other readers and its timers get their turn."""

LINGER_SECONDS = 0.001
"""How long, in a turn, the next batch is waited for when turns follow each other faster than that anyway. Under load
most of what a batch sets off, answers that are polled for again say, comes back within it, and saves a turn of the
reactor, 20 us. (An epoll in Python waits in whole milliseconds.)"""


class Demultiplexer(Protocol):
    """Watches connections."""

    def add(self, connection: Connection) -> None:
        """Begin to watch, for reading.

        Raises: OSError when the system watches no more; then nothing is kept.
        """

    def want(self, connection: Connection, *, reading: bool, writing: bool) -> None:
        """Change what is watched for. That the connection broke is reported whatever is wanted."""

    def remove(self, connection: Connection) -> None:
        """Stop watching; the socket must still be open."""

    def adopt(self, transport: IReadWriteDescriptor) -> Adopted:
        """Let a transport of Twisted's be read and written in the same turns as the connections are."""

    def soon(self, call: Callable[[], None]) -> None:
        """Call this once what has been read by now is handled; not at once."""

    def close(self) -> None:
        """Stop watching anything."""


class Adopted(Protocol):
    """A transport of Twisted's that is read and written with the connections."""

    def flush_soon(self) -> None:
        """What was written to it goes out at the end of this batch."""

    def release(self) -> None:
        """The transport has ended."""


class Reactor(Protocol):
    """What is used of the Twisted reactor (IReactorFDSet and IReactorTime)."""

    def addReader(self, reader: IReadDescriptor) -> None: ...
    def removeReader(self, reader: IReadDescriptor) -> None: ...
    def addWriter(self, writer: IReadWriteDescriptor) -> None: ...
    def removeWriter(self, writer: IReadWriteDescriptor) -> None: ...
    def callLater(self, delay: float, call: Callable[[], None], /) -> IDelayedCall: ...


_log = Logger()


def _read(connection: Connection) -> None:
    """Read what is there and hand it on. An error in here ends this connection and no other."""
    try:
        try:
            data = connection.socket.recv(connection.read_bytes)
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


def _call(call: Callable[[], None]) -> None:
    try:
        call()
    except Exception:
        _log.failure("what was to be done soon failed")


class _AdoptedByEpoll:
    """A turn may linger; what it waits for may be on its way by this transport, in either direction."""

    def __init__(self, demultiplexer: EpollDemultiplexer, transport: Any) -> None:
        self._demultiplexer = demultiplexer
        self._transport = transport
        self.fd: int = transport.fileno()
        self._flushing = False

    def read(self) -> None:
        """Read what is there. How it ends is the reactor's matter, which finds the same."""
        if self._transport.doRead():
            self.give_back()

    def give_back(self) -> None:
        """From here on the reactor reads it."""
        self.release()
        self._transport.startReading()

    def flush_soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            self._demultiplexer.soon(self._flush)

    def release(self) -> None:
        self._demultiplexer.release(self)

    def _flush(self) -> None:
        self._flushing = False
        if self._transport.connected:
            self._transport.doWrite()


@implementer(IReadDescriptor)
class EpollDemultiplexer:
    """The `epoll` strategy."""

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._epoll = select.epoll()
        self._soon: list[Callable[[], None]] = []
        self._turning = False
        self._last_turn = 0.0
        self._connections: dict[int, Connection] = {}
        self._adopted: dict[int, _AdoptedByEpoll] = {}
        reactor.addReader(self)

    def add(self, connection: Connection) -> None:
        fd = connection.socket.fileno()
        self._epoll.register(fd, select.EPOLLIN)
        self._connections[fd] = connection

    def want(self, connection: Connection, *, reading: bool, writing: bool) -> None:
        mask = (select.EPOLLIN if reading else 0) | (select.EPOLLOUT if writing else 0)
        self._epoll.modify(connection.socket.fileno(), mask)

    def remove(self, connection: Connection) -> None:
        fd = connection.socket.fileno()
        del self._connections[fd]
        self._epoll.unregister(fd)

    def adopt(self, transport: Any) -> _AdoptedByEpoll:
        adopted = _AdoptedByEpoll(self, transport)
        self._epoll.register(adopted.fd, select.EPOLLIN)
        self._adopted[adopted.fd] = adopted
        transport.stopReading()
        return adopted

    def release(self, adopted: _AdoptedByEpoll) -> None:
        if self._adopted.get(adopted.fd) is adopted:
            del self._adopted[adopted.fd]
            with suppress(OSError):  # a closed file is not watched any more
                self._epoll.unregister(adopted.fd)

    def soon(self, call: Callable[[], None]) -> None:
        self._soon.append(call)
        if not self._turning and len(self._soon) == 1:
            self._reactor.callLater(0, self.doRead)

    def close(self) -> None:
        for adopted in list(self._adopted.values()):
            adopted.give_back()
        self._reactor.removeReader(self)
        self._epoll.close()

    # What the reactor calls.

    def fileno(self) -> int:
        return self._epoll.fileno()

    def doRead(self) -> None:
        """Handle batch after batch for a while. What is left makes the epoll readable again."""
        if self._epoll.closed:
            return
        poll = self._epoll.poll
        began = monotonic()
        end = began + TURN_SECONDS
        wait = LINGER_SECONDS if began - self._last_turn < LINGER_SECONDS else 0.0
        self._turning = True
        events = poll(0, BATCH)
        while events or self._soon:
            self._handle(events)
            calls, self._soon = self._soon, []
            for call in calls:
                _call(call)
            if monotonic() > end:
                break
            events = poll(0 if self._soon or len(events) == BATCH else wait, BATCH)
        self._turning = False
        self._last_turn = monotonic()
        if self._soon:
            self._reactor.callLater(0, self.doRead)

    def _handle(self, events: list[tuple[int, int]]) -> None:
        connections = self._connections
        for fd, event in events:
            connection = connections.get(fd)
            if connection is None:
                if fd in self._adopted:
                    _call(self._adopted[fd].read)
                continue  # or closed by another event of this batch
            if event & select.EPOLLOUT:
                _write(connection)
            if event & select.EPOLLIN:
                _read(connection)
            elif event & _BROKEN:
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


class _LeftToReactor:
    """Where the reactor does everything, it does this, too."""

    def flush_soon(self) -> None:
        pass

    def release(self) -> None:
        pass


class ReactorDemultiplexer:
    """The `reactor` strategy."""

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._watched: dict[Connection, _Watched] = {}

    def add(self, connection: Connection) -> None:
        watched = _Watched(connection)
        self._reactor.addReader(watched)
        self._watched[connection] = watched

    def want(self, connection: Connection, *, reading: bool, writing: bool) -> None:
        watched = self._watched[connection]
        (self._reactor.addReader if reading else self._reactor.removeReader)(watched)
        (self._reactor.addWriter if writing else self._reactor.removeWriter)(watched)

    def remove(self, connection: Connection) -> None:
        watched = self._watched.pop(connection)
        self._reactor.removeReader(watched)
        self._reactor.removeWriter(watched)

    def adopt(self, transport: IReadWriteDescriptor) -> Adopted:
        return _LeftToReactor()

    def soon(self, call: Callable[[], None]) -> None:
        self._reactor.callLater(0, call)

    def close(self) -> None:
        for connection in list(self._watched):
            self.remove(connection)


STRATEGIES: dict[str, type[EpollDemultiplexer] | type[ReactorDemultiplexer]] = {"reactor": ReactorDemultiplexer}
if hasattr(select, "epoll"):
    STRATEGIES["epoll"] = EpollDemultiplexer
"""The wait strategies of this system, by the name of the setting."""

_check_reactor: type[Demultiplexer] = ReactorDemultiplexer
_check_epoll: type[Demultiplexer] = EpollDemultiplexer
