"""Blocking calls in threads, which the test controls."""

from __future__ import annotations

from functools import partial
from threading import current_thread

import pytest
from twisted.internet.defer import CancelledError

from pushup.backends.helper_pool import IDLE_SECONDS, HelperPool
from pushup.backends.limited_service import ServiceLimits
from pushup.core.errors import Overloaded, Unavailable
from pushup.metrics import BackendCounters
from tests.backends.outcomes import Outcome
from tests.backends.stepped_threads import SteppedThreads, ThreadClock

DEADLINE = 10.0


class Pool:
    """A helper pool, its clock and its threads."""

    def __init__(self, at_most: int = 2, queue_limit: int = 100) -> None:
        self.clock = ThreadClock()
        self.counters = BackendCounters()
        self.threads = SteppedThreads(at_most)
        self.pool = HelperPool(
            "the disk",
            ServiceLimits(at_most=at_most, queue_limit=queue_limit, deadline_seconds=DEADLINE),
            reactor=self.clock,
            counters=self.counters,
            threads=self.threads,
        )

    def ask(self, value: object = None) -> Outcome:
        return Outcome(self.pool.call(lambda: value))

    def use(self, threads: int) -> None:
        """Run this many calls at the same time, until all have returned."""
        outcomes = [self.ask() for _ in range(threads)]
        self.threads.step_all()
        assert all(outcome.fired for outcome in outcomes)


def test_arguments_and_results() -> None:
    """The function gets its arguments, and the call returns its result."""
    pool = Pool()
    outcome = Outcome(pool.pool.call(divmod, 17, 5))
    other = Outcome(pool.pool.call(int, "ff", base=16))
    assert not outcome.fired
    pool.threads.step_all()
    assert outcome.result == (3, 2)
    assert other.result == 255


@pytest.mark.parametrize("error", [KeyError("a"), SystemExit(3)])
def test_errors(error: BaseException) -> None:
    """Whatever the function raises, even what would end a program, fails its call and nothing else."""

    def fail() -> None:
        raise error

    pool = Pool(at_most=1)
    outcome, next_one = Outcome(pool.pool.call(fail)), pool.ask("next")
    pool.threads.step()
    assert outcome.error is error
    pool.threads.step()
    assert next_one.result == "next"
    assert (pool.counters.busy, pool.counters.ended) == (0, 2)


def test_never_more_threads_than_calls_at_a_time() -> None:
    """There are never more threads than calls may run; further calls wait for one, in order."""
    pool = Pool(at_most=3, queue_limit=5)
    outcomes = [pool.ask(number) for number in range(8)]
    assert isinstance(pool.ask().error, Overloaded)
    assert len(pool.threads.running) == pool.threads.workers == 3
    order: list[int] = []
    for number, outcome in enumerate(outcomes):
        outcome.deferred.addCallback(partial(lambda number, _: order.append(number), number))
    pool.threads.step_all()
    assert order == list(range(8))
    assert pool.threads.made == 3


def test_a_thread_that_hangs_keeps_its_place() -> None:
    """A call that exceeds its deadline fails, but its thread is not free until it returns."""
    pool = Pool(at_most=1)
    hangs = pool.ask("too late")
    pool.clock.advance(DEADLINE)
    assert isinstance(hangs.error, Unavailable)
    waiting = pool.ask("in time")
    assert len(pool.threads.running) == 1
    assert pool.counters.busy == 1
    pool.threads.step()
    pool.threads.step()
    assert waiting.result == "in time"
    assert (pool.counters.busy, pool.counters.late, pool.counters.ended) == (0, 1, 1)


def test_a_cancelled_call_keeps_its_place() -> None:
    """A thread cannot be interrupted, so the result of a cancelled call is discarded."""
    pool = Pool(at_most=1)
    gone, waiting = pool.ask("for nobody"), pool.ask("b")
    gone.deferred.cancel()
    assert isinstance(gone.error, CancelledError)
    assert len(pool.threads.running) == 1
    pool.threads.step_all()
    assert waiting.result == "b"


def test_idle_threads_end() -> None:
    """Threads that are not needed end after one to two idle periods, and then no timer is left."""
    pool = Pool(at_most=5)
    pool.use(5)
    assert pool.threads.workers == 5
    pool.clock.advance(IDLE_SECONDS - 0.1)
    assert pool.threads.workers == 5
    pool.clock.advance(0.1)
    pool.clock.advance(IDLE_SECONDS)
    assert pool.threads.workers == 0
    assert pool.clock.getDelayedCalls() == []


def test_threads_are_started_again() -> None:
    """A pool without threads starts new ones when it is called."""
    pool = Pool(at_most=3)
    pool.use(3)
    pool.clock.advance(IDLE_SECONDS)
    pool.clock.advance(IDLE_SECONDS)
    assert pool.threads.workers == 0
    pool.use(2)
    assert (pool.threads.workers, pool.threads.made) == (2, 5)
    pool.clock.advance(IDLE_SECONDS)
    pool.clock.advance(IDLE_SECONDS)
    assert pool.threads.workers == 0


def test_as_many_threads_are_kept_as_are_needed() -> None:
    """With at most two calls at the same time, two of five threads are kept."""
    pool = Pool(at_most=5)
    pool.use(5)
    for second in range(int(3 * IDLE_SECONDS)):
        pool.use(2 if second % 5 == 0 else 1)
        pool.clock.advance(1.0)
    assert (pool.threads.workers, pool.threads.made) == (2, 5)


def test_a_busy_thread_is_kept() -> None:
    """A call that runs longer than the idle time keeps its thread, and the others end."""
    pool = Pool(at_most=3)
    long = pool.ask("long")
    for _ in range(2):
        pool.ask()
    pool.threads.step(1)
    pool.threads.step(1)
    pool.clock.advance(IDLE_SECONDS)
    for _ in range(3):
        pool.clock.advance(IDLE_SECONDS)
        assert pool.threads.workers == 1
    pool.threads.step()
    assert isinstance(long.error, Unavailable)
    pool.clock.advance(IDLE_SECONDS)
    pool.clock.advance(IDLE_SECONDS)
    assert pool.threads.workers == 0


def test_one_timer() -> None:
    """However many calls there are, the reactor has one timer for deadlines and one for idle threads."""
    pool = Pool(at_most=2)
    for _ in range(100):
        pool.ask()
        pool.clock.advance(0.01)
    assert len(pool.clock.getDelayedCalls()) == 2


def test_stop() -> None:
    """A stopped pool accepts no calls, and its threads end once their calls have returned."""
    pool = Pool(at_most=2)
    runs, idle, waits = pool.ask("runs"), pool.ask("ended"), pool.ask("waits")
    pool.threads.step(1)
    pool.threads.step(1)
    assert idle.result == "ended"
    assert waits.result == "waits"
    more = [pool.ask(), pool.ask()]
    pool.pool.stop()
    assert pool.clock.getDelayedCalls() == []
    assert isinstance(more[1].error, Unavailable)
    pool.threads.step_all()
    assert runs.result == "runs"
    assert pool.threads.workers == 0
    assert isinstance(pool.ask().error, Unavailable)
    assert pool.threads.running == []
    assert pool.clock.getDelayedCalls() == []


def test_nothing_runs_in_this_thread() -> None:
    """The function runs in a thread of the pool, never in the caller's."""
    pool = Pool()
    seen: list[object] = []
    pool.pool.call(lambda: seen.append(current_thread()))
    assert seen == []
