"""The emulated proactor: waits like a reactor, but reads and writes itself ("Proposed solution").

One turn, in the paper's steps: wait for events (1), read into the handler's buffer (2), dispatch "read completed" (3)
to the handler, which processes (4). What Appendix II warns of is settled here, and no handler sees it:

- *Edge-triggered*: a socket whose input was not read to the end is not reported again. So a new read is tried without
  waiting, and only one that finds nothing waits for an event.
- *Level-triggered*: an event would be dispatched twice if its socket were still watched when the loop waits again. An
  operation is no longer pending when its handler is called, and a socket that is ready for an operation that nobody has
  started is not watched any longer. It is watched again when one is started.

What a handler starts is tried right after it returns, as a reactor's handler would do it; what a socket does not take
waits for an event. After `BURST` operations it is the next event's turn.
"""

from __future__ import annotations

import socket
from collections import deque

from loadtest.libman.channel import Accepted, AsynchChannel, Engine, OpRead, OpWrite
from loadtest.libman.wait.strategy import READ, READABLE, WRITABLE, WRITE, WaitStrategy

BURST = 64
"""Operations that may follow one event, or a client that sends without end would hold up all others."""


class EmulatedProactor:
    def __init__(self, wait: WaitStrategy) -> None:
        self._wait = wait
        self._edge = wait.edge_triggered
        self._channels: dict[int, AsynchChannel] = {}
        self._listeners: dict[int, tuple[socket.socket, Accepted]] = {}
        self._started: deque[OpRead | OpWrite] = deque()
        """What can be tried at once. An entry whose operation has been completed in the meantime means nothing."""

    def add(self, channel: AsynchChannel) -> None:
        channel.socket.setblocking(False)
        self._channels[channel.fd] = channel
        if self._edge:
            self._watch(channel, READ | WRITE)

    def remove(self, channel: AsynchChannel) -> None:
        self._watch(channel, 0)
        del self._channels[channel.fd]
        channel.socket.close()

    def start_read(self, op: OpRead) -> None:
        channel = op.channel
        if self._edge:
            self._started.append(op)
        elif not channel.watched & READ:
            self._watch(channel, channel.watched | READ)

    def start_write(self, op: OpWrite) -> None:
        self._started.append(op)

    def listen(self, listener: socket.socket, accepted: Accepted) -> None:
        listener.setblocking(False)
        self._listeners[listener.fileno()] = listener, accepted
        self._wait.watch(listener.fileno(), READ)

    def turn(self, timeout: float | None) -> None:
        started, channels = self._started, self._channels
        self._carry_out(len(started))
        for fd, mask in self._wait.wait(0.0 if started else timeout):
            channel = channels.get(fd)
            if channel is None:
                self._accept(fd)
                continue
            if mask & WRITABLE:
                self._now_writable(channel)
            if mask & READABLE and not channel.closed:
                self._now_readable(channel)
            if started:
                self._carry_out(BURST)

    def close(self) -> None:
        self._wait.close()

    def _carry_out(self, most: int) -> None:
        started = self._started
        for _ in range(most):
            if not started:
                return
            op = started.popleft()
            if op.pending:
                self._write(op) if isinstance(op, OpWrite) else self._read(op)

    def _now_readable(self, channel: AsynchChannel) -> None:
        if channel.op_read.pending:
            self._read(channel.op_read)
        elif not self._edge:
            self._watch(channel, channel.watched & ~READ)

    def _now_writable(self, channel: AsynchChannel) -> None:
        if channel.op_write.pending:
            self._write(channel.op_write)
        elif not self._edge:
            self._watch(channel, channel.watched & ~WRITE)

    def _read(self, op: OpRead) -> None:
        channel = op.channel
        try:
            op.bytes_completed = channel.socket.recv_into(op.buffer)
        except BlockingIOError:
            return
        except OSError as error:
            op.error = error
        op.pending = False
        channel.handler.read_completed(op)

    def _write(self, op: OpWrite) -> None:
        channel, done = op.channel, op.bytes_completed
        whole = done == 0 and op.length == len(op.buffer)
        try:
            op.bytes_completed += channel.socket.send(op.buffer if whole else memoryview(op.buffer)[done : op.length])
        except BlockingIOError:
            if not channel.watched & WRITE:
                self._watch(channel, channel.watched | WRITE)
            return
        except OSError as error:
            op.error = error
        else:
            if op.bytes_completed < op.length:
                self._started.append(op)
                return
        op.pending = False
        channel.handler.write_completed(op)

    def _accept(self, fd: int) -> None:
        listener, accepted = self._listeners.get(fd, (None, None))
        while listener and accepted:  # otherwise an event before this one ended the channel
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            accepted(connection)

    def _watch(self, channel: AsynchChannel, mask: int) -> None:
        if channel.watched != mask:
            channel.watched = mask
            self._wait.watch(channel.fd, mask)


_check: type[Engine] = EmulatedProactor
