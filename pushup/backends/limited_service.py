"""A service with limited capacity: at most N calls run at once, the others wait in a bounded queue (Hsu §4.3).

A database with 20 connections, a web server with 100 processes and a disk are each called through one of these.
Thousands of calls may wait, but never more than `at_most` run. The deadline of a call counts from when it is made.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from msgspec import Struct
from twisted.internet.defer import Deferred, fail, maybeDeferred
from twisted.internet.interfaces import IReactorTime

from pushup.clock import Timer
from pushup.core.errors import Overloaded, PushUpError, Unavailable
from pushup.metrics import BackendCounters

T = TypeVar("T")

RETRY_AFTER_SECONDS = 2
"""When a refused client may try again. By then a full queue has been processed or has timed out; if not, refusing the
client again is cheap."""

STARTS_A_TURN = 8
"""How many calls begin in one turn of the reactor. 2,000 HTTP requests that began at once held up all other clients for
1.5 s."""


class ServiceLimits(Struct, frozen=True, kw_only=True):
    """The capacity of a service."""

    at_most: int
    """Maximum number of calls that run at once."""
    queue_limit: int
    """Maximum number of calls that wait."""
    deadline_seconds: float
    """Maximum time from making a call to its result, waiting included."""


class LimitedService:
    """The calls to one service; errors call it `name`."""

    def __init__(
        self,
        name: str,
        limits: ServiceLimits,
        *,
        clock: IReactorTime,
        give_up: Callable[[Deferred[Any]], object],
        counters: BackendCounters,
    ) -> None:
        """`give_up` is called with a call that runs past its deadline. Its place is free only when it has ended.

        `counters` may be those of several services.
        """
        self._name = name
        self._limits = limits
        self._clock = clock
        self._give_up = give_up
        self._counters = counters
        self.busy = 0
        """How many calls run."""
        self._waiting: OrderedDict[_Call[Any], None] = OrderedDict()
        # Calls before their deadline, waiting or running. All have the same timeout, so the oldest call is due first.
        self._wanted: OrderedDict[_Call[Any], None] = OrderedDict()
        self._timer = Timer(clock, self._give_up_late)
        self._turn = Timer(clock, self._next_turn)
        self._started = 0
        self._starting = False
        self._stopped = False

    def call(self, begin: Callable[[], Deferred[T]]) -> Deferred[T]:
        """Run a call now or when its turn comes; fires with its result.

        Cancelling takes the call out of the queue, or gives it up if it runs. Fails with Overloaded when the queue is
        full, with Unavailable at the deadline, and with whatever the call itself fails with.
        """
        if self._stopped:
            return fail(self._unavailable("is shutting down"))
        if self.busy + len(self._waiting) >= self._limits.at_most + self._limits.queue_limit:
            self._counters.refused += 1
            return fail(Overloaded(f"too many calls are waiting for {self._name}", retry_after=RETRY_AFTER_SECONDS))
        call = _Call(begin, self._clock.seconds(), lambda call: self._forget(call, None))
        self._waiting[call] = self._wanted[call] = None
        self._counters.waiting += 1
        self._timer.not_after(call.since + self._limits.deadline_seconds)
        result = call.result
        assert result is not None
        self._start()
        return result

    def stop(self) -> None:
        """Start no more calls and fail those that wait. Running calls continue."""
        self._stopped = True
        self._timer.stop()
        self._turn.stop()
        for call in list(self._waiting):
            self._forget(call, self._unavailable("is shutting down"))
        self._wanted.clear()

    def _start(self) -> None:
        """Start waiting calls while there is capacity, the first few now and the others in later turns."""
        if self._starting:
            return  # a call that ended immediately gets here again; the loop below starts the next one
        self._starting = True
        while self._waiting and self.busy < self._limits.at_most and self._started < STARTS_A_TURN:
            self._started += 1
            self._turn.not_after(self._clock.seconds())
            call, _ = self._waiting.popitem(last=False)
            self._counters.waiting -= 1
            self.busy += 1
            self._counters.busy += 1
            self._counters.wait.observe(self._clock.seconds() - call.since, 1)
            call.running = maybeDeferred(call.begin)
            call.running.addBoth(self._ended, call)
        self._starting = False

    def _next_turn(self) -> None:
        self._started = 0
        self._start()

    def _ended(self, outcome: Any, call: _Call[Any]) -> None:
        self.busy -= 1
        self._counters.busy -= 1
        call.running = None
        result, call.result = call.result, None
        if result is not None:
            self._wanted.pop(call, None)
            self._counters.ended += 1
            result.callback(outcome)  # a Failure makes it fail
        self._start()

    def _give_up_late(self) -> None:
        """Fail the calls whose deadline has passed."""
        self._starting = True  # a place that becomes free is not for a call whose deadline has passed, too
        while self._wanted:
            call = next(iter(self._wanted))
            deadline = call.since + self._limits.deadline_seconds
            if deadline > self._clock.seconds():
                self._timer.not_after(deadline)
                break
            self._counters.late += 1
            self._forget(call, self._unavailable(f"did not answer within {self._limits.deadline_seconds:g} s"))
        self._starting = False
        self._start()

    def _forget(self, call: _Call[T], error: PushUpError | None) -> None:
        """Drop a call that nobody waits for any more."""
        self._wanted.pop(call, None)
        result, call.result = call.result, None
        if call.running is not None:
            self._give_up(call.running)
        elif call in self._waiting:
            del self._waiting[call]
            self._counters.waiting -= 1
        if error is not None and result is not None:
            result.errback(error)

    def _unavailable(self, what: str) -> Unavailable:
        return Unavailable(f"{self._name} {what}", retry_after=RETRY_AFTER_SECONDS)


class _Call(Generic[T]):
    """One call; `result` is None once nobody waits for it, `running` is set while it runs."""

    __slots__ = ("begin", "result", "running", "since")

    def __init__(self, begin: Callable[[], Deferred[T]], since: float, cancel: Callable[[_Call[T]], None]) -> None:
        self.begin = begin
        self.since = since
        self.result: Deferred[T] | None = Deferred(lambda _: cancel(self))
        self.running: Deferred[T] | None = None
