"""The echo server as the developer writes it: twice, which is what the paper wants to end."""

from __future__ import annotations

import socket

from loadtest.libman.channel import AsynchChannel, Engine, OpRead, OpWrite
from loadtest.libman.engines.reactor import Reactor
from loadtest.libman.wait.strategy import READ, WRITE


class EchoServerProtocol:
    """The paper's example, for any proactor: what has been read is written, and when it is written the next is read."""

    def __init__(self, engine: Engine, sock: socket.socket, buffer_bytes: int) -> None:
        self._buffer = bytearray(buffer_bytes)
        self._channel = AsynchChannel(engine, self, sock)

    def start(self) -> None:
        self._channel.read(self._buffer)

    def read_completed(self, op: OpRead) -> None:
        if op.error is not None or op.bytes_completed == 0:
            self._channel.close()
            return
        self._channel.write(op.buffer, op.bytes_completed)

    def write_completed(self, op: OpWrite) -> None:
        if op.error is not None:
            self._channel.close()
            return
        self._channel.read(op.buffer)


class ReactiveEcho:
    """The same for a reactor. It reads and writes itself, remembers what is left to write, and says what it waits for.

    `drains`: on each event it goes on until a read finds nothing, as an edge-triggered wait strategy demands
    (Appendix II). Otherwise it reads once.
    """

    def __init__(self, reactor: Reactor, sock: socket.socket, buffer_bytes: int, *, drains: bool) -> None:
        sock.setblocking(False)
        self._reactor = reactor
        self._socket = sock
        self._buffer = bytearray(buffer_bytes)
        self._unsent = memoryview(b"")
        self._drains = drains
        reactor.watch(sock.fileno(), self, READ | WRITE if drains else READ)

    def ready_to_read(self) -> None:
        sock, buffer = self._socket, self._buffer
        while not self._unsent or self._flush():
            try:
                size = sock.recv_into(buffer)
            except BlockingIOError:
                return
            except OSError:
                size = 0
            if not size:
                self._close()
                return
            try:
                sent = sock.send(buffer if size == len(buffer) else memoryview(buffer)[:size])
            except BlockingIOError:
                sent = 0
            except OSError:
                self._close()
                return
            if sent < size:
                self._unsent = memoryview(buffer)[sent:size]
            elif not self._drains:
                return

    def ready_to_write(self) -> None:
        if self._unsent:
            self.ready_to_read()

    def _flush(self) -> bool:
        """Write what is left. Returns False if the socket does not take all of it, or is broken."""
        try:
            while self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
        except BlockingIOError:
            self._wait_for(WRITE)
            return False
        except OSError:
            self._close()
            return False
        self._wait_for(READ)
        return True

    def _wait_for(self, mask: int) -> None:
        if not self._drains:
            self._reactor.watch(self._socket.fileno(), self, mask)

    def _close(self) -> None:
        self._unsent = memoryview(b"")
        self._reactor.watch(self._socket.fileno(), self, 0)
        self._socket.close()


class ReactiveAcceptor:
    """Accepts what connects to a listener, and echoes on each connection."""

    def __init__(self, reactor: Reactor, listener: socket.socket, buffer_bytes: int, *, drains: bool) -> None:
        listener.setblocking(False)
        self._reactor = reactor
        self._listener = listener
        self._buffer_bytes = buffer_bytes
        self._drains = drains
        reactor.watch(listener.fileno(), self, READ)

    def ready_to_read(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            ReactiveEcho(self._reactor, connection, self._buffer_bytes, drains=self._drains)

    def ready_to_write(self) -> None:
        pass
