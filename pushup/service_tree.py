"""What a tree of services is made of: services that start and stop in an order, and the leaves.

The branches and the leaves are services of Twisted (`twisted.application.service`): each has a parent, and starts and
stops with it. `pushup.service` has the tree of a server, `pushup.workers.parent` that of a parent process.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from twisted.application.service import MultiService, Service
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

_log = Logger()


class InOrder(MultiService):
    """Starts its children in the order in which they were added, and stops them in the reverse order, one by one.

    Twisted's `MultiService` stops all of them at once. If a child cannot start, `startService` raises its error, and
    those before it stay started. One that cannot stop is logged, and the others stop.
    """

    def __init__(self, *children: Service) -> None:
        super().__init__()
        self.add(*children)

    def add(self, *children: Service) -> None:
        """Become the parent of these, which start after those that are here."""
        for child in children:
            child.setServiceParent(self)

    def startService(self) -> None:
        """Raises: whatever the children do."""
        super().startService()

    def stopService(self) -> Deferred[None]:
        """Fires when all have stopped."""
        Service.stopService(self)
        return Deferred.fromCoroutine(self._stop_children())

    async def _stop_children(self) -> None:
        for child in reversed(self.services):
            if child.running:
                try:
                    await maybeDeferred(child.stopService)
                except Exception:
                    _log.failure("a part of the server did not stop cleanly")


class Part(Service):
    """A part with functions of its own that start and stop it. One that stops may take its time."""

    def __init__(
        self,
        start: Callable[[], object] = lambda: None,
        stop: Callable[[], Awaitable[None] | None] = lambda: None,
    ) -> None:
        self._start = start
        self._stop = stop

    def startService(self) -> None:
        self._start()
        super().startService()

    def stopService(self) -> Deferred[None]:
        super().stopService()
        return Deferred.fromCoroutine(self._end())

    async def _end(self) -> None:
        stopped = self._stop()
        if stopped is not None:
            await stopped


class Periodic(Service):
    """Calls a function at regular intervals. If it fails, that is logged, and it is called no more."""

    def __init__(
        self, call: Callable[[], None], seconds: float, clock: IReactorTime, *, if_it_fails: str, at_once: bool = False
    ) -> None:
        """`if_it_fails`: what the log says then. `at_once`: the first call comes before the first interval."""
        self._loop = LoopingCall(call)
        self._loop.clock = clock
        self._seconds = seconds
        self._if_it_fails = if_it_fails
        self._at_once = at_once

    def startService(self) -> None:
        super().startService()
        self._loop.start(self._seconds, now=self._at_once).addErrback(
            lambda failure: _log.failure(self._if_it_fails, failure)
        )

    def stopService(self) -> None:
        super().stopService()
        if self._loop.running:
            self._loop.stop()
