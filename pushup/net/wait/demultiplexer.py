"""The demultiplexer waits for connections to become ready and reads them (Libman: "emulated proactor").

It reads, and hands the bytes to the connection. It does not write: it only reports that a connection is writable again.
Every strategy uses `read_from`, `write_to` and `make_call`. An unexpected error in them ends one connection, and is
logged.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import Protocol

from twisted.internet.interfaces import IDelayedCall, IReadDescriptor, IReadWriteDescriptor
from twisted.logger import Logger

from pushup.transport import SharedTransport

READ_LIMIT_BYTES = 64 * 1024
"""The most that one read takes."""

# `recv` allocates as much as it may read, and gives back what did not arrive. What is left of such a gap is taken by
# messages, which stay for minutes; the next read needs another gap, and so the heap grows.
_buffer = memoryview(bytearray(READ_LIMIT_BYTES))

_log = Logger(__name__)


class Watched(Protocol):
    """What a demultiplexer needs of a connection."""

    socket: socket.socket
    read_bytes: int
    """How many bytes to read at a time, at most READ_LIMIT_BYTES."""

    def received(self, data: bytes) -> None:
        """Bytes have arrived."""

    def ended(self) -> None:
        """The client has sent its last byte."""

    def writable(self) -> None:
        """The kernel accepts bytes again."""

    def lost(self) -> None:
        """The connection broke; may be called more than once."""


class Demultiplexer(Protocol):
    """Watches connections between `start` and `close`."""

    longest_turn: float
    """Seconds that the longest turn took since this was last set to 0; 0 for a strategy that does not know."""

    def start(self) -> None:
        """Register with the reactor."""

    def add(self, connection: Watched) -> None:
        """Watch a connection, for reading.

        Raises: OSError when the system can watch no more; the connection is then not watched.
        """

    def want(self, connection: Watched, *, reading: bool, writing: bool) -> None:
        """Change what a connection is watched for. A broken connection is reported in any case."""

    def remove(self, connection: Watched) -> None:
        """Stop watching a connection, whose socket must still be open."""

    def adopt(self, transport: IReadWriteDescriptor) -> SharedTransport:
        """Read and write a Twisted transport in the same turns as the connections."""

    def soon(self, call: Callable[[], None]) -> None:
        """Call this after everything read in this batch is handled, never immediately."""

    def in_turn(self, call: Callable[[], None]) -> None:
        """As `soon`, but in the order of all these calls, and only some of them after each batch."""

    def close(self) -> None:
        """Stop watching everything."""


class Reactor(Protocol):
    """What strategies use of the Twisted reactor: IReactorFDSet, IReactorTime, and `timeout` of ReactorBase."""

    def addReader(self, reader: IReadDescriptor) -> None: ...
    def removeReader(self, reader: IReadDescriptor) -> None: ...
    def addWriter(self, writer: IReadWriteDescriptor) -> None: ...
    def removeWriter(self, writer: IReadWriteDescriptor) -> None: ...
    def getReaders(self) -> Sequence[IReadDescriptor]: ...
    def callLater(self, delay: float, call: Callable[[], None], /) -> IDelayedCall: ...
    def timeout(self) -> float | None:
        """In how many seconds a timer is due; None if there is none."""


def read_from(connection: Watched) -> None:
    """Read what has arrived and hand it to the connection."""
    try:
        try:
            size = connection.socket.recv_into(_buffer, connection.read_bytes)
        except BlockingIOError:
            return
        except OSError:
            connection.lost()
            return
        if size:
            connection.received(_buffer[:size].tobytes())
        else:
            connection.ended()
    except Exception:
        _log.failure("error while reading a connection, which is closed; others are not affected")
        connection.lost()


def write_to(connection: Watched) -> None:
    """Let the connection write."""
    try:
        connection.writable()
    except Exception:
        _log.failure("error while writing to a connection, which is closed; others are not affected")
        connection.lost()


def make_call(deferred: Callable[[], None]) -> None:
    """Make a deferred call (`Demultiplexer.soon`)."""
    try:
        deferred()
    except Exception:
        _log.failure("deferred call failed")
