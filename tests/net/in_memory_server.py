"""A server without a network, and clients for it.

Time is a `Clock`. A client's bytes reach the edge as real ones do: through an accepted socket, the demultiplexer that
reads it, and the connection.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from typing import NamedTuple, cast

from twisted.internet.task import Clock

from pushup.metrics import Metrics
from pushup.net.application_interface import Application
from pushup.net.edge import Edge
from pushup.net.edge_limits import EdgeLimits, RequestLimits
from pushup.net.proxies import TrustedProxies
from pushup.testing.in_memory import InMemoryDemultiplexer, InMemoryListeningSocket, InMemoryReactor, InMemorySocket

START = 1_800_000_000.0
"""When the clocks of these tests start, seconds since the epoch: 2027-01-15T08:00:00Z."""


class Reply(NamedTuple):
    """A response as a client reads it; header names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


def read_replies(data: bytes, heads: Iterable[int] = ()) -> list[Reply]:
    """All responses in these bytes, which must be complete; those numbered in `heads` answer a HEAD request."""
    replies: list[Reply] = []
    without_body = set(heads)
    while data:
        head, end, data = data.partition(b"\r\n\r\n")
        assert end, f"incomplete: {head!r}"
        line, *fields = head.decode("latin-1").split("\r\n")
        version, status, _ = line.split(" ", 2)
        assert version == "HTTP/1.1"
        headers = {name.lower(): value for name, value in (field.split(": ", 1) for field in fields)}
        assert len(headers) == len(fields), f"duplicate header: {fields}"
        size = 0 if len(replies) in without_body or status == "100" else int(headers.get("content-length", "0"))
        assert len(data) >= size, f"incomplete: {data!r}"
        replies.append(Reply(int(status), headers, data[:size]))
        data = data[size:]
    return replies


class Client:
    """The client's end of a connection."""

    def __init__(self, sock: InMemorySocket, run: Callable[[], None]) -> None:
        self.socket = sock
        self._run = run

    def send(self, data: bytes) -> None:
        self.socket.incoming += data
        self._run()

    def end(self) -> None:
        """Close the sending side."""
        self.socket.peer_ended = True
        self._run()

    def reset(self) -> None:
        """Reset the connection."""
        self.socket.broken = True
        self._run()

    def read(self, size: int | None) -> None:
        """Make room for `size` more bytes; None for any number from now on."""
        if size is None or self.socket.capacity is None:
            self.socket.capacity = size
        else:
            self.socket.capacity += size
        self._run()

    def take(self) -> bytes:
        """The bytes that have arrived since the last call."""
        data = bytes(self.socket.outgoing)
        self.socket.outgoing.clear()
        return data

    def replies(self, heads: Iterable[int] = ()) -> list[Reply]:
        """The responses that have arrived since the last call."""
        return read_replies(self.take(), heads)

    def reply(self, *, head: bool = False) -> Reply:
        """The one response that has arrived."""
        (reply,) = self.replies([0] if head else [])
        return reply

    def closed(self) -> bool:
        """Whether the server has closed the connection."""
        return self.socket.closed

    def server_half_closed(self) -> bool:
        """Whether the server has closed its sending side."""
        return self.socket.shut or self.socket.closed


class InMemoryServer:
    """An edge with in-memory parts, in front of an application."""

    def __init__(
        self,
        application: Application,
        *,
        clock: Clock | None = None,
        demultiplexer: InMemoryDemultiplexer | None = None,
        limits: EdgeLimits | None = None,
        request_limits: RequestLimits | None = None,
        proxies: TrustedProxies | None = None,
    ) -> None:
        self.clock = clock or make_clock()
        self.wall: Callable[[], float] = self.clock.seconds
        """Seconds since the epoch, for the Date header."""
        self.demultiplexer = demultiplexer or InMemoryDemultiplexer()
        self.metrics = Metrics()
        self.reactor = InMemoryReactor()
        self.edge = Edge(
            application=application,
            demultiplexer=self.demultiplexer,
            reactor=self.reactor,
            clock=self.clock,
            wall=lambda: self.wall(),
            limits=limits or EdgeLimits(),
            request_limits=request_limits or RequestLimits(),
            metrics=self.metrics,
            proxies=proxies,
        )
        self.edge.start()
        self.listening = InMemoryListeningSocket()
        self.edge.listen(cast(socket.socket, self.listening))

    def connect(self, capacity: int | None = None) -> Client:
        sock = InMemorySocket(capacity)
        self.listening.queue.append(sock)
        (listener,) = self.reactor.readers
        listener.doRead()
        return Client(sock, self.demultiplexer.run)

    def advance(self, seconds: float, step: float = 1.0) -> None:
        """Let time pass, in steps small enough for every sweep to run."""
        for _ in range(round(seconds / step)):
            self.clock.advance(step)
            self.demultiplexer.run()


def make_clock() -> Clock:
    clock = Clock()
    clock.advance(START)
    return clock
