"""A service that runs a limited number of calls at a time."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.task import Clock

from pushup.backends.limited_service import RETRY_AFTER_SECONDS, STARTS_A_TURN, LimitedService, ServiceLimits
from pushup.core.errors import Overloaded, Unavailable
from pushup.metrics import BackendCounters
from tests.backends.outcomes import Outcome

DEADLINE = 10.0


def keep_running(running: Deferred[Any]) -> None:
    """Let the call run, as a thread does, which cannot be interrupted."""


class Calls:
    """A service whose calls, which have names, end when the test says so; `running` has the current ones."""

    def __init__(
        self,
        at_most: int = 2,
        queue_limit: int = 100,
        give_up: Callable[[Deferred[Any]], object] = keep_running,
        counters: BackendCounters | None = None,
    ) -> None:
        self.clock = Clock()
        self.counters = counters or BackendCounters()
        self.service = LimitedService(
            "the backend",
            ServiceLimits(at_most=at_most, queue_limit=queue_limit, deadline_seconds=DEADLINE),
            clock=self.clock,
            give_up=give_up,
            counters=self.counters,
        )
        self.begun: list[str] = []
        self.running: dict[str, Deferred[str]] = {}

    def ask(self, name: str) -> Outcome:
        outcome = Outcome(self.service.call(lambda: self.begin(name)))
        self.clock.advance(0)
        return outcome

    def end(self, name: str) -> None:
        self.running.pop(name).callback(name)
        self.clock.advance(0)

    def begin(self, name: str) -> Deferred[str]:
        self.begun.append(name)
        running = self.running[name] = Deferred()
        return running

    @property
    def counted(self) -> dict[str, int]:
        """The counters that are not 0."""
        counters = self.counters
        names = ("busy", "waiting", "ended", "late", "refused")
        return {name: value for name in names if (value := getattr(counters, name))}

    @property
    def measured_waits(self) -> int:
        """How many waiting times were measured."""
        return int(self.counters.wait.buckets[-1][1])


def test_a_limited_number_of_calls_runs() -> None:
    """The first calls start at once, the others when one of those has ended, in order."""
    calls = Calls(at_most=2)
    outcomes = [calls.ask(name) for name in "abcde"]
    assert calls.begun == ["a", "b"]
    assert calls.service.busy == 2
    assert calls.counted == {"busy": 2, "waiting": 3}
    calls.end("b")
    assert calls.begun == ["a", "b", "c"]
    assert outcomes[1].result == "b"
    calls.end("a")
    calls.end("d")
    calls.end("e")
    calls.end("c")
    assert calls.begun == list("abcde")
    assert [outcome.result for outcome in outcomes] == list("abcde")
    assert calls.counted == {"ended": 5}


def test_services_that_are_counted_together() -> None:
    """Each has its own places, as the URLs of several issuers of tokens have."""
    one = Calls(at_most=1, queue_limit=0)
    other = Calls(at_most=1, queue_limit=0, counters=one.counters)
    outcomes = [calls.ask(name) for calls, name in ((one, "a"), (other, "b"))]
    assert (one.begun, other.begun, one.counted) == (["a"], ["b"], {"busy": 2})
    assert isinstance(other.ask("c").error, Overloaded)
    one.end("a")
    other.end("b")
    assert [outcome.result for outcome in outcomes] == ["a", "b"]
    assert one.counted == {"ended": 2, "refused": 1}


def test_a_few_calls_begin_in_each_turn() -> None:
    """Calls that all arrive at once begin in several turns of the reactor, in order; a lone one begins at once."""
    calls = Calls(at_most=100, queue_limit=0)
    names = [str(number) for number in range(100)]
    for name in names:
        calls.service.call(partial(calls.begin, name))
    assert isinstance(Outcome(calls.service.call(partial(calls.begin, "one too many"))).error, Overloaded)
    for begun in range(STARTS_A_TURN, 100, STARTS_A_TURN):
        assert calls.begun == names[:begun]
        timer: Any = min(calls.clock.getDelayedCalls(), key=lambda call: call.getTime())
        begin_more = timer.func
        timer.cancel()
        begin_more()
    calls.clock.advance(0)
    assert calls.begun == names
    calls.end("0")
    calls.service.call(partial(calls.begin, "alone"))
    assert calls.begun[-1] == "alone"


def test_a_newcomer_does_not_overtake() -> None:
    """A call made while another one's end is being reported goes behind those that wait."""
    calls = Calls(at_most=1)
    later: list[Outcome] = []
    calls.ask("a").deferred.addCallback(lambda _: later.append(calls.ask("c")))
    calls.ask("b")
    calls.end("a")
    assert calls.begun == ["a", "b"]
    calls.end("b")
    assert calls.begun == ["a", "b", "c"]


def test_the_queue_is_bounded() -> None:
    """A call beyond the limit of the queue is refused at once, and each call that ends makes room."""
    calls = Calls(at_most=2, queue_limit=3)
    outcomes = [calls.ask(name) for name in "abcde"]
    refused = calls.ask("f").error
    assert isinstance(refused, Overloaded)
    assert refused.retry_after == RETRY_AFTER_SECONDS
    assert "the backend" in refused.detail
    assert calls.counted == {"busy": 2, "waiting": 3, "refused": 1}
    calls.end("a")
    assert not calls.ask("g").fired
    assert isinstance(calls.ask("h").error, Overloaded)
    assert [outcome.fired for outcome in outcomes] == [True, False, False, False, False]
    assert "f" not in calls.begun


def test_no_queue() -> None:
    """Without a queue, calls run while there is a free place and are refused otherwise."""
    calls = Calls(at_most=1, queue_limit=0)
    running = calls.ask("a")
    assert isinstance(calls.ask("b").error, Overloaded)
    calls.end("a")
    assert running.result == "a"
    assert not calls.ask("c").fired
    assert calls.begun == ["a", "c"]


def test_a_deadline_covers_the_waiting() -> None:
    """The deadline counts from the call: if it is still waiting then, it fails and is never started."""
    calls = Calls(at_most=1)
    running = calls.ask("a")
    calls.clock.advance(4.0)
    waiting = calls.ask("b")
    calls.clock.advance(DEADLINE - 4.0)
    late = running.error
    assert isinstance(late, Unavailable)
    assert late.retry_after == RETRY_AFTER_SECONDS
    assert late.detail == "the backend did not answer within 10 s"
    calls.clock.advance(3.999)
    assert not waiting.fired
    calls.clock.advance(0.001)
    assert isinstance(waiting.error, Unavailable)
    assert calls.counted == {"busy": 1, "late": 2}
    calls.end("a")
    assert calls.begun == ["a"]
    assert calls.counted == {"late": 2}


def test_the_time_spent_waiting_counts() -> None:
    """A call that waited 9 of 10 seconds has one second to run."""
    calls = Calls(at_most=1)
    calls.ask("a")
    waiting = calls.ask("b")
    calls.clock.advance(9.0)
    calls.end("a")
    assert calls.begun == ["a", "b"]
    calls.clock.advance(0.999)
    assert not waiting.fired
    calls.clock.advance(0.001)
    assert isinstance(waiting.error, Unavailable)


def test_a_late_call_keeps_its_place() -> None:
    """A call that runs past its deadline keeps its place until it has ended, and its result is discarded."""
    calls = Calls(at_most=1)
    late = calls.ask("a")
    calls.clock.advance(DEADLINE)
    assert isinstance(late.error, Unavailable)
    waiting = calls.ask("b")
    assert calls.begun == ["a"]
    assert calls.counted == {"busy": 1, "waiting": 1, "late": 1}
    calls.end("a")
    assert calls.begun == ["a", "b"]
    calls.end("b")
    assert waiting.result == "b"
    assert calls.counted == {"ended": 1, "late": 1}


def test_a_late_call_that_fails_afterwards() -> None:
    """The failure of a call that has already timed out is not logged."""
    calls = Calls(at_most=1)
    late = calls.ask("a")
    calls.clock.advance(DEADLINE)
    assert isinstance(late.error, Unavailable)
    calls.running.pop("a").errback(ValueError("too late"))
    assert calls.counted == {"late": 1}


def test_a_late_call_that_can_be_cancelled_frees_its_place() -> None:
    """The next call starts at the deadline of the late one, and is not late itself."""
    calls = Calls(at_most=1, give_up=Deferred.cancel)
    late = calls.ask("a")
    calls.clock.advance(5.0)
    waiting = calls.ask("b")
    calls.clock.advance(5.0)
    assert isinstance(late.error, Unavailable)
    assert calls.begun == ["a", "b"]
    assert calls.counted == {"busy": 1, "late": 1}
    calls.end("b")
    assert waiting.result == "b"


def test_many_calls_are_late_at_once() -> None:
    """Of calls with the same deadline none is started only to be cancelled; those that are not late do start."""
    calls = Calls(at_most=1, queue_limit=1000, give_up=Deferred.cancel)
    outcomes = [calls.ask(str(number)) for number in range(1000)]
    calls.clock.advance(1.0)
    in_time = calls.ask("in time")
    calls.clock.advance(DEADLINE - 1.0)
    assert all(isinstance(outcome.error, Unavailable) for outcome in outcomes)
    assert calls.begun == ["0", "in time"]
    assert calls.counted == {"busy": 1, "late": 1000}
    calls.end("in time")
    assert in_time.result == "in time"


def test_a_caller_that_retries_when_late() -> None:
    """A caller that retries as soon as its call timed out gets its turn."""
    calls = Calls(at_most=1, give_up=Deferred.cancel)
    again: list[Outcome] = []
    calls.service.call(lambda: calls.begin("a")).addErrback(lambda _: again.append(calls.ask("b")))
    calls.clock.advance(DEADLINE)
    assert calls.begun == ["a", "b"]
    calls.end("b")
    assert again[0].result == "b"


def test_time_that_is_just_at_the_deadline() -> None:
    """As in `pushup.testing.in_process`, where time goes from one timer to the next: the sums are rounded."""
    calls = Calls()
    calls.clock.advance(0.2877)
    assert 0.2877 + DEADLINE - DEADLINE < 0.2877
    outcome = calls.ask("a")
    (timer,) = calls.clock.getDelayedCalls()
    calls.clock.rightNow = timer.getTime()
    calls.clock.advance(0)
    assert isinstance(outcome.error, Unavailable)


def test_an_end_at_the_deadline_is_in_time() -> None:
    """A call that has ended is neither late nor counted as late at its deadline."""
    calls = Calls()
    outcome = calls.ask("a")
    calls.clock.advance(DEADLINE - 0.001)
    calls.end("a")
    calls.clock.advance(5.0)
    assert outcome.result == "a"
    assert calls.counted == {"ended": 1}


def test_cancel_while_waiting() -> None:
    """A call that is cancelled before its turn is never started, and its place in the queue is free."""
    given_up: list[Deferred[Any]] = []
    calls = Calls(at_most=1, queue_limit=2, give_up=given_up.append)
    calls.ask("a")
    waiting = calls.ask("b")
    calls.ask("c")
    waiting.deferred.cancel()
    assert isinstance(waiting.error, CancelledError)
    assert calls.counted == {"busy": 1, "waiting": 1}
    assert given_up == []
    assert not calls.ask("d").fired
    calls.end("a")
    calls.end("c")
    calls.end("d")
    assert calls.begun == ["a", "c", "d"]
    calls.clock.advance(DEADLINE)
    assert calls.counted == {"ended": 3}


def test_cancel_while_running() -> None:
    """A call that is cancelled while it runs keeps its place until it has ended, and is never late."""
    given_up: list[Deferred[Any]] = []
    calls = Calls(at_most=1, give_up=given_up.append)
    running = calls.ask("a")
    calls.ask("b")
    running.deferred.cancel()
    assert isinstance(running.error, CancelledError)
    assert given_up == [calls.running["a"]]
    assert calls.begun == ["a"]
    assert calls.counted == {"busy": 1, "waiting": 1}
    calls.end("a")
    assert calls.begun == ["a", "b"]
    calls.end("b")
    calls.clock.advance(2 * DEADLINE)
    assert calls.counted == {"ended": 1}
    assert len(given_up) == 1


def test_cancel_a_call_that_can_be_interrupted() -> None:
    """The next call starts at once."""
    calls = Calls(at_most=1, give_up=Deferred.cancel)
    running = calls.ask("a")
    calls.ask("b")
    running.deferred.cancel()
    assert isinstance(running.error, CancelledError)
    assert calls.begun == ["a", "b"]
    assert calls.counted == {"busy": 1}


def test_stop() -> None:
    """Waiting and new calls fail; running ones continue to their end, without a deadline."""
    calls = Calls(at_most=1)
    running, waiting = calls.ask("a"), calls.ask("b")
    calls.service.stop()
    afterwards = calls.ask("c")
    for outcome in (waiting, afterwards):
        assert isinstance(outcome.error, Unavailable)
        assert outcome.error.detail == "the backend is shutting down"
    assert calls.clock.getDelayedCalls() == []
    assert not running.fired
    calls.end("a")
    assert running.result == "a"
    assert calls.begun == ["a"]
    assert calls.counted == {"ended": 1}


def test_calls_that_end_at_once_do_not_recurse() -> None:
    """10,000 waiting calls that each end as soon as they start take no stack."""
    calls = Calls(at_most=1, queue_limit=10_000)
    calls.ask("first")
    ended: list[int] = []
    for number in range(10_000):
        calls.service.call(lambda number=number: succeed(number)).addCallback(ended.append)  # type: ignore[misc]
    assert ended == []
    calls.end("first")
    calls.clock.advance(0)
    assert ended == list(range(10_000))
    assert calls.counted == {"ended": 10_001}


def test_one_timer() -> None:
    """However many calls run and wait, the reactor has one timer, for the first deadline."""
    calls = Calls(at_most=5)
    for number in range(50):
        calls.ask(str(number))
        calls.clock.advance(0.125)
    (timer,) = calls.clock.getDelayedCalls()
    assert timer.getTime() == DEADLINE
    calls.clock.advance(DEADLINE - 3.75)
    assert calls.counters.late == 21
    (timer,) = calls.clock.getDelayedCalls()
    assert timer.getTime() == DEADLINE + 2.625


def test_no_timer_without_calls() -> None:
    """When all calls have ended, no timer is left."""
    calls = Calls()
    calls.ask("a")
    calls.end("a")
    calls.clock.advance(DEADLINE)
    assert calls.clock.getDelayedCalls() == []


def test_begin_raises() -> None:
    """An exception while a call is started is the call's failure, and frees its place."""
    calls = Calls(at_most=1)

    def begin() -> Deferred[None]:
        raise ZeroDivisionError

    assert isinstance(Outcome(calls.service.call(begin)).error, ZeroDivisionError)
    assert calls.counted == {"ended": 1}
    calls.ask("a")
    waiting = Outcome(calls.service.call(begin))
    calls.ask("b")
    calls.end("a")
    assert isinstance(waiting.error, ZeroDivisionError)
    assert calls.begun == ["a", "b"]


def test_a_call_that_fails() -> None:
    """The caller gets the error; the call counts as ended in time."""
    calls = Calls()
    outcome = calls.ask("a")
    calls.running.pop("a").errback(KeyError("a"))
    assert isinstance(outcome.error, KeyError)
    assert calls.counted == {"ended": 1}


def test_a_failing_callback_does_not_affect_others() -> None:
    """An error in a caller's callback stays with that caller."""
    calls = Calls(at_most=1)
    failing = calls.ask("a").deferred.addCallback(lambda _: 1 / 0)
    calls.ask("b")
    calls.end("a")
    assert calls.begun == ["a", "b"]
    assert isinstance(Outcome(failing).error, ZeroDivisionError)


def test_waits_are_measured() -> None:
    """The histogram has the waiting time of each call that was started, and of no other."""
    calls = Calls(at_most=1, queue_limit=2)
    calls.ask("a")
    calls.clock.advance(1.0)
    calls.ask("b")
    cancelled = calls.ask("c")
    calls.ask("refused")
    cancelled.deferred.cancel()
    calls.clock.advance(2.0)
    calls.end("a")
    assert calls.measured_waits == 2
    assert calls.counters.wait.sum == 2.0
    buckets = dict(calls.counters.wait.buckets)
    assert (buckets["0.001"], buckets["1.0"], buckets["2.5"]) == (1, 1, 2)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("can_be_stopped", [False, True])
def test_model(seed: int, can_be_stopped: bool) -> None:
    """Whatever happens in whatever order, the service behaves and counts like a naive list of calls."""
    draw = random.Random(seed)
    at_most, queue_limit = draw.randint(1, 4), draw.randint(1, 6)
    calls = Calls(at_most, queue_limit, Deferred.cancel if can_be_stopped else keep_running)
    waiting: deque[str] = deque()
    running: dict[str, bool] = {}  # whether its caller still waits
    since: dict[str, float] = {}
    outcomes: dict[str, Outcome] = {}
    expected = {"ended": 0, "late": 0, "refused": 0}
    begun: list[str] = []

    def begin() -> None:
        while waiting and len(running) < at_most:
            begun.append(waiting.popleft())
            running[begun[-1]] = True

    def give_up(name: str) -> None:
        if name in waiting:
            waiting.remove(name)
        elif can_be_stopped:
            del running[name]
        else:
            running[name] = False

    for step in range(300):
        match draw.randrange(10):
            case 0 | 1 | 2 | 3:
                name = str(step)
                calls.clock.advance(1 / 1024)  # no two deadlines are equal
                outcomes[name] = calls.ask(name)
                if len(running) >= at_most and len(waiting) >= queue_limit:
                    expected["refused"] += 1
                    assert isinstance(outcomes.pop(name).error, Overloaded)
                else:
                    waiting.append(name)
                    since[name] = calls.clock.seconds()
            case 4 | 5 | 6 if running:
                name = draw.choice(list(running))
                wanted = running.pop(name)
                expected["ended"] += wanted
                calls.end(name)
                if wanted:
                    assert outcomes.pop(name).result == name
            case 7 if outcomes:
                name = draw.choice(list(outcomes))
                outcome = outcomes.pop(name)
                outcome.deferred.cancel()
                assert isinstance(outcome.error, CancelledError)
                give_up(name)
            case _:
                until = calls.clock.seconds() + draw.choice((0.5, 1.0, 2.0))
                for name in [n for n in outcomes if since[n] <= until - DEADLINE]:
                    calls.clock.advance(since[name] + DEADLINE - calls.clock.seconds())
                    expected["late"] += 1
                    assert isinstance(outcomes.pop(name).error, Unavailable)
                    give_up(name)
                    begin()
                calls.clock.advance(until - calls.clock.seconds())
        begin()
        calls.clock.advance(0)
        assert not any(outcome.fired for outcome in outcomes.values())
        assert calls.begun == begun
        assert len(running) <= at_most
        now = {"busy": len(running), "waiting": len(waiting)}
        assert calls.counted == {key: value for key, value in (now | expected).items() if value}
        assert calls.measured_waits == len(begun)
        assert len(calls.clock.getDelayedCalls()) <= 1
