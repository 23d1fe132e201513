"""The driver for asyncio. Whoever cancels a task that waits for the client ends the wait at once."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, TypeVar

from pushup.client.driver import RECEIVE_BYTES, Connection, Driver, in_thread, sockets
from pushup.client.values import Stopped

if TYPE_CHECKING:
    import ssl

T = TypeVar("T")


class AsyncioDriver(Driver):
    """Waits in the event loop that runs."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waits: set[asyncio.Timeout] = set()

    def stop(self) -> None:
        self.is_stopped = True
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._end_waits)

    def _end_waits(self) -> None:
        for wait in self._waits:
            if not wait.expired():
                wait.reschedule(0.0)

    @asynccontextmanager
    async def until(self, until: float) -> AsyncIterator[None]:
        """End what is awaited inside. Raises: TimeoutError at this time; Stopped."""
        self._loop = asyncio.get_running_loop()  # before the look at `is_stopped`: another thread may stop now
        if self.is_stopped:
            raise Stopped
        try:
            async with asyncio.timeout(until - time.monotonic()) as wait:
                self._waits.add(wait)
                try:
                    yield
                finally:
                    self._waits.discard(wait)
        except TimeoutError:
            if self.is_stopped:
                raise Stopped from None
            raise

    async def sleep(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with self.until(time.monotonic() + seconds):
                await asyncio.get_running_loop().create_future()

    def start(self, function: Callable[[], Any]) -> Future[Any]:
        async def call() -> Any:
            value = await asyncio.wrap_future(in_thread(function))
            return await value if isawaitable(value) else value

        return self.background(call())

    def background(self, coroutine: Coroutine[Any, Any, None]) -> Future[None]:
        return asyncio.run_coroutine_threadsafe(coroutine, asyncio.get_running_loop())

    async def wait(self, future: Future[T], until: float) -> T:
        async with self.until(until):
            return await asyncio.shield(asyncio.wrap_future(future))  # others may wait for it, too

    async def connect(
        self, family: int, address: Any, tls: ssl.SSLContext | None, host: str, until: float
    ) -> Connection:
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            async with self.until(until):
                if family == socket.AF_UNIX:
                    sock.connect(address)  # at once: asyncio takes EAGAIN, a full backlog, for connected in the end
                else:
                    await asyncio.get_running_loop().sock_connect(sock, address)
                reader, writer = await asyncio.open_connection(
                    sock=sock, ssl=tls, server_hostname=host if tls is not None else None
                )
            return AsyncioConnection(self, sock, reader, writer)
        except BaseException:
            sock.close()
            raise


class AsyncioConnection:
    """A pair of asyncio's streams."""

    def __init__(
        self, driver: AsyncioDriver, sock: socket.socket, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._driver = driver
        self._sock = sock
        self._reader = reader
        self._writer = writer
        self._loop = asyncio.get_running_loop()
        sockets.add(sock)

    def _until(self, until: float) -> AbstractAsyncContextManager[None]:
        if asyncio.get_running_loop() is not self._loop:
            raise ConnectionAbortedError("the connection is of another event loop")
        return self._driver.until(until)

    async def send(self, data: bytes, until: float) -> None:
        async with self._until(until):
            self._writer.write(data)
            await self._writer.drain()

    async def receive(self, until: float) -> bytes:
        async with self._until(until):
            return await self._reader.read(RECEIVE_BYTES)

    def close(self) -> None:
        try:
            self._writer.transport.abort()
        except RuntimeError:  # the loop is closed, so it cannot close the socket
            self._sock.close()
