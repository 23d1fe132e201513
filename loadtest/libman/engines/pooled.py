"""Calls a proactor's handlers in a pool of threads ("executed on a thread pool space provided by TProactor").

It goes around any proactor. The engine itself stays in its one thread: operations that handlers start in other threads
are handed over, and a byte on a socket of its own ends the engine's wait. Handlers of one channel never run at the
same time as long as they start one operation each, as an echo server does.
"""

from __future__ import annotations

import socket
import sys
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import get_ident
from typing import Any

from loadtest.libman.channel import Accepted, AsynchChannel, AsynchHandler, Engine, OpRead, OpWrite


class PooledProactor:
    """An engine around another one, which must be used by one thread only: the one that calls `turn`."""

    def __init__(self, engine: Engine, threads: int) -> None:
        self._engine = engine
        self._pool = ThreadPoolExecutor(threads, "handlers")
        self._calls: deque[Callable[[], None]] = deque()
        self._thread = get_ident()
        wakeup, self._wake = socket.socketpair()
        self._wake.setblocking(False)
        self._waker = _Waker(engine, wakeup)

    def add(self, channel: AsynchChannel) -> None:
        channel.handler = _InPool(self._pool, channel.handler)
        self._engine.add(channel)

    def remove(self, channel: AsynchChannel) -> None:
        self._do(lambda: self._engine.remove(channel))

    def start_read(self, op: OpRead) -> None:
        self._do(lambda: self._engine.start_read(op) if op.pending else None)  # or its channel was closed meanwhile

    def start_write(self, op: OpWrite) -> None:
        self._do(lambda: self._engine.start_write(op) if op.pending else None)

    def listen(self, listener: socket.socket, accepted: Accepted) -> None:
        self._engine.listen(listener, accepted)

    def turn(self, timeout: float | None) -> None:
        self._waker.is_awake = True
        while self._calls:
            self._calls.popleft()()
        self._waker.is_awake = False
        self._engine.turn(0.0 if self._calls else timeout)

    def close(self) -> None:
        """Also waits for handlers that are being called."""
        self._pool.shutdown()
        self.turn(0.0)
        self._waker.channel.close()
        self._engine.turn(0.0)
        self._wake.close()
        self._engine.close()

    def _do(self, call: Callable[[], None]) -> None:
        if get_ident() == self._thread:
            call()
            return
        self._calls.append(call)
        if not self._waker.is_awake:
            self._waker.is_awake = True
            self._wake.send(b"x")


class _InPool:
    """A handler that is called in the pool."""

    def __init__(self, pool: ThreadPoolExecutor, handler: AsynchHandler) -> None:
        self._pool = pool
        self._handler = handler

    def read_completed(self, op: OpRead) -> None:
        self._pool.submit(_call, self._handler.read_completed, op)

    def write_completed(self, op: OpWrite) -> None:
        self._pool.submit(_call, self._handler.write_completed, op)


def _call(completed: Callable[[Any], None], op: Any) -> None:
    """Call a handler. The pool would keep its errors for somebody who asks, and nobody does."""
    try:
        completed(op)
    except Exception:
        sys.excepthook(*sys.exc_info())


class _Waker:
    """Reads the bytes that end the engine's wait. `is_awake`: one is on its way, or is not needed."""

    def __init__(self, engine: Engine, sock: socket.socket) -> None:
        self.is_awake = False
        self._buffer = bytearray(64)
        self.channel = AsynchChannel(engine, self, sock)
        self.channel.read(self._buffer)

    def read_completed(self, op: OpRead) -> None:
        self.channel.read(self._buffer)

    def write_completed(self, op: OpWrite) -> None:
        pass


_check: type[Engine] = PooledProactor
