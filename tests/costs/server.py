"""A whole server in this process: its edge, API, node and demultiplexer are real, the operating system is not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest
from twisted.internet.interfaces import IDelayedCall

from pushup.net.wait import epoll
from pushup.net.wait.demultiplexer import Watched
from pushup.testing.in_memory import InMemoryDemultiplexer, InMemoryReactor, InMemorySocket
from tests.backends.stepped_threads import ThreadClock
from tests.net.in_memory_node import InMemoryNode
from tests.net.in_memory_server import START, Client, InMemoryServer

READABLE, WRITABLE = 1, 4


class _Kernel:
    """What the demultiplexer sees of the operating system: an epoll, its file number, and the time."""

    EPOLLIN, EPOLLOUT = READABLE, WRITABLE

    def __init__(self) -> None:
        self.closed = False
        self.now = 0.0
        self.sockets: dict[int, InMemorySocket] = {}
        self.ready: dict[int, None] = {}
        """Sockets for which something has arrived."""
        self.soon: list[Callable[[], None]] = []
        """What the reactor is to call in its next turn."""

    def epoll(self) -> _Kernel:
        return self

    def monotonic(self) -> float:
        return self.now

    def register(self, fd: int, mask: int) -> None:
        assert mask == READABLE

    def unregister(self, fd: int) -> None:
        del self.sockets[fd]

    def fileno(self) -> int:
        return 4

    def close(self) -> None:
        self.closed = True

    def poll(self, timeout: float, most: int) -> list[tuple[int, int]]:
        self.ready = {fd: None for fd in self.ready if fd in self.sockets and self.sockets[fd].readable}
        return [(fd, READABLE) for fd in list(self.ready)[:most]]


class _Reactor(InMemoryReactor):
    def __init__(self, kernel: _Kernel) -> None:
        super().__init__()
        self._kernel = kernel

    def callLater(self, delay: float, call: Callable[[], None], /) -> IDelayedCall:
        self._kernel.soon.append(call)
        return cast(IDelayedCall, None)

    def timeout(self) -> float | None:
        return None


class _Demultiplexer(InMemoryDemultiplexer):
    """The `epoll` strategy, the default, above that kernel; each turn of the reactor comes long after the last."""

    def __init__(self, kernel: _Kernel) -> None:
        super().__init__()
        self._kernel = kernel
        self._epoll = epoll.EpollDemultiplexer(_Reactor(kernel))
        self._epoll.start()

    def add(self, connection: Watched) -> None:
        sock = cast(InMemorySocket, connection.socket)
        self._kernel.sockets[sock.fileno()] = sock
        self._epoll.add(connection)

    def want(self, connection: Watched, *, reading: bool, writing: bool) -> None:
        raise AssertionError("no client here is slow")

    def remove(self, connection: Watched) -> None:
        self._epoll.remove(connection)

    def soon(self, call: Callable[[], None]) -> None:
        self._epoll.soon(call)

    def turn(self) -> bool:
        kernel = self._kernel
        kernel.now += 1.0
        calls, kernel.soon = kernel.soon, []
        for call in calls:
            call()
        is_busy = bool(calls or kernel.ready)
        if kernel.ready:
            self._epoll.doRead()
        return is_busy


class CountedServer:
    """A server, and clients that get its answers at once."""

    def __init__(self, kernel: _Kernel, clock: ThreadClock, **parts: Any) -> None:
        """`parts` are those of the node."""
        self._kernel = kernel
        self.clock = clock
        self.demultiplexer = _Demultiplexer(kernel)
        self.node = InMemoryNode(clock=self.clock, soon=self.demultiplexer.soon, **parts)
        self.server = InMemoryServer(self.node.api, clock=self.clock, demultiplexer=self.demultiplexer)
        self.advance(0.5)  # so that no deadline falls on what is done once a second

    @property
    def cursor(self) -> str:
        """The cursor of a client that has seen everything."""
        return str(self.node.state.cursor)

    def connect(self, count: int) -> list[Client]:
        return [self.server.connect() for _ in range(count)]

    def send(self, clients: Iterable[Client], requests: Iterable[bytes]) -> None:
        """Send each client's request; all of them arrive at the same time."""
        for client, request in zip(clients, requests, strict=True):
            client.socket.incoming += request
            self._kernel.ready[client.socket.fileno()] = None
        self.demultiplexer.run()

    def end(self, clients: Iterable[Client]) -> None:
        """Each client closes its connection."""
        for client in clients:
            client.socket.peer_ended = True
            self._kernel.ready[client.socket.fileno()] = None
        self.demultiplexer.run()

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.demultiplexer.run()


@contextmanager
def server(clock: ThreadClock | None = None, **parts: Any) -> Iterator[CountedServer]:
    """A server whose node has these parts."""
    kernel = _Kernel()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(epoll, "select", kernel)
        patch.setattr(epoll, "monotonic", kernel.monotonic)
        yield CountedServer(kernel, clock or make_clock(), **parts)


def make_clock() -> ThreadClock:
    clock = ThreadClock()
    clock.advance(START)
    return clock
