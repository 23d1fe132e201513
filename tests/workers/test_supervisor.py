"""The crew starts workers and keeps them going: replacing, silence, stopping, new settings, and readiness."""

from __future__ import annotations

import errno
import signal
from collections.abc import Callable

import pytest
from msgspec import structs

from pushup.settings.settings import Settings
from pushup.transport.framed_link import Link, framed
from pushup.workers import control_protocol
from pushup.workers.supervisor import (
    ABORT_SECONDS,
    CHECK_SECONDS,
    FIRST_SIGN_SECONDS,
    RETRY_SECONDS,
    SILENCE_SECONDS,
    STEADY_SECONDS,
)
from tests.net.observed_log import logged_at
from tests.workers.stand_ins import KEY, Ship

LAST = RETRY_SECONDS[1]


def numbers(ship: Ship) -> list[int]:
    """Those of all workers so far."""
    return [worker.number for worker in ship.started]


# Starting, and readiness.


def test_all_workers_are_started() -> None:
    """Each with a number, and with the settings as the first thing that it hears."""
    ship = Ship(3)
    ship.turn()
    assert numbers(ship) == [1, 2, 3]
    assert [worker.heard for worker in ship.started] == [[control_protocol.Begin(ship.settings, KEY)]] * 3
    assert {worker.order for worker in ship.started} == {None}


def test_each_worker_has_a_link_for_the_order() -> None:
    """That which `attach` makes for it, under a name that operators see."""
    links: dict[str, Link] = {}

    def attach(name: str, on_end: Callable[[str], None]) -> Link:
        links[name] = Link(lambda body: None, on_end)
        return links[name]

    ship = Ship(attach=attach)
    assert [worker.order for worker in ship.started] == [links["worker 1"], links["worker 2"]]


def test_a_worker_that_cannot_be_started_at_first_is_an_error() -> None:
    """Of the server."""
    ship = Ship(begin=False)
    ship.errors = [OSError(errno.ENOMEM, "no memory")]
    with pytest.raises(OSError, match="no memory"):
        ship.crew.begin(ship.settings)


def test_all_are_ready() -> None:
    """That is told once, when each of them has said so; until then the reasons are shown."""
    ship = Ship(begin=False)
    assert ship.crew.why_not_ready() == "worker 1: it is not running; worker 2: it is not running"
    ship.crew.begin(ship.settings)
    one, two = ship.started
    assert ship.crew.why_not_ready() == "worker 1: it is starting; worker 2: it is starting"
    one.signs("loading")
    two.signs()
    assert (ship.readies, ship.crew.why_not_ready()) == (0, "worker 1: loading")
    one.signs()
    assert (ship.readies, ship.crew.why_not_ready()) == (1, None)
    one.signs("loading")
    one.signs()
    assert ship.readies == 1


def test_not_all_are_ready_while_one_is_being_replaced(logged_failures: list[str]) -> None:
    """It does not count less because it has ended."""
    ship = Ship(begin=False)
    ship.crew.begin(ship.settings)
    one, two = ship.started
    two.dies()
    one.signs()
    assert (ship.readies, ship.crew.why_not_ready()) == (0, "worker 2: it is not running")
    ship.advance(1.0)
    assert (ship.readies, ship.crew.why_not_ready()) == (1, None)
    logged_failures.clear()


def test_later_one_that_is_ready_is_enough(logged_failures: list[str]) -> None:
    """It serves all clients meanwhile."""
    ship = Ship()
    one, two = ship.started
    one.signs("the disk is full")
    assert ship.crew.why_not_ready() is None
    two.dies()
    assert ship.crew.why_not_ready() == "worker 1: the disk is full; worker 2: it is not running"
    one.dies()
    assert ship.crew.why_not_ready() == "worker 1: it is not running; worker 2: it is not running"
    logged_failures.clear()


# Replacing.


def test_a_worker_that_has_lived_is_replaced_at_once(logged_failures: list[str]) -> None:
    """By one with the same number; that is logged, with how it ended."""
    ship = Ship()
    ship.advance(STEADY_SECONDS + 0.1)
    ship.started[0].dies(-signal.SIGSEGV)
    ship.turn()
    assert numbers(ship) == [1, 2, 1]
    (line,) = logged_failures
    assert line == "worker 1 died (SIGSEGV) after 3 s and is being replaced; its clients reconnect to the others"
    logged_failures.clear()


def test_the_pause_doubles(logged_failures: list[str]) -> None:
    """While a worker keeps dying early, up to the longest; the others are not concerned."""
    ship = Ship()
    pauses = []
    for _ in range(9):
        ship.started[-1].dies()
        began = ship.clock.seconds()
        count = len(ship.started)
        while len(ship.started) == count:
            ship.advance(0.1)
        pauses.append(ship.clock.seconds() - began)
    expected = (RETRY_SECONDS[0], 1.0, 2.0, 4.0, 8.0, 16.0, LAST, LAST, LAST)
    assert all(pause <= found < pause + 0.2 for pause, found in zip(expected, pauses, strict=True)), pauses
    assert numbers(ship) == [1, *[2] * 10]
    logged_failures.clear()


def test_the_pause_has_a_limit_however_often_a_worker_has_died(logged_failures: list[str]) -> None:
    """Also after 1,024 times, when 2 to that power is no float."""
    ship = Ship(1)
    for count in range(1, 1100):
        ship.started[-1].dies()
        ship.turn()  # it is seen that the process has ended
        ship.clock.rightNow += LAST
        ship.turn()
        assert len(ship.started) == count + 1
    logged_failures.clear()


def test_one_that_has_lived_begins_the_pauses_anew(logged_failures: list[str]) -> None:
    """The next early death is a first one; each worker has its own pauses."""
    ship = Ship()
    for _ in range(3):
        ship.started[-1].dies()
        ship.advance(3.0)
    ship.started[0].dies()
    ship.advance(RETRY_SECONDS[0] + 0.1)
    assert numbers(ship) == [1, 2, 2, 2, 2, 1]
    ship.advance(STEADY_SECONDS)
    ship.started[4].dies()
    ship.turn()
    assert numbers(ship)[-1] == 2
    ship.started[-1].dies()
    ship.advance(RETRY_SECONDS[0] + 0.1)
    assert len(ship.started) == 8
    logged_failures.clear()


def test_deaths_are_logged_once_a_minute(logged_failures: list[str]) -> None:
    """Of each worker, with their number."""
    ship = Ship()
    while len(ship.started) < 8:
        ship.started[-1].dies()
        ship.advance(LAST / 2)
    ship.started[0].dies()
    lines = [line.partition("; its clients")[0] for line in logged_failures]
    assert lines[0] == "worker 2 died (exit status 1) after 0 s and is being replaced"
    assert lines[1].endswith("and is being replaced (5 times since last logged)")
    assert lines[2].startswith("worker 1 died")
    assert len(lines) == 3
    logged_failures.clear()


def test_a_worker_that_stops_by_itself_is_replaced() -> None:
    """Somebody has sent it SIGTERM; that is no error."""
    ship = Ship()
    ship.advance(STEADY_SECONDS + 0.1)
    with logged_at("info") as lines:
        ship.started[1].dies(0)
        ship.turn()
    assert lines == ["worker 2 has stopped and is being replaced"]
    assert numbers(ship) == [1, 2, 2]


def test_a_process_may_end_a_little_later_than_its_link(logged_failures: list[str]) -> None:
    """It is replaced when it has ended, not before."""
    ship = Ship()
    ship.advance(STEADY_SECONDS + 0.1)
    ship.started[0].closes_its_links()
    ship.advance(3 * CHECK_SECONDS, silent=(ship.started[0],))
    assert numbers(ship) == [1, 2]
    ship.started[0].status = 1
    ship.advance(2 * CHECK_SECONDS)
    assert numbers(ship) == [1, 2, 1]
    logged_failures.clear()


def test_a_process_that_goes_on_without_a_link_is_ended(logged_failures: list[str]) -> None:
    """As one that is silent: nobody can tell it to stop."""
    ship = Ship()
    ship.started[0].closes_its_links()
    ship.advance(SILENCE_SECONDS - 0.1, silent=(ship.started[0],))
    assert ship.started[0].signals == []
    ship.advance(1.5 + ABORT_SECONDS, silent=(ship.started[0],))
    assert ship.started[0].signals == [signal.SIGABRT, signal.SIGKILL]
    logged_failures.clear()


def test_a_worker_that_cannot_be_started_again_is_tried_later(logged_failures: list[str]) -> None:
    """Every half minute; that is logged once a minute."""
    ship = Ship()
    ship.errors = [OSError(errno.EAGAIN, "too many processes")] * 3
    ship.started[0].dies()
    ship.advance(1.0)
    assert (numbers(ship), len(ship.errors)) == ([1, 2], 2)
    logged = [line for line in logged_failures if "cannot start worker 1" in line]
    assert len(logged) == 1
    assert "too many processes" in logged[0]
    ship.advance(2 * LAST + 1.0)
    assert (numbers(ship), len(ship.errors)) == ([1, 2], 0)
    ship.advance(LAST)
    assert numbers(ship) == [1, 2, 1]
    assert len([line for line in logged_failures if "cannot start" in line]) == 2
    logged_failures.clear()


# Silence.


def test_a_silent_worker_is_killed(logged_failures: list[str]) -> None:
    """First with a signal that shows where it is stuck; one second later for good. The others are not."""
    ship = Ship()
    stuck, good = ship.started
    ship.advance(SILENCE_SECONDS - 0.5, silent=(stuck,))
    assert stuck.signals == []
    while not stuck.signals:
        ship.advance(0.1, silent=(stuck,))
    assert stuck.signals == [signal.SIGABRT]
    assert ship.clock.seconds() < 1000.0 + SILENCE_SECONDS + 1.5
    assert "killing worker 1: no heartbeat for" in logged_failures[0]
    ship.advance(ABORT_SECONDS, silent=(stuck,))
    ship.advance(20.0, silent=(stuck,))
    assert (stuck.signals, good.signals) == ([signal.SIGABRT, signal.SIGKILL], [])
    stuck.dies(-signal.SIGKILL)
    ship.turn()
    assert (numbers(ship), len(logged_failures)) == ([1, 2, 1], 2)
    logged_failures.clear()


def test_a_new_worker_may_be_silent_for_longer(logged_failures: list[str]) -> None:
    """It has to start an interpreter, perhaps on a busy machine; after its first sign it may not."""
    ship = Ship(begin=False)
    ship.crew.begin(ship.settings)
    one, two = ship.started
    two.signs()
    ship.advance(SILENCE_SECONDS + 1.5, silent=(one, two))
    assert (one.signals, two.signals[0]) == ([], signal.SIGABRT)
    ship.advance(FIRST_SIGN_SECONDS - SILENCE_SECONDS - 2.5, silent=(one, two))
    assert one.signals == []
    ship.advance(2.5, silent=(one, two))
    assert one.signals[0] == signal.SIGABRT
    logged_failures.clear()


@pytest.mark.parametrize("pause", [2.0, SILENCE_SECONDS + 3.0, 100.0, 86400.0])
def test_after_a_pause_of_all_processes_workers_have_their_time_again(pause: float) -> None:
    """Ctrl-Z, a frozen container, a suspended host: nobody ran, so nobody was silent; a new worker was not, either."""
    ship = Ship(3, begin=False)
    ship.crew.begin(ship.settings)
    *old, new = ship.started
    for worker in old:
        worker.signs()
    ship.advance(3.0, silent=(old[0], new))
    for _ in range(3):
        ship.clock.rightNow += pause
        ship.turn()  # the parent is the first to run again
        ship.advance(3.0, silent=(old[0], new))
        old[0].signs()
    assert [worker.signals for worker in ship.started] == [[], [], []]


def test_a_worker_that_stays_silent_after_a_pause_is_killed(logged_failures: list[str]) -> None:
    """A pause does not save it for long, and what it missed before counts; nor do many pauses."""
    ship = Ship()
    stuck, good = ship.started
    ship.advance(SILENCE_SECONDS / 2, silent=(stuck,))
    for _ in range(8):
        ship.clock.rightNow += 13.0
        ship.turn()
        good.signs()
    assert (stuck.signals[:1], good.signals) == ([signal.SIGABRT], [])
    logged_failures.clear()


def test_what_cannot_be_read_is_logged(logged_failures: list[str]) -> None:
    """The worker goes on: what it said before and after counts."""
    ship = Ship()
    ship.started[0].says_bytes(framed(b"nonsense"))
    ship.started[0].signs("loading")
    assert ["malformed message from worker 1" in line for line in logged_failures] == [True]
    ship.started[1].signs("also")
    assert ship.crew.why_not_ready() == "worker 1: loading; worker 2: also"
    logged_failures.clear()


def test_a_worker_that_was_given_up_is_killed_at_once(logged_failures: list[str]) -> None:
    """Before anybody else is told that its link has ended: from then on nobody waits for it."""
    ends: list[Callable[[str], None]] = []
    told: list[list[int]] = []

    def attach(name: str, on_end: Callable[[str], None]) -> Link:
        def ended(reason: str) -> None:
            on_end(reason)
            told.append([*ship.started[0].signals])

        ends.append(on_end)
        return Link(lambda body: None, ended)

    ship = Ship(attach=attach)
    slow = ship.started[0]
    assert slow.order is not None
    slow.order.abort("it is more than 64 MiB behind")
    ship.clock.turn()
    assert told == [[signal.SIGKILL]]
    assert logged_failures == ["killed worker 1: it is more than 64 MiB behind"]
    ship.advance(SILENCE_SECONDS + 3.0, silent=(slow,))
    slow.dies(-signal.SIGKILL)
    ship.advance(1.0)
    assert (slow.signals, numbers(ship)) == ([signal.SIGKILL], [1, 2, 1])
    logged_failures.clear()


def test_a_silent_worker_that_was_given_up_is_killed_at_once_too(logged_failures: list[str]) -> None:
    """It does not get the time to write where it is stuck."""
    ship = Ship(attach=lambda name, on_end: Link(lambda body: None, on_end))
    slow = ship.started[0]
    while not slow.signals:
        ship.advance(0.1, silent=(slow,))
    assert slow.order is not None
    slow.order.abort("it is more than 64 MiB behind")
    ship.clock.turn()
    assert slow.signals == [signal.SIGABRT, signal.SIGKILL]
    logged_failures.clear()


def test_a_worker_that_ends_its_order_itself_is_not_killed() -> None:
    """It stops, and drains its clients."""
    ship = Ship(attach=lambda name, on_end: Link(lambda body: None, on_end))
    ship.started[0].order_end.die()
    ship.advance(1.0)
    assert ship.started[0].signals == []


# Stopping.


def test_stopping_lets_all_drain() -> None:
    """It is over when all have ended; nobody is replaced, and nothing is left to do."""
    ship = Ship()
    stopped = ship.crew.stop(30.0)
    ship.turn()
    assert [worker.heard[-1] for worker in ship.started] == [control_protocol.Stop()] * 2
    ship.started[0].dies(0)
    ship.advance(20.0)
    assert (stopped.called, [worker.signals for worker in ship.started]) == (False, [[], []])
    ship.started[1].dies(0)
    assert stopped.called
    ship.turn()
    assert (len(ship.started), ship.clock.getDelayedCalls()) == (2, [])


def test_stopping_after_one_was_replaced(logged_failures: list[str]) -> None:
    """Those that run now are to stop."""
    ship = Ship()
    ship.started[0].dies()
    ship.advance(1.0)
    stopped = ship.crew.stop(30.0)
    ship.turn()
    assert [worker.heard[-1] for worker in ship.started[1:]] == [control_protocol.Stop()] * 2
    for worker in ship.started[1:]:
        worker.dies(0)
    assert stopped.called
    logged_failures.clear()


def test_stopping_without_workers(logged_failures: list[str]) -> None:
    """All have died, and wait to be replaced: they are not."""
    ship = Ship()
    for worker in ship.started:
        worker.dies()
    stopped = ship.crew.stop(30.0)
    assert stopped.called
    ship.advance(LAST)
    assert (len(ship.started), ship.clock.getDelayedCalls()) == (2, [])
    logged_failures.clear()


def test_stopping_while_one_is_about_to_be_replaced(logged_failures: list[str]) -> None:
    """It is not started any more, and not waited for; nor if starting it has failed."""
    for errors in ([], [OSError(errno.EAGAIN, "no")]):
        ship = Ship()
        ship.errors = errors
        ship.started[0].dies()
        ship.advance(0.3 if not errors else 1.0)
        stopped = ship.crew.stop(30.0)
        ship.started[1].dies(0)
        assert stopped.called
        ship.advance(LAST)
        assert (numbers(ship), ship.clock.getDelayedCalls()) == ([1, 2], [])
    logged_failures.clear()


def test_a_worker_that_does_not_stop_is_killed(logged_failures: list[str]) -> None:
    """After the time for it; then stopping is over, too."""
    ship = Ship()
    good, stuck = ship.started
    stopped = ship.crew.stop(30.0)
    good.dies(0)
    ship.advance(29.8)
    assert stuck.signals == []
    ship.advance(0.3 + ABORT_SECONDS)
    assert (stuck.signals, good.signals, stopped.called) == ([signal.SIGABRT, signal.SIGKILL], [], False)
    stuck.dies(-signal.SIGKILL)
    assert (stopped.called, ship.clock.getDelayedCalls()) == (True, [])
    assert logged_failures == ["killing worker 2: it did not stop within 30 s"]
    logged_failures.clear()


def test_a_worker_that_dies_while_stopping_is_no_error(logged_failures: list[str]) -> None:
    """It is not replaced."""
    ship = Ship()
    stopped = ship.crew.stop(30.0)
    for worker in ship.started:
        worker.dies(-signal.SIGSEGV)
    assert (stopped.called, logged_failures) == (True, [])


# New settings.


def with_log_level(settings: Settings, level: str) -> Settings:
    return structs.replace(settings, server=structs.replace(settings.server, log_level=level))


def test_new_settings_reach_all(logged_failures: list[str]) -> None:
    """And those that start later begin with them, also one that was waiting to be replaced."""
    ship = Ship()
    ship.started[1].dies()
    settings = with_log_level(ship.settings, "debug")
    ship.crew.reload(settings)
    ship.turn()
    assert ship.started[0].heard == [control_protocol.Begin(ship.settings, KEY), control_protocol.Reload(settings)]
    ship.advance(1.0)
    ship.advance(STEADY_SECONDS)
    ship.started[0].dies()
    ship.turn()
    assert [worker.heard for worker in ship.started[2:]] == [[control_protocol.Begin(settings, KEY)]] * 2
    logged_failures.clear()
