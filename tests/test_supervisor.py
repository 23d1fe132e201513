"""What a supervisor is told, line by line, on a clock that is turned by hand."""

from __future__ import annotations

import math

import pytest
from twisted.internet.task import Clock

from pushup.supervisor import EXTEND_SECONDS, STARTING_STEP_SECONDS, STEP_SECONDS, Supervisor, watchdog_seconds

EXTEND = f"EXTEND_TIMEOUT_USEC={EXTEND_SECONDS * 1e6:.0f}"


class Supervised:
    """A server whose readiness can be set, and what its supervisor was told since it was asked last."""

    def __init__(self, seconds: float = math.inf) -> None:
        self.clock = Clock()
        self.reason: str | None = None
        self.is_closed = False
        self._lines: list[str] = []
        self.supervisor = Supervisor(
            self, watchdog_seconds=seconds, clock=self.clock, why_not_ready=lambda: self.reason
        )

    def send(self, line: str) -> None:
        self._lines.append(line)

    def close(self) -> None:
        self.is_closed = True

    def told(self) -> list[str]:
        lines, self._lines = self._lines, []
        return lines


def test_ready_at_once() -> None:
    """A server that is ready when it listens says so first."""
    server = Supervised()
    server.supervisor.begin()
    assert server.told() == ["READY=1", "WATCHDOG=1", "STATUS=Ready"]


def test_not_ready_before_it_has_its_state() -> None:
    """A server that waits for Redis is not ready and says why, and for as long as it takes it asks for more time."""
    server = Supervised(10.0)
    server.reason = "Redis was not reached yet"
    server.supervisor.begin()
    assert server.told() == [EXTEND, "STATUS=Starting: Redis was not reached yet"]
    for _ in range(1000):
        server.clock.advance(STARTING_STEP_SECONDS)
        assert server.told() == [EXTEND]
    server.reason = None
    server.clock.advance(STARTING_STEP_SECONDS)
    assert server.told() == ["READY=1", "WATCHDOG=1", "STATUS=Ready"]


@pytest.mark.parametrize(
    ("watchdog", "pause"), [(0.5, 0.25), (4.0, 2.0), (60.0, STEP_SECONDS), (math.inf, STEP_SECONDS)]
)
def test_signs_of_life(watchdog: float, pause: float) -> None:
    """They come twice in the watchdog's time, and READY=1 comes once."""
    server = Supervised(watchdog)
    server.supervisor.begin()
    server.told()
    for _ in range(20):
        server.clock.advance(pause - 1 / 1024)
        assert server.told() == []
        server.clock.advance(1 / 1024)
        assert server.told() == ["WATCHDOG=1"]


def test_a_server_that_is_no_longer_ready_lives() -> None:
    """Cut off from Redis it says why, and is not to be restarted; READY=1 is not said again."""
    server = Supervised()
    server.supervisor.begin()
    server.told()
    server.reason = "no reply from Redis"
    server.clock.advance(STEP_SECONDS)
    assert server.told() == ["WATCHDOG=1", "STATUS=Not ready: no reply from Redis"]
    server.reason = None
    server.clock.advance(STEP_SECONDS)
    assert server.told() == ["WATCHDOG=1", "STATUS=Ready"]


def test_stopping() -> None:
    """It says so at once, asks for the time that it needs, and is silent in the end."""
    server = Supervised()
    server.supervisor.begin()
    server.told()
    server.reason = "this node is about to stop"
    server.supervisor.stopping()
    assert server.told() == ["STOPPING=1", EXTEND, "STATUS=Stopping: answering held polls"]
    server.clock.advance(STEP_SECONDS)
    assert server.told() == [EXTEND]
    server.supervisor.end()
    assert server.is_closed
    assert server.clock.getDelayedCalls() == []


def test_stopped_before_it_was_ready() -> None:
    """Then it was never ready."""
    server = Supervised()
    server.reason = "Redis was not reached yet"
    server.supervisor.begin()
    server.reason = None
    server.supervisor.stopping()
    assert "READY=1" not in server.told()


def test_a_reason_of_several_lines_is_one() -> None:
    """Or what Redis says could be a command."""
    server = Supervised()
    server.reason = "an odd\nREADY=1\nreason"
    server.supervisor.begin()
    assert server.told() == [EXTEND, "STATUS=Starting: an odd READY=1 reason"]


def test_without_a_supervisor_nothing_is_done() -> None:
    """No timer runs for nobody."""
    clock = Clock()
    supervisor = Supervisor(None, watchdog_seconds=1.0, clock=clock, why_not_ready=lambda: None)
    supervisor.begin()
    assert clock.getDelayedCalls() == []
    supervisor.stopping()
    supervisor.end()
    assert clock.getDelayedCalls() == []


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [
        ({}, math.inf),
        ({"WATCHDOG_USEC": "2500000"}, 2.5),
        ({"WATCHDOG_USEC": "2500000", "WATCHDOG_PID": "7"}, 2.5),
        ({"WATCHDOG_USEC": "2500000", "WATCHDOG_PID": "8"}, math.inf),
        ({"WATCHDOG_USEC": "0"}, math.inf),
        ({"WATCHDOG_USEC": "soon"}, math.inf),
    ],
)
def test_the_watchdogs_time(environment: dict[str, str], seconds: float) -> None:
    """It is in microseconds, and meant for this process unless it names another."""
    assert watchdog_seconds(environment, 7) == seconds
