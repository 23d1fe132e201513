"""The proactor's interface, as the paper's example uses it ("User code example").

A handler starts a read or a write on its channel, with its own buffer. The engine calls it when that is completed:
`read_completed` when some bytes have arrived, `write_completed` when all have been sent. A channel has at most one read
and one write under way, and their two objects are used again for the next.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any, Protocol


class Operation:
    """A read or write. While it is `pending` its buffer belongs to the engine."""

    __slots__ = ("buffer", "bytes_completed", "channel", "error", "in_flight", "number", "pending", "pinned")

    def __init__(self, channel: AsynchChannel) -> None:
        self.channel = channel
        self.buffer = bytearray()
        self.bytes_completed = 0
        self.error: OSError | None = None
        """Why it failed, if it did."""
        self.pending = False
        """Whether the handler has still to be told."""
        self.number = 0
        self.in_flight = False
        self.pinned: Any = None
        """The engine's own, like the two before."""


class OpRead(Operation):
    """A read of at most as many bytes as the buffer has; 0 bytes completed: the peer has sent its last one."""

    __slots__ = ()


class OpWrite(Operation):
    """A write of the first `length` bytes of the buffer, all of them."""

    __slots__ = ("length",)

    def __init__(self, channel: AsynchChannel) -> None:
        super().__init__(channel)
        self.length = 0


class AsynchHandler(Protocol):
    """What the developer writes."""

    def read_completed(self, op: OpRead) -> None: ...

    def write_completed(self, op: OpWrite) -> None: ...


class AsynchChannel:
    """A connected socket of an engine, which closes it. `closed`: no handler is called any more."""

    __slots__ = ("closed", "engine", "fd", "handler",
                 "op_read", "op_write", "socket", "watched")  # fmt: skip

    def __init__(self, engine: Engine, handler: AsynchHandler, sock: socket.socket) -> None:
        self.engine = engine
        self.handler = handler
        self.socket = sock
        self.fd = sock.fileno()
        self.op_read = OpRead(self)
        self.op_write = OpWrite(self)
        self.closed = False
        self.watched = 0
        """What a wait strategy watches it for; the engine's own."""
        engine.add(self)

    def read(self, buffer: bytearray) -> None:
        """Start a read into this buffer. Raises: ValueError if one is under way, or the channel is closed."""
        op = self.op_read
        self._begin(op, buffer)
        self.engine.start_read(op)

    def write(self, buffer: bytearray, length: int) -> None:
        """Start a write of the buffer's first `length` bytes. Raises: ValueError as `read` does."""
        op = self.op_write
        self._begin(op, buffer)
        op.length = length
        self.engine.start_write(op)

    def _begin(self, op: Operation, buffer: bytearray) -> None:
        if op.pending or self.closed:
            raise ValueError("the channel is closed" if self.closed else "one such operation is already under way")
        op.buffer = buffer
        op.bytes_completed = 0
        op.error = None
        op.pending = True

    def close(self) -> None:
        """Close the connection; what is under way is given up without a call."""
        if not self.closed:
            self.closed = True
            self.op_read.pending = self.op_write.pending = False
            self.engine.remove(self)


Accepted = Callable[[socket.socket], None]
"""Called with each new connection."""


class Engine(Protocol):
    """A proactor: it carries out operations, and calls a channel's handler with those that are completed."""

    def add(self, channel: AsynchChannel) -> None: ...

    def remove(self, channel: AsynchChannel) -> None:
        """Close the channel's socket once nothing of it is under way."""

    def start_read(self, op: OpRead) -> None: ...

    def start_write(self, op: OpWrite) -> None: ...

    def listen(self, listener: socket.socket, accepted: Accepted) -> None:
        """Accept connections from now on."""

    def turn(self, timeout: float | None) -> None:
        """Wait this many seconds (None: as long as it takes), and call the handlers of what is completed."""

    def close(self) -> None:
        """Give up everything. Sockets stay open."""
