"""How late timers are, how long turns take, and whether the process stood still."""

from __future__ import annotations

import pytest
from twisted.internet.task import Clock

from pushup.clock import WATCH_SECONDS
from pushup.host.reactor_watch import ReactorWatch
from pushup.service_tree import Periodic
from pushup.testing.in_memory import InMemoryDemultiplexer
from tests.metric_values import value_of
from tests.net.observed_log import logged_at


class Process:
    """One that looks at its reactor, whose clock a test lets pass."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.clock.advance(0.1)  # sums with it have rounding errors
        self.suspended = self.computed = 0.0
        self.demultiplexer = InMemoryDemultiplexer()
        self.watch = ReactorWatch(
            self.demultiplexer, self.clock.seconds, lambda: self.clock.seconds() + self.suspended, lambda: self.computed
        )
        Periodic(self.watch.look, WATCH_SECONDS, self.clock, if_it_fails="", at_once=True).startService()

    def run(self, seconds: int) -> None:
        """Let time pass, an eighth of a second at a time: timers are punctual."""
        for _ in range(8 * seconds):
            self.clock.advance(0.125)

    def value(self, name: str, **labels: str) -> float:
        return value_of(self.watch.metrics(), name, **labels)


def test_punctual_timers() -> None:
    """Nothing is late, for as long as one likes."""
    process = Process()
    with logged_at("warn") as lines:
        process.run(100)
    assert process.value("reactor_lag_seconds_bucket", le="0.001") == pytest.approx(100, abs=1)
    assert process.value("reactor_lag_seconds_sum") < 0.001
    assert process.value("stood_still_seconds_total") == 0
    assert lines == []


def test_late_timers() -> None:
    """By so much they are late; the next one is punctual again, and not early."""
    process = Process()
    process.run(1)
    process.clock.advance(1.2)
    assert process.value("reactor_lag_seconds_sum") == pytest.approx(0.2)
    process.clock.advance(1.1)
    assert process.value("reactor_lag_seconds_sum") == pytest.approx(0.5)
    process.clock.advance(0.7)
    assert process.value("reactor_lag_seconds_sum") == pytest.approx(0.5)
    assert process.value("reactor_lag_seconds_count") == 4
    assert process.value("stood_still_seconds_total") == 0


def test_a_process_that_stood_still() -> None:
    """This is counted, and logged once a minute with what it has computed."""
    process = Process()
    with logged_at("warn") as lines:
        process.run(2)
        process.computed += 0.3
        process.clock.advance(5.0)
        process.run(1)
        process.clock.advance(3.0)
        assert len(lines) == 1
        assert "stood still for 4.0 s, and its clients waited. It computed for 0.3 s of that" in lines[0]
        process.run(60)
        process.clock.advance(3.0)
    assert process.value("stood_still_seconds_total") == pytest.approx(8.0)
    assert process.value("reactor_lag_seconds_sum") == pytest.approx(8.0)
    assert "(2 times since last logged)" in lines[1]


def test_a_machine_that_was_suspended() -> None:
    """Its timers do not notice, and it stood still all the same. What comes after that is punctual."""
    process = Process()
    process.run(2)
    process.suspended = 100.4
    process.run(10)
    assert process.value("stood_still_seconds_total") == pytest.approx(100.4)
    assert process.value("reactor_lag_seconds_sum") < 0.001


def test_the_longest_turn() -> None:
    """Of the last minute at least; one of earlier minutes is forgotten."""
    process = Process()
    process.demultiplexer.longest_turn = 0.3
    assert process.value("reactor_longest_turn_seconds") == 0.3
    process.run(61)
    process.demultiplexer.longest_turn = 0.2
    process.run(30)
    assert process.value("reactor_longest_turn_seconds") == 0.3
    process.run(31)
    assert process.value("reactor_longest_turn_seconds") == 0.2
    process.run(121)
    assert process.value("reactor_longest_turn_seconds") == 0
