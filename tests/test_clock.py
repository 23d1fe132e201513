"""The steady time, and what the reactor's timers run on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise

import pytest
from twisted.internet.base import ReactorBase

from pushup.clock import LOG_SECONDS, SLEW, SteadyTime, use_monotonic_clock
from tests.net.observed_log import logged_at

START = 1_800_000_000.0


class Machine:
    """A machine whose clock can be set; `run` lets a server on it look at its clock every second."""

    def __init__(self) -> None:
        self.wall = START
        self.uptime = 5_000.0
        self.steady_time = SteadyTime(lambda: self.wall, lambda: self.uptime)
        self.seen = [self.steady_time()]

    def run(self, seconds: float, *, drift: float = 0.0) -> None:
        """Let time pass; each second the wall clock gains `drift`."""
        for _ in range(round(seconds)):
            self.wall += 1 + drift
            self.uptime += 1
            self.steady_time.watch()
            self.seen.append(self.steady_time())

    def pause(self, seconds: float) -> None:
        """Suspend the machine."""
        self.wall += seconds
        self.uptime += seconds


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def lines() -> Iterator[list[str]]:
    with logged_at("warn") as lines:
        yield lines


def test_it_is_the_wall_clock_while_that_is_not_set(machine: Machine, lines: list[str]) -> None:
    """It starts there, counts the seconds between two looks as well, and logs nothing."""
    assert machine.steady_time() == START
    machine.run(1000)
    assert machine.steady_time() == START + 1000
    machine.uptime += 0.25
    assert machine.steady_time() == START + 1000.25
    assert lines == []


@pytest.mark.parametrize("jump", [7200.0, -3600.0, 1.5])
def test_a_jump_is_logged_once_and_not_followed(machine: Machine, lines: list[str], jump: float) -> None:
    """The line says by how much; time goes on at nearly the same rate, and never decreases."""
    machine.run(10)
    machine.wall += jump
    machine.run(1000)
    assert abs(machine.steady_time() - (START + 1010)) <= 1000 * SLEW
    assert all(0.998 < later - earlier < 1.002 for earlier, later in pairwise(machine.seen))
    (line,) = lines
    assert line.startswith(f"the system clock jumped by {jump:+.1f} s. ")


def test_many_jumps_take_a_line_a_minute(machine: Machine, lines: list[str]) -> None:
    """A line has the sum of the jumps since the last; jumps there and back that were not logged yet take none."""
    machine.run(1)
    for _ in range(10):
        machine.wall += 10
        machine.run(1)
    assert [line.partition(". ")[0].rpartition(" by ")[2] for line in lines] == ["+10.0 s"]
    machine.run(LOG_SECONDS)
    machine.wall -= 5
    machine.run(1)
    machine.wall += 5
    machine.run(2 * LOG_SECONDS)
    assert [line.partition(". ")[0].rpartition(" by ")[2] for line in lines] == ["+10.0 s", "+90.0 s"]


@pytest.mark.parametrize("offset", [0.5, -0.5])
def test_a_small_difference_is_made_up_for_slowly(machine: Machine, lines: list[str], offset: float) -> None:
    """At a bounded rate, without going past it, without a step, and without a line."""
    machine.wall += offset
    machine.run(abs(offset) / SLEW / 2)
    assert machine.wall - machine.steady_time() == pytest.approx(offset / 2, abs=0.01)
    machine.run(abs(offset) / SLEW)
    assert machine.wall - machine.steady_time() == pytest.approx(0.0, abs=1e-4)
    assert all(0.998 < later - earlier < 1.002 for earlier, later in pairwise(machine.seen))
    assert lines == []


@pytest.mark.parametrize("drift", [SLEW / 2, -SLEW / 2])
def test_drift_is_followed(machine: Machine, lines: list[str], drift: float) -> None:
    """The difference stays at what one look cannot know."""
    machine.run(5000, drift=drift)
    assert abs(machine.wall - machine.steady_time()) <= 2 * SLEW
    assert lines == []


def test_a_suspended_machine_counts_the_time(machine: Machine, lines: list[str]) -> None:
    """Messages have become older meanwhile, as while a server is down, and nothing has jumped."""
    machine.run(10)
    machine.pause(7200.0)
    assert machine.steady_time() == START + 10 + 7200
    machine.run(10)
    assert machine.steady_time() == START + 20 + 7200
    assert lines == []


@pytest.mark.parametrize("offset", [0.5, -0.5])
def test_a_suspension_while_it_makes_up_for_a_difference(machine: Machine, lines: list[str], offset: float) -> None:
    """Nobody looks for hours, and it does not go past the wall clock."""
    machine.wall += offset
    machine.run(100)
    machine.pause(8 * 3600.0)
    machine.run(1)
    assert (machine.wall - machine.steady_time()) / offset == pytest.approx(0.8, abs=0.01)
    assert lines == []


def test_the_reactor_waits_on_the_monotonic_clock() -> None:
    """Its own time is the monotonic one, and so is that of its timers, when they are made and when they are moved."""
    reactor = _Reactor()
    use_monotonic_clock(reactor)
    before = time.monotonic()
    call = reactor.callLater(10.0, lambda: None)
    assert before <= reactor.seconds() <= time.monotonic()
    assert before + 10 <= call.getTime() <= time.monotonic() + 10
    call.reset(20.0)
    assert before + 20 <= call.getTime() <= time.monotonic() + 20
    timeout = reactor.timeout()
    assert timeout is not None
    assert 0 <= timeout <= 20


class _Reactor(ReactorBase):
    """The part that all reactors share."""

    def __init__(self) -> None:
        self._registerAsIOThread = False
        super().__init__()

    def installWaker(self) -> None:
        """Nothing wakes it: it does not run."""
