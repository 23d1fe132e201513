"""The transport of a link between two processes: a socket that the demultiplexer drives, like those of clients.

Twisted's own transport for Unix sockets takes another turn of the reactor for each write.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress

from twisted.internet.error import ConnectionAborted, ConnectionDone, ConnectionLost
from twisted.python.failure import Failure

from pushup.net.wait.demultiplexer import READ_LIMIT_BYTES, Demultiplexer, Watched
from pushup.transport.framed_link import Link

FULL_BYTES = 64 * 1024
"""What may wait for the kernel before the link is told to pause."""


class SocketTransport:
    """Reads and writes one connected socket, as a link expects of its transport."""

    read_bytes = READ_LIMIT_BYTES

    def __init__(self, sock: socket.socket, link: Link, demultiplexer: Demultiplexer) -> None:
        sock.setblocking(False)
        self.socket = sock
        self._link = link
        self._demultiplexer = demultiplexer
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0
        self._is_flushing = False  # whether `_flush` is going to be called
        self._is_blocked = False  # until the kernel accepts bytes again
        self._is_paused = False
        self._is_reading = True
        self._is_lost = False  # and not watched, until what it has sent can be read
        self._is_closing = False
        self._is_closed = False
        demultiplexer.add(self)
        link.makeConnection(self)  # type: ignore[no-untyped-call]

    # What the link calls.

    def write(self, data: bytes) -> None:
        """Send this with everything else of this batch."""
        if self._is_closed:
            return
        self._unsent.append(data)
        self._unsent_bytes += len(data)
        if self._unsent_bytes > FULL_BYTES and not self._is_paused:
            self._is_paused = True
            self._link.pauseProducing()
        self.flush_soon()

    def flush_soon(self) -> None:
        """Send at the end of this batch of events; the link may add to it then."""
        if not self._is_flushing and not self._is_blocked:
            self._is_flushing = True
            self._demultiplexer.soon(self._flush)

    def pauseProducing(self) -> None:
        self._is_reading = False
        self._want()

    def resumeProducing(self) -> None:
        self._is_reading = True
        self._want()

    def loseConnection(self) -> None:
        """End it when everything is sent."""
        self._is_closing = True
        self.flush_soon()

    def abortConnection(self) -> None:
        self._unsent.clear()
        self._demultiplexer.soon(lambda: self._end(ConnectionAborted()))

    # What the demultiplexer calls.

    def received(self, data: bytes) -> None:
        self._link.dataReceived(data)

    def ended(self) -> None:
        self._end(ConnectionDone())

    def writable(self) -> None:
        self._is_blocked = False
        self._want()
        self._flush()

    def lost(self) -> None:
        if self._is_reading:
            self._end(ConnectionLost())
        elif not (self._is_lost or self._is_closed):
            self._is_lost = True
            self._demultiplexer.remove(self)

    def _flush(self) -> None:
        if self._is_closed:
            return
        self._is_flushing = True  # what the link adds is sent below
        try:
            self._link.guarded(self._link.on_flush)
        finally:
            self._is_flushing = False
        if self._unsent:
            data = self._unsent[0] if len(self._unsent) == 1 else b"".join(self._unsent)
            try:
                sent = self.socket.send(data)
            except BlockingIOError:
                sent = 0
            except (BrokenPipeError, ConnectionResetError):
                sent = len(data)  # the other end is closed; what it has sent before is still read
            except OSError as error:
                self._link.abort(f"writing to it failed: {error.strerror}")
                return
            self._unsent = [data[sent:]] if sent < len(data) else []
            self._unsent_bytes = len(data) - sent
        if self._unsent:
            self._is_blocked = True
            self._want()
        elif self._is_closing:
            self._end(ConnectionDone())
        elif self._is_paused:
            self._is_paused = False
            self._link.resumeProducing()

    def _want(self) -> None:
        if self._is_closed or (self._is_lost and not self._is_reading):
            return
        with suppress(ValueError):  # the demultiplexer is closed: this process is about to exit
            if self._is_lost:
                self._demultiplexer.add(self)
                self._is_lost = False
            self._demultiplexer.want(self, reading=self._is_reading, writing=self._is_blocked)

    def _end(self, reason: Exception) -> None:
        if not self._is_closed:
            self._is_closed = True
            if not self._is_lost:
                self._demultiplexer.remove(self)
            self.socket.close()
            self._link.connectionLost(Failure(reason))  # type: ignore[no-untyped-call]


_check: Callable[[SocketTransport], Watched] = lambda transport: transport  # noqa: E731
