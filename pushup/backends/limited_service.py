"""A service that takes only so many calls at a time: the rest wait in a bounded queue (Hsu §4.3).

A database with 20 connections, a web server with 100 processes, one disk: each is asked through one of these. Thousands
of calls may wait; never more than `at_most` run. Each has a deadline, which counts from when it was asked for.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from msgspec import Struct
from twisted.internet.defer import Deferred, fail, maybeDeferred
from twisted.internet.interfaces import IReactorTime

from pushup.core.errors import Overloaded, PushUpError, Unavailable
from pushup.metrics import BackendCounters
from pushup.timer import Timer

T = TypeVar("T")

RETRY_AFTER_SECONDS = 2
"""When a client that was refused may ask again. A full queue is worked off or out of date by then, or it is refused
again, which is cheap."""


class ServiceLimits(Struct, frozen=True, kw_only=True):
    """What a service can take."""

    at_most: int
    """Calls that run at a time."""
    queue_limit: int
    """Calls that wait."""
    deadline_seconds: float
    """From when a call is asked for until it is given up."""


class LimitedService:
    """The calls to one service; `name` is what metrics and errors call it."""

    def __init__(
        self,
        name: str,
        limits: ServiceLimits,
        *,
        clock: IReactorTime,
        give_up: Callable[[Deferred[Any]], object],
        counters: BackendCounters,
    ) -> None:
        """`give_up` is handed what runs on past its deadline. Its place is free only when that has ended."""
        self._name = name
        self._limits = limits
        self._clock = clock
        self._give_up = give_up
        self._counters = counters
        self._waiting: OrderedDict[_Call[Any], None] = OrderedDict()
        # Calls whose deadline is to come, waiting or running. All have the same time, so the first asked is first due.
        self._wanted: OrderedDict[_Call[Any], None] = OrderedDict()
        self._timer = Timer(clock, self._give_up_late)
        self._starting = False
        self._stopped = False

    def call(self, begin: Callable[[], Deferred[T]]) -> Deferred[T]:
        """Begin a call, now or when its turn comes; fires with what it comes to.

        Cancelling it takes it out of the queue, or gives it up. Fails with: Overloaded when the queue is full,
        Unavailable when its deadline has come, and whatever the call itself fails with.
        """
        counters = self._counters
        if self._stopped:
            return fail(self._unavailable("is being stopped"))
        if counters.busy >= self._limits.at_most and len(self._waiting) >= self._limits.queue_limit:
            counters.refused += 1
            return fail(Overloaded(f"too many wait for {self._name} already", retry_after=RETRY_AFTER_SECONDS))
        call = _Call(begin, self._clock.seconds(), self._cancel)
        self._waiting[call] = self._wanted[call] = None
        counters.waiting += 1
        self._timer.not_after(call.since + self._limits.deadline_seconds)
        result = call.result
        assert result is not None
        self._start()
        return result

    @property
    def busy(self) -> int:
        """How many calls run."""
        return self._counters.busy

    def stop(self) -> None:
        """Begin no more calls; those that wait fail. What runs goes on."""
        self._stopped = True
        self._timer.stop()
        for call in list(self._waiting):
            self._forget(call, self._unavailable("is being stopped"))
        self._wanted.clear()

    def _start(self) -> None:
        """Begin those whose turn has come."""
        if self._starting:
            return  # a call that ended at once comes back here; the loop below goes on with the next
        self._starting = True
        while self._waiting and self._counters.busy < self._limits.at_most:
            call, _ = self._waiting.popitem(last=False)
            self._counters.waiting -= 1
            self._counters.busy += 1
            self._counters.wait.observe(self._clock.seconds() - call.since, 1)
            call.running = maybeDeferred(call.begin)
            call.running.addBoth(self._ended, call)
        self._starting = False

    def _ended(self, outcome: Any, call: _Call[Any]) -> None:
        self._counters.busy -= 1
        call.running = None
        result, call.result = call.result, None
        if result is not None:
            self._wanted.pop(call, None)
            self._counters.ended += 1
            result.callback(outcome)  # a Failure makes it fail
        self._start()

    def _give_up_late(self) -> None:
        """Fail the calls whose deadline has come."""
        horizon = self._clock.seconds() - self._limits.deadline_seconds
        self._starting = True  # a place that becomes free is not for one that is about to be given up, too
        while self._wanted:
            call = next(iter(self._wanted))
            if call.since > horizon:
                self._timer.not_after(call.since + self._limits.deadline_seconds)
                break
            self._counters.late += 1
            self._forget(call, self._unavailable(f"has not answered within {self._limits.deadline_seconds:g} s"))
        self._starting = False
        self._start()

    def _forget(self, call: _Call[T], error: PushUpError | None) -> None:
        """Nobody waits for this call any more."""
        self._wanted.pop(call, None)
        result, call.result = call.result, None
        if call.running is not None:
            self._give_up(call.running)
        elif call in self._waiting:
            del self._waiting[call]
            self._counters.waiting -= 1
        if error is not None and result is not None:
            result.errback(error)

    def _cancel(self, call: _Call[Any]) -> None:
        self._forget(call, None)

    def _unavailable(self, what: str) -> Unavailable:
        return Unavailable(f"{self._name} {what}", retry_after=RETRY_AFTER_SECONDS)


class _Call(Generic[T]):
    """One call; `result` is None once nobody waits for it, `running` is there while it runs."""

    __slots__ = ("begin", "result", "running", "since")

    def __init__(self, begin: Callable[[], Deferred[T]], since: float, cancel: Callable[[_Call[T]], None]) -> None:
        self.begin = begin
        self.since = since
        self.result: Deferred[T] | None = Deferred(lambda _: cancel(self))
        self.running: Deferred[T] | None = None
