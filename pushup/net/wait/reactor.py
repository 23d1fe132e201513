"""The `reactor` strategy: each connection is a reader of the Twisted reactor. Runs wherever Twisted does."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IReadWriteDescriptor
from twisted.python.failure import Failure
from zope.interface import implementer

from pushup.net.wait.demultiplexer import Demultiplexer, Reactor, Watched, read_from, write_to
from pushup.transport import SharedTransport


@implementer(IReadWriteDescriptor)
class _Descriptor:
    """A connection in the form that the Twisted reactor takes."""

    def __init__(self, connection: Watched) -> None:
        self._connection = connection
        self._fd = connection.socket.fileno()

    def fileno(self) -> int:
        return self._fd

    def doRead(self) -> None:
        read_from(self._connection)

    def doWrite(self) -> None:
        write_to(self._connection)

    def connectionLost(self, reason: Failure) -> None:
        self._connection.lost()

    def logPrefix(self) -> str:
        return "connection"


class _LeftToReactor:
    """The reactor reads and writes everything here, this transport included."""

    def flush_soon(self) -> None:
        pass

    def release(self) -> None:
        pass


class ReactorDemultiplexer:
    """The `reactor` strategy."""

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self.longest_turn = 0.0
        self._descriptors: dict[Watched, _Descriptor] = {}

    def start(self) -> None:
        pass

    def add(self, connection: Watched) -> None:
        descriptor = _Descriptor(connection)
        self._reactor.addReader(descriptor)
        self._descriptors[connection] = descriptor

    def want(self, connection: Watched, *, reading: bool, writing: bool) -> None:
        descriptor = self._descriptors[connection]
        (self._reactor.addReader if reading else self._reactor.removeReader)(descriptor)
        (self._reactor.addWriter if writing else self._reactor.removeWriter)(descriptor)

    def remove(self, connection: Watched) -> None:
        descriptor = self._descriptors.pop(connection)
        self._reactor.removeReader(descriptor)
        self._reactor.removeWriter(descriptor)

    def adopt(self, transport: IReadWriteDescriptor) -> SharedTransport:
        return _LeftToReactor()

    def soon(self, call: Callable[[], None]) -> None:
        self._reactor.callLater(0, call)

    in_turn = soon

    def close(self) -> None:
        for connection in list(self._descriptors):
            self.remove(connection)


_check: type[Demultiplexer] = ReactorDemultiplexer
