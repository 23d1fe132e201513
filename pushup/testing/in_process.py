"""A server in the process of a test: all of it except for sockets, the reactor and the time.

Its client's connections are sockets in memory, so requests and responses are the same bytes as with a real server.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from typing import Any, TypeVar, cast

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from pushup.backends.webhook import payload
from pushup.client import AsyncClient, Client
from pushup.client.asyncio_driver import AsyncioDriver
from pushup.client.driver import STEP_SECONDS, BlockingDriver, Connection, Driver
from pushup.core.channel import Message
from pushup.core.webhooks import Webhook
from pushup.host.host import Host
from pushup.parts import make_broadcast, make_node
from pushup.service import PushUpService
from pushup.settings.settings import read_settings
from pushup.testing.in_memory import InMemoryDemultiplexer, InMemoryListeningSocket, InMemoryReactor, InMemorySocket
from pushup.testing.recorder import SETTINGS

T = TypeVar("T")

URL = "unix:in-process"
"""For clients that are given one of the drivers; it leads nowhere else."""


class InProcess:
    """A running server with these settings (docs/operate/settings.md), by their names. Several threads may use it.

    Its time stands still, unless a client waits: a blocking client's waits end at once, because time passes up to
    their end; those of an asyncio client take as long as they say, as do those of `Client.answer` in the background.
    `advance` lets time pass for all.
    """

    def __init__(self, **settings: object) -> None:
        """Raises: SettingsError."""
        self._lock = threading.RLock()
        self._reactor = _Reactor()
        self._demultiplexer = InMemoryDemultiplexer()
        self._listening = InMemoryListeningSocket()
        self._waiting: set[Callable[[], None]] = set()
        self._waits = 0  # of asyncio clients
        self._passed_at = 0.0  # by the clock outside: until then time has passed here, too
        chosen = read_settings(flags={**SETTINGS, **settings})
        self._began = time.time()
        host = _Host(self._reactor, self._demultiplexer, wall=self._wall, uptime=self.now)
        broadcast = make_broadcast(chosen, host)
        node = make_node(chosen, host, broadcast)
        self._service = PushUpService(
            chosen, host, broadcast, node,
            open_sockets=lambda addresses: [cast(socket.socket, self._listening)],
        )  # fmt: skip
        node.webhook_caller.use(self._call, 1000)
        self._service.startService()
        self.webhooks: list[Any] = []
        """What a server would have sent to its `webhook_url`, which need not be set: the body of each call."""
        self.driver: Driver = _Blocking(self)
        """For `Client(URL, driver=...)`. To stop a client stops its driver."""
        self.asyncio_driver: Driver = _Asyncio(self)
        """For `AsyncClient(URL, driver=...)`."""

    def client(self, key: str | None = None, **options: Any) -> Client:
        """A blocking client, which is stopped alone; the options are those of `Client`."""
        return Client(URL, key, driver=_Blocking(self), **options)

    def async_client(self, key: str | None = None, **options: Any) -> AsyncClient:
        """One for asyncio."""
        return AsyncClient(URL, key, driver=_Asyncio(self), **options)

    def _wall(self) -> float:
        return self._began + self.now()

    def _call(self, row: Webhook, message: Message | None) -> Deferred[bool]:
        self.webhooks.append(json.loads(payload(row, message, int(self._wall()))))
        return succeed(True)

    def now(self) -> float:
        """Seconds since the start, as time passes here."""
        return self._reactor.seconds()

    def advance(self, seconds: float) -> None:
        """Let time pass; what is due meanwhile happens."""
        self.advance_to(self.now() + seconds)
        self.work()

    def advance_to(self, until: float) -> None:
        """Wakes clients only if the server does something: each of them would call `catch_up`."""
        with self._lock:
            while self.next_timer() <= until:
                self._reactor.pass_time(self.next_timer())
                self.work()
            self._reactor.pass_time(max(until, self.now()))

    def catch_up(self, waits: int = 0) -> None:
        """Let as much time pass as has passed outside since the last time, if an asyncio client waits.

        `waits`: 1 if another client begins to wait then, -1 if one has ended.
        """
        with self._lock:
            now = time.monotonic()
            passed, self._passed_at = now - self._passed_at, now
            if self._waits:
                self.advance_to(self.now() + passed)
            self._waits += waits

    def next_timer(self) -> float:
        """When the server does something by itself; infinite if never."""
        with self._lock:
            return min((call.getTime() for call in self._reactor.getDelayedCalls()), default=float("inf"))

    def work(self) -> None:
        """Let the server do all that it can now, and wake whoever waits for it."""
        with self._lock:
            self._demultiplexer.run()
            waiting, self._waiting = self._waiting, set()
        for wake in waiting:
            wake()

    def wake_later(self, wake: Callable[[], None]) -> None:
        """Call this, once, after the server has worked again."""
        with self._lock:
            self._waiting.add(wake)

    def connect(self, wait: _Wait) -> Connection:
        with self._lock:
            sock = InMemorySocket()
            self._listening.queue.append(sock)
            for listener in self._reactor.getReaders():
                listener.doRead()
            return _Connection(self, sock, wait, self._lock)


class _Reactor(InMemoryReactor, Clock):
    """Who wants to read, and a clock."""

    def __init__(self) -> None:
        InMemoryReactor.__init__(self)
        Clock.__init__(self)

    def pass_time(self, until: float) -> None:
        self.rightNow = until  # exactly: a sum may be a little less
        self.advance(0)


class _Host(Host):
    """Leaves the process alone, which is that of the test."""

    def much_was_made(self) -> None:
        pass

    def connection_limit(self, wanted: int, backend_connections: int, operator_connections: int) -> tuple[int, int]:
        return wanted, operator_connections


_Wait = Callable[[float, Callable[[], bool]], Awaitable[None]]
"""Waits until the server has worked, or at most until this time of its clock; not if it has worked meanwhile, as the
function says. Raises: TimeoutError then; Stopped."""


class _Connection:
    def __init__(self, server: InProcess, sock: InMemorySocket, wait: _Wait, lock: AbstractContextManager[Any]) -> None:
        self._server = server
        self._socket = sock
        self._wait = wait
        self._lock = lock

    async def send(self, data: bytes, until: float) -> None:
        with self._lock:
            if self._socket.closed:
                raise BrokenPipeError("the server has closed the connection")
            self._socket.incoming += data
        self._server.work()

    async def receive(self, until: float) -> bytes:
        while not self._has_more():
            await self._wait(until, self._has_more)
        with self._lock:
            data = bytes(self._socket.outgoing)
            self._socket.outgoing.clear()
            return data

    def _has_more(self) -> bool:
        with self._lock:
            return bool(self._socket.outgoing or self._socket.closed or self._socket.shut)

    def close(self) -> None:
        with self._lock:
            if not self._socket.closed:
                self._socket.peer_ended = True
        self._server.work()


class _Blocking(BlockingDriver):
    """Nobody else can do anything while this thread waits, so time passes at once, to what is due next.

    While a thread in the background waits for the server, others can; then time passes as it does outside.
    """

    def __init__(self, server: InProcess) -> None:
        super().__init__()
        self._server = server

    def now(self) -> float:
        return self._server.now()

    async def sleep(self, seconds: float) -> None:
        self.step(float("inf"))
        self._server.advance(seconds)

    async def wait(self, future: Future[T], until: float) -> T:
        return await super().wait(future, time.monotonic() + until - self.now())

    async def connect(self, family: int, address: Any, tls: Any, host: str, until: float) -> Connection:
        return self._server.connect(self._wait)

    async def _wait(self, until: float, has_more: Callable[[], bool]) -> None:
        self.step(float("inf"))
        now = self.now()
        if now >= until:
            raise TimeoutError
        due = min(until, self._server.next_timer())
        if self.in_background:
            due = min(due, now + STEP_SECONDS)
            worked = threading.Event()
            self._server.wake_later(worked.set)
            if has_more() or worked.wait(due - now):
                return
        self._server.advance_to(due)


class _Asyncio(AsyncioDriver):
    """Other tasks go on while one waits. Time passes as it does outside, and with `advance`."""

    def __init__(self, server: InProcess) -> None:
        super().__init__()
        self._server = server

    def now(self) -> float:
        self._server.catch_up()
        return self._server.now()

    async def sleep(self, seconds: float) -> None:
        until = self.now() + seconds
        with suppress(TimeoutError):
            while True:
                await self._wait(until, lambda: False)

    @asynccontextmanager
    async def until(self, until: float) -> AsyncIterator[None]:
        """Inside this block, the server's time passes as real time does."""
        self._server.catch_up(waits=1)
        try:
            async with super().until(time.monotonic() + until - self._server.now()):
                yield
        finally:
            self._server.catch_up(waits=-1)

    async def connect(self, family: int, address: Any, tls: Any, host: str, until: float) -> Connection:
        return self._server.connect(self._wait)

    async def _wait(self, until: float, has_more: Callable[[], bool]) -> None:
        if self.now() >= until:
            raise TimeoutError
        loop = asyncio.get_running_loop()
        worked = asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(worked.set)

        self._server.wake_later(wake)
        if has_more():
            return
        due = min(until, self._server.next_timer())
        try:
            async with self.until(due):
                await worked.wait()
        except TimeoutError:
            self._server.advance_to(due)  # the timer may be a moment early
