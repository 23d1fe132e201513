"""What a driver gives to the coroutines of the client; and the blocking driver, whose coroutines never suspend."""

from __future__ import annotations

import errno
import os
import random
import select
import socket
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from weakref import WeakSet

from pushup.client.values import Stopped

if TYPE_CHECKING:
    import ssl

STEP_SECONDS = 0.5
"""The longest wait in one system call. After each, `stop` and the deadline are looked at."""

RECEIVE_BYTES = 65536

T = TypeVar("T")

sockets: WeakSet[socket.socket] = WeakSet()
"""Those of all connections. After a fork they are the parent's. The child closes its copies first: when asyncio closed
a connection there, it would end TLS for both, and remove the socket from the selector, which both share."""

os.register_at_fork(after_in_child=lambda: [*map(socket.socket.close, sockets)])


class Connection(Protocol):
    """Bytes to and from a server. Waits end at `until`, on the driver's clock.

    Raises: TimeoutError then, Stopped after a stop, another OSError if the connection is broken.
    """

    async def send(self, data: bytes, until: float) -> None: ...

    async def receive(self, until: float) -> bytes:
        """Some bytes; none at the end."""

    def close(self) -> None: ...


class Driver(Protocol):
    """A clock, chance, and connections. Waits end as those of a Connection."""

    is_stopped: bool = False
    """Whether `stop` was called."""

    def now(self) -> float:
        """Monotonic seconds."""
        return time.monotonic()

    def random(self, longest: float) -> float:
        """A number from 0 to `longest`."""
        return random.uniform(0.0, longest)  # noqa: S311  # no secret

    async def sleep(self, seconds: float) -> None: ...

    def start(self, function: Callable[[], Any]) -> Future[Any]:
        """Call a function that may block, or hang. In an event loop it may be async."""

    def background(self, coroutine: Coroutine[Any, Any, None]) -> Future[None]:
        """Run a coroutine beside others, in a thread or a task. Who cancels the future ends its waits."""

    async def wait(self, future: Future[T], until: float) -> T: ...

    async def connect(
        self, family: int, address: Any, tls: ssl.SSLContext | None, host: str, until: float
    ) -> Connection:
        """Connect; with `tls`, to a server that can prove to be `host`."""

    def stop(self) -> None:
        """End all waits, now and later. For any thread, and for signal handlers."""


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that uses a blocking driver."""
    try:
        coroutine.send(None)
    except StopIteration as ended:
        result: T = ended.value
        return result
    coroutine.close()
    raise RuntimeError("a blocking driver must not suspend")


def in_thread(function: Callable[[], T]) -> Future[T]:
    """Call a function in a thread that does not keep the program from ending; or here, if no thread can be started."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # so that nobody can cancel it

    def call() -> None:
        try:
            future.set_result(function())
        except BaseException as error:  # whoever waits for the result raises it
            future.set_exception(error)

    try:
        threading.Thread(target=call, daemon=True).start()
    except RuntimeError:  # there are too many, or the program ends (Python 3.12.1)
        call()
    return future


class BlockingDriver(Driver):
    """Waits by blocking the thread, in steps: only a flag can be set safely by a signal handler."""

    def __init__(self) -> None:
        self._thread = threading.local()

    def stop(self) -> None:
        self.is_stopped = True

    async def sleep(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        try:
            while True:
                time.sleep(self.step(until))
        except TimeoutError:
            return

    def start(self, function: Callable[[], Any]) -> Future[Any]:
        return in_thread(function)

    def background(self, coroutine: Coroutine[Any, Any, None]) -> Future[None]:
        future: Future[None] = Future()

        def call() -> None:
            self._thread.future = future
            with suppress(Stopped):
                run(coroutine)
            with suppress(InvalidStateError):  # it was cancelled
                future.set_result(None)

        threading.Thread(target=call, daemon=True).start()
        return future

    @property
    def in_background(self) -> bool:
        """Whether the thread that asks is one of `background`."""
        return hasattr(self._thread, "future")

    async def wait(self, future: Future[T], until: float) -> T:
        while not future.done():
            seconds = self.step(until)
            with suppress(TimeoutError):
                future.exception(seconds)
        return future.result()

    async def connect(
        self, family: int, address: Any, tls: ssl.SSLContext | None, host: str, until: float
    ) -> Connection:
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            failed = sock.connect_ex(address)
            if failed == errno.EINPROGRESS:
                poll = select.poll()
                poll.register(sock, select.POLLOUT)
                while not poll.poll(1000 * self.step(until)):
                    pass
                failed = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if failed:
                raise OSError(failed, os.strerror(failed))
            if family != socket.AF_UNIX:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                sock = wrapped = tls.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
                self.in_steps(sock, until, wrapped.do_handshake)
            return BlockingConnection(self, sock)
        except BaseException:
            sock.close()
            raise

    def in_steps(self, sock: socket.socket, until: float, call: Callable[..., T], *given: Any) -> T:
        """Call a method of this socket, again while its wait lasts longer than a step. Raises: as `step`."""
        while True:
            sock.settimeout(self.step(until))
            try:
                return call(*given)
            except TimeoutError:
                continue

    def step(self, until: float) -> float:
        """How long to wait now, at most. Raises: TimeoutError if no longer; Stopped."""
        if self.is_stopped or (self.in_background and self._thread.future.cancelled()):
            raise Stopped
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return min(STEP_SECONDS, left)


class BlockingConnection:
    """A socket, of which no wait is longer than a step."""

    def __init__(self, driver: BlockingDriver, sock: socket.socket) -> None:
        self._driver = driver
        self._sock = sock
        sockets.add(sock)

    async def send(self, data: bytes, until: float) -> None:
        unsent = memoryview(data)
        while unsent:
            unsent = unsent[self._driver.in_steps(self._sock, until, self._sock.send, unsent) :]

    async def receive(self, until: float) -> bytes:
        return self._driver.in_steps(self._sock, until, self._sock.recv, RECEIVE_BYTES)

    def close(self) -> None:
        self._sock.close()
