"""The true asynchronous proactor: the kernel reads into the handler's buffer and writes from it (io_uring).

What is written short is continued here, as in the emulated proactor. A buffer stays in its place from the start of an
operation until the kernel has completed it, also if the channel is closed in the meantime: shutting the socket down
makes the kernel complete what is under way, and only then is it closed and its buffers are let go.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
from itertools import count

from loadtest.libman.channel import Accepted, AsynchChannel, Engine, Operation, OpRead, OpWrite
from loadtest.libman.engines.ring import ACCEPT, RECV, SEND, Ring

ACCEPTS = 64
"""Under way at a time: with one of them, a turn with thousands of messages would accept one connection."""


class UringProactor:
    """Raises: OSError if this system has no io_uring, or does not let this process use it."""

    def __init__(self, ring: Ring | None = None) -> None:
        self._ring = ring or Ring()
        self._numbers = count(1)
        self._operations: dict[int, OpRead | OpWrite] = {}
        self._listeners: dict[int, tuple[socket.socket, Accepted]] = {}

    def add(self, channel: AsynchChannel) -> None:
        channel.socket.setblocking(True)  # of a non-blocking one the kernel would say at once that it is not ready
        for op in (channel.op_read, channel.op_write):
            op.number = next(self._numbers)
            self._operations[op.number] = op

    def remove(self, channel: AsynchChannel) -> None:
        if channel.op_read.in_flight or channel.op_write.in_flight:
            try:
                channel.socket.shutdown(socket.SHUT_RDWR)
            except OSError as error:
                if error.errno != errno.ENOTCONN:
                    raise
        else:
            self._forget(channel)

    def start_read(self, op: OpRead) -> None:
        op.in_flight = True
        self._ring.prepare(RECV, op.channel.fd, _address(op), len(op.buffer), 0, op.number)

    def start_write(self, op: OpWrite) -> None:
        op.in_flight = True
        done = op.bytes_completed
        address, length = _address(op) + done, op.length - done
        self._ring.prepare(SEND, op.channel.fd, address, length, socket.MSG_NOSIGNAL, op.number)

    def listen(self, listener: socket.socket, accepted: Accepted) -> None:
        listener.setblocking(True)
        number = next(self._numbers)
        self._listeners[number] = listener, accepted
        for _ in range(ACCEPTS):
            self._accept(number)

    def turn(self, timeout: float | None) -> None:
        operations = self._operations
        for number, result in self._ring.wait(timeout):
            op = operations.get(number)
            if op is None:
                self._accepted(number, result)
                continue
            op.in_flight = False
            channel = op.channel
            if channel.closed:
                if not (channel.op_read.in_flight or channel.op_write.in_flight):
                    self._forget(channel)
            elif result < 0:
                op.error = OSError(-result, os.strerror(-result))
                _complete(op)
            else:
                op.bytes_completed += result
                if isinstance(op, OpWrite) and op.bytes_completed < op.length:
                    self.start_write(op)
                else:
                    _complete(op)

    def close(self) -> None:
        self._ring.close()

    def _forget(self, channel: AsynchChannel) -> None:
        for op in (channel.op_read, channel.op_write):
            del self._operations[op.number]
            op.pinned = None
        channel.socket.close()

    def _accept(self, number: int) -> None:
        self._ring.prepare(ACCEPT, self._listeners[number][0].fileno(), 0, 0, 0, number)

    def _accepted(self, number: int, result: int) -> None:
        _, accepted = self._listeners[number]
        self._accept(number)
        if result >= 0:
            accepted(socket.socket(fileno=result))


def _complete(op: OpRead | OpWrite) -> None:
    op.pending = False
    if isinstance(op, OpWrite):
        op.channel.handler.write_completed(op)
    else:
        op.channel.handler.read_completed(op)


def _address(op: Operation) -> int:
    """The address of its buffer, which cannot be resized from now on, until the next operation has another one."""
    if op.pinned is None or op.pinned[0] is not op.buffer:
        array = (ctypes.c_char * len(op.buffer)).from_buffer(op.buffer)
        op.pinned = op.buffer, array, ctypes.addressof(array)
    address: int = op.pinned[2]
    return address


_check: type[Engine] = UringProactor
