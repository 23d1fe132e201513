"""What a supervisor is sent, line by line, on a clock controlled by the test."""

from __future__ import annotations

import math

import pytest
from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from pushup.host.systemd_notify import (
    EXTEND_SECONDS,
    STARTING_STEP_SECONDS,
    STEP_SECONDS,
    SystemdNotifier,
    watchdog_seconds,
)

EXTEND = f"EXTEND_TIMEOUT_USEC={EXTEND_SECONDS * 1e6:.0f}"


class _Stopping(Service):
    """A server that takes its time to stop."""

    def __init__(self) -> None:
        self.stopped: Deferred[None] = Deferred()

    def stopService(self) -> Deferred[None]:
        super().stopService()  # type: ignore[no-untyped-call]
        return self.stopped


class Supervised:
    """A server whose readiness can be set, and the lines sent to its supervisor."""

    def __init__(self, seconds: float = math.inf) -> None:
        self.clock = Clock()
        self.reason: str | None = None
        self.is_open = False
        self.server = _Stopping()
        self.accepts = True
        self._lines: list[str] = []
        self.supervisor = SystemdNotifier(
            self, watchdog_seconds=seconds, clock=self.clock, why_not_ready=lambda: self.reason
        )
        self.supervisor.add(self.server)

    def open(self) -> None:
        self.is_open = True

    def send(self, line: str) -> bool:
        assert self.is_open
        if self.accepts:
            self._lines.append(line)
        return self.accepts

    def close(self) -> None:
        self.is_open = False

    def sent(self) -> list[str]:
        """The lines sent since the last call."""
        lines, self._lines = self._lines, []
        return lines


def test_ready_at_once() -> None:
    """A server that is ready as soon as it listens reports that first."""
    server = Supervised()
    server.supervisor.startService()
    assert server.sent() == ["READY=1", "WATCHDOG=1", "STATUS=Ready"]


def test_not_ready_before_it_has_its_state() -> None:
    """A server that waits for Redis reports that it is not ready and why, and keeps asking for more time."""
    server = Supervised(10.0)
    server.reason = "Redis was not reached yet"
    server.supervisor.startService()
    assert server.sent() == [EXTEND, "STATUS=Starting: Redis was not reached yet"]
    for _ in range(1000):
        server.clock.advance(STARTING_STEP_SECONDS)
        assert server.sent() == [EXTEND]
    server.reason = None
    server.clock.advance(STARTING_STEP_SECONDS)
    assert server.sent() == ["READY=1", "WATCHDOG=1", "STATUS=Ready"]


@pytest.mark.parametrize(
    ("watchdog", "pause"), [(0.5, 0.25), (4.0, 2.0), (60.0, STEP_SECONDS), (math.inf, STEP_SECONDS)]
)
def test_watchdog_messages(watchdog: float, pause: float) -> None:
    """They are sent twice per watchdog interval, and READY=1 is sent once."""
    server = Supervised(watchdog)
    server.supervisor.startService()
    server.sent()
    for _ in range(20):
        server.clock.advance(pause - 1 / 1024)
        assert server.sent() == []
        server.clock.advance(1 / 1024)
        assert server.sent() == ["WATCHDOG=1"]


def test_a_server_that_is_no_longer_ready_is_not_restarted() -> None:
    """Cut off from Redis it reports why and keeps sending WATCHDOG=1; READY=1 is not repeated."""
    server = Supervised()
    server.supervisor.startService()
    server.sent()
    server.reason = "no reply from Redis"
    server.clock.advance(STEP_SECONDS)
    assert server.sent() == ["WATCHDOG=1", "STATUS=Not ready: no reply from Redis"]
    server.reason = None
    server.clock.advance(STEP_SECONDS)
    assert server.sent() == ["WATCHDOG=1", "STATUS=Ready"]


def test_stopping() -> None:
    """It reports this at once, asks for the time it needs, and finally sends nothing."""
    server = Supervised()
    server.supervisor.startService()
    server.sent()
    server.reason = "this node is about to stop"
    server.supervisor.stopService()
    assert server.sent() == ["STOPPING=1", EXTEND, "STATUS=Stopping: answering held polls"]
    server.clock.advance(STEP_SECONDS)
    assert server.sent() == [EXTEND]
    server.server.stopped.callback(None)
    assert not server.is_open
    assert server.clock.getDelayedCalls() == []


def test_a_change_that_is_not_accepted_is_sent_again() -> None:
    """The supervisor's queue may be full: READY=1 and STOPPING=1 must not be lost, or it would end the server."""
    server = Supervised()
    server.accepts = False
    server.supervisor.startService()
    server.clock.advance(STARTING_STEP_SECONDS)
    server.accepts = True
    server.clock.advance(STARTING_STEP_SECONDS)
    assert server.sent() == ["READY=1", "WATCHDOG=1", "STATUS=Ready"]
    server.accepts = False
    server.supervisor.stopService()
    server.accepts = True
    server.clock.advance(STEP_SECONDS)
    assert server.sent() == ["STOPPING=1", EXTEND, "STATUS=Stopping: answering held polls"]
    server.clock.advance(STEP_SECONDS)
    assert server.sent() == [EXTEND]


def test_stopped_before_it_was_ready() -> None:
    """READY=1 is never sent."""
    server = Supervised()
    server.reason = "Redis was not reached yet"
    server.supervisor.startService()
    server.reason = None
    server.supervisor.stopService()
    assert "READY=1" not in server.sent()


def test_a_reason_of_several_lines_is_sent_as_one() -> None:
    """Otherwise a text from Redis could be read as a command."""
    server = Supervised()
    server.reason = "an odd\nREADY=1\nreason"
    server.supervisor.startService()
    assert server.sent() == [EXTEND, "STATUS=Starting: an odd READY=1 reason"]


def test_without_a_supervisor_nothing_is_done() -> None:
    """No timer runs without a supervisor."""
    clock = Clock()
    supervisor = SystemdNotifier(None, watchdog_seconds=1.0, clock=clock, why_not_ready=lambda: None)
    supervisor.startService()
    assert clock.getDelayedCalls() == []
    supervisor.stopService()
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
def test_the_watchdog_interval(environment: dict[str, str], seconds: float) -> None:
    """It is given in microseconds, and applies unless it names another process."""
    assert watchdog_seconds(environment, 7) == seconds
