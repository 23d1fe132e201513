"""A helper pool: blocking calls to one backend, in threads (Hsu §4.3, helper processes with a thread per connection).

For a database with 20 connections, use a pool of 20: each thread keeps one connection in a `threading.local`, so there
are never more. A thread that is idle for a while ends and releases its connection.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import Thread
from typing import Any, ParamSpec, Protocol, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool
from twisted.python.threadpool import ThreadPool

from pushup.backends.limited_service import LimitedService, ServiceLimits
from pushup.clock import Timer
from pushup.metrics import BackendCounters

T = TypeVar("T")
P = ParamSpec("P")

IDLE_SECONDS = 30.0
"""Idle time after which a thread ends."""


class Threads(Protocol):
    """The part of Twisted's `ThreadPool` that is used."""

    @property
    def workers(self) -> int: ...
    def start(self) -> None: ...
    def stopAWorker(self) -> None: ...
    def callInThreadWithCallback(
        self, result: Callable[[bool, Any], object] | None, function: Callable[..., Any], /, *args: Any, **kw: Any
    ) -> None: ...


class _Threads(ThreadPool):
    """Twisted's thread pool, without its leak of threads that have ended (twisted#4770).

    The threads are daemons, so one that hangs in a backend cannot keep the process from exiting.
    """

    threadFactory = staticmethod(partial(Thread, daemon=True))  # type: ignore[assignment]  # noqa: N815

    def stopAWorker(self) -> None:
        super().stopAWorker()
        self.threads[:] = [thread for thread in self.threads if thread.is_alive()]


class HelperPool:
    """Runs blocking calls in at most `limits.at_most` threads.

    A call that runs past its deadline fails for its caller. Its thread cannot be stopped, and is free again only when
    the call has returned.
    """

    def __init__(
        self,
        name: str,
        limits: ServiceLimits,
        *,
        reactor: Any,
        counters: BackendCounters,
        threads: Threads | None = None,
    ) -> None:
        """`reactor` is an IReactorTime and IReactorFromThreads; `threads` is a pool of its own unless given."""
        self._reactor = reactor
        self._service = LimitedService(name, limits, clock=reactor, give_up=lambda _: None, counters=counters)
        self._threads = threads or _Threads(0, limits.at_most, name)
        self._threads.start()
        self._most_busy = 0
        self._stopped = False
        self._idle = Timer(reactor, self._stop_idle_threads)

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        """Call a blocking function in a thread; see `LimitedService.call` for how it fails."""
        result: Deferred[T] = self._service.call(
            lambda: deferToThreadPool(self._reactor, self._threads, function, *args, **kwargs)  # type: ignore[arg-type]
        )
        self._most_busy = max(self._most_busy, self._service.busy)
        if not self._stopped:
            self._idle.not_after(self._reactor.seconds() + IDLE_SECONDS)
        return result

    def stop(self) -> None:
        """Start no more calls; each thread ends when its call has returned."""
        self._stopped = True
        self._service.stop()
        self._idle.stop()
        self._stop_workers(self._threads.workers)

    def _stop_idle_threads(self) -> None:
        """End the threads that were idle since the last time."""
        self._stop_workers(self._threads.workers - self._most_busy)
        self._most_busy = self._service.busy
        if self._threads.workers:
            self._idle.not_after(self._reactor.seconds() + IDLE_SECONDS)

    def _stop_workers(self, count: int) -> None:
        for _ in range(count):
            self._threads.stopAWorker()
