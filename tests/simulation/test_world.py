"""Simulated time: events, processes, clocks and timers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tests.simulation.world import START, Clock, Process, World


class Notes:
    """What happened, with the seconds since the beginning."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.lines: list[str] = []

    def __call__(self, text: str) -> Callable[[], None]:
        return lambda: self.lines.append(f"{self.world.now - START:g} {text}")

    def taken(self) -> list[str]:
        lines, self.lines = self.lines, []
        return lines


@pytest.fixture
def world() -> World:
    return World("test")


@pytest.fixture
def note(world: World) -> Notes:
    return Notes(world)


def test_events_happen_in_order(world: World, note: Notes) -> None:
    """By time, and those of one time as they were added; what an event adds for now comes after what was there."""
    world.at(START + 2, note("c"))

    def add_another() -> None:
        note("a")()
        world.later(0, note("a again"))

    world.at(START + 1, add_another)
    world.at(START + 1, note("b"))
    world.at(START - 5, note("first"))
    world.run(START + 1.5)
    assert note.taken() == ["0 first", "1 a", "1 b", "1 a again"]
    assert world.now == START + 1.5
    world.run(START + 2)
    assert note.taken() == ["2 c"]


def test_a_paused_process_does_everything_when_it_is_resumed(world: World, note: Notes) -> None:
    """In the order in which it would have been done; others go on meanwhile."""
    process = Process(world, "p")
    process.pause()
    process.later(2, note("b"))
    process.later(1, note("a"))
    world.later(2, note("nobody"))
    world.later(3, process.resume)
    world.run(START + 4)
    assert note.taken() == ["2 nobody", "3 a", "3 b"]


def test_a_dead_process_does_nothing_more(world: World, note: Notes) -> None:
    """Not even what was postponed; the operating system tidies up once."""
    process = Process(world, "p")
    was_paused: list[bool] = []
    process.on_death += [note("tidied up"), lambda: was_paused.append(process.paused)]
    process.later(1, note("never"))
    process.later(3, note("never"))
    process.pause()
    for seconds in (2, 2.5):
        world.later(seconds, process.die)
    world.later(2.6, process.resume)
    world.run(START + 4)
    assert note.taken() == ["2 tidied up"]
    assert not process.alive
    assert was_paused == [False]  # it is dead instead


def test_an_event_is_a_turn_of_its_process(world: World) -> None:
    """Its work counts from 0, and the longest turn is remembered; during it, the process is the one that runs."""
    process, seen = Process(world, "p"), list[Process | None]()

    def do(work: int) -> None:
        seen.append(world.running)
        world.work += work

    for seconds, work in ((1, 5), (2, 9), (3, 7)):
        process.later(seconds, partial(do, work))
    world.run(START + 4)
    assert seen == [process] * 3
    assert world.running is None
    assert world.longest_turn == 9
    assert world.event_count == 3


def test_the_wall_clock_jumps_and_the_monotonic_one_does_not(world: World, note: Notes) -> None:
    """A timer that was set before the jump fires at its time."""
    process = Process(world, "p")
    process.reactor.callLater(5, note("timer"))
    process.clock.jump(-3600)
    assert process.clock.wall() == START - 3600
    assert process.reactor.seconds() == process.clock.monotonic() == 1000
    process.later(1, lambda: process.clock.jump(7200))
    world.run(START + 10)
    assert note.taken() == ["5 timer"]
    assert process.clock.wall() == START + 10 + 3600
    assert process.reactor.seconds() == 1010


@pytest.mark.parametrize(("drift", "fires_at"), [(0.25, 8.0), (-0.2, 12.5)])
def test_a_clock_that_drifts(world: World, note: Notes, drift: float, fires_at: float) -> None:
    """Timers go by it: a fast clock's fire early, by true time."""
    process = Process(world, "p", Clock(world, drift))
    process.reactor.callLater(10, note("timer"))
    world.run(START + 20)
    assert note.taken() == [f"{fires_at:g} timer"]
    assert process.clock.monotonic() == pytest.approx(1000 + 20 * (1 + drift))
    assert process.clock.wall() == pytest.approx(START + 20 * (1 + drift))


def test_timers(world: World, note: Notes) -> None:
    """They fire in order, each in a turn of its own; a cancelled one does not, and is not counted."""
    reactor = Process(world, "p").reactor
    reactor.callLater(2, note("b"))
    cancelled = reactor.callLater(1.5, note("never"))
    first = reactor.callLater(1, note("a"))
    reactor.callLater(0, lambda text: note(text)(), "now")
    cancelled.cancel()
    assert (reactor.active_calls, len(reactor.getDelayedCalls())) == (3, 3)
    assert not cancelled.active()
    world.run(START + 1.2)
    assert note.taken() == ["0 now", "1 a"]
    assert not first.active()
    with pytest.raises(AssertionError):
        first.cancel()
    world.run(START + 9)
    assert note.taken() == ["2 b"]
    assert reactor.active_calls == 0
    assert world.event_count >= 3


def test_a_timer_never_fires_before_its_time(world: World) -> None:
    """By its own clock, whatever is rounded: a timer set again for the rest would never end."""
    for number in range(200):
        reactor = Process(world, "p", Clock(world, world.random(number).uniform(-1e-4, 1e-4))).reactor
        due = reactor.seconds() + 1.0
        early = list[float]()
        reactor.callLater(1.0, lambda reactor=reactor, due=due, early=early: early.append(due - reactor.seconds()))
        world.run(world.now + 1.01)
        assert early[0] <= 0


def test_timers_of_a_paused_and_of_a_dead_process(world: World, note: Notes) -> None:
    """A paused process' timers fire when it is resumed, a dead one's never."""
    paused, dead = Process(world, "paused"), Process(world, "dead")
    for process in (paused, dead):
        process.reactor.callLater(1, note(process.name))
    paused.pause()
    world.later(0.5, dead.die)
    world.later(3, paused.resume)
    world.run(START + 9)
    assert note.taken() == ["3 paused"]


def test_random_numbers_of_one_part_do_not_depend_on_others() -> None:
    """Each name has numbers of its own, the same for the same seed."""
    world = World("1")
    first = world.random("disk", "n0").random()
    world.random("link").random()
    assert world.random("disk", "n0").random() == first
    assert len({first, world.random("disk", "n1").random(), World("2").random("disk", "n0").random()}) == 3


def test_the_digest_is_of_the_whole_story() -> None:
    """What is told, when, and in which order."""

    def digest(*told: tuple[float, str]) -> str:
        world = World("1")
        for seconds, text in told:
            world.run(START + seconds)
            world.tell(text)
        return world.digest

    assert digest((1, "a"), (2, "b")) == digest((1, "a"), (2, "b"))
    others = [digest((1, "a"), (2, "b")), digest((1, "b"), (2, "a")), digest((1, "a"), (3, "b")), digest((1, "a"))]
    assert len(set(others)) == 4
