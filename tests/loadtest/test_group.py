"""The group communication service in real processes, by both drivers, and what the experiment makes of it."""

from __future__ import annotations

import os
import shutil
import socket
import threading
import time
from pathlib import Path

import pytest

from loadtest.mishra import complexity, experiment, latency, micro_costs, team, thread_based, throughput
from loadtest.mishra.core.settings import Settings, Timeout
from loadtest.mishra.event_based import TimeoutQueue
from loadtest.mishra.latency import STRICT_NONE, STRONG_TIME, TABLE_1, TABLE_2, TABLE_3, WEAK_NONE, WEAK_TOTAL, measured
from loadtest.mishra.requests import Report
from loadtest.mishra.service import Service
from loadtest.mishra.team import DRIVERS, Load, can_prioritize
from loadtest.mishra.thread_based import Timer
from tests.loadtest.readable import assert_readable

pytestmark = pytest.mark.xdist_group("group")

SETTINGS = Settings(decision=2.0, election=0.5, late=5.0, termination=10.0, precision=0.2)
"""Patient, for the machine may be busy: here nobody is to be suspected."""


@pytest.mark.parametrize("driver", DRIVERS)
def test_three_members_deliver_everything(driver: str) -> None:
    """Each member delivers every update once, with each semantics, and their proposers learn that they are stable."""
    with team.running(driver, settings=SETTINGS) as members:
        for semantics in (WEAK_NONE, WEAK_TOTAL, STRICT_NONE, STRONG_TIME):
            reports = members.give(Load(semantics, 0.01, 0.5))
            assert [report.accepted for report in reports] == [17, 17, 16]
            late = sum(report.outcomes.get("LATE", 0) for report in reports)
            assert [report.delivery_count for report in reports] == [50 - late] * 3
            assert sum(report.outcomes.get("STABLE", 0) for report in reports) == 50 - late
            assert late == 0 or semantics is STRONG_TIME
            result = measured(reports, 0.5)
            assert result.delivery > 0
            assert result.stability > 0
            assert result.messages > 1
            assert (result.refused, result.left) == (0, "-")


@pytest.mark.parametrize("driver", DRIVERS)
def test_two_go_on_when_one_is_killed(driver: str) -> None:
    """After a kill -9 the others are a group of two, which takes updates."""
    with team.running(driver) as members:
        before = members.ask(0).view
        members.processes[2].kill()
        assert members.wait_for_group([0, 1]) > before
        members.processes[2].wait()
        with pytest.raises(RuntimeError, match="has ended"):
            members.ask(2)


def test_threads_need_more_context_switches_than_events() -> None:
    """With the same load, an event costs threads more of them, and the event loop about one `select` (§5.3)."""
    found = {}
    for driver in DRIVERS:
        with team.running(driver, settings=SETTINGS) as members:
            found[driver] = measured(members.give(Load(WEAK_TOTAL, 0.005, 1.0)), 1.0)
    assert found["threads"].switches > found["events"].switches
    assert found["threads"].selects == 0 < found["events"].selects < 2


def test_the_tables_have_the_papers_rows() -> None:
    """Tables 1 to 3 exactly, each value beside the paper's."""
    tables, _ = latency.measure(seconds=0.2, rounds=1, priorities=False, intervals_ms=(10,))
    for table, paper in zip(tables, (TABLE_1, TABLE_2, TABLE_3), strict=False):
        assert [row[:2] for row in map(tuple, table.rows)] == [(driver, kind.name) for driver, kind in paper]
        assert [row[2] for row in table.rows] == [values[-1] for values in paper.values()]
        assert all(float(row[3]) > 0 for row in table.rows)
    assert len(tables[3].rows) == 10


def test_the_figures_have_both_lines() -> None:
    """A point for each rate, of several rounds, and the table says up to which rate both keep up."""
    (points, saturation), figures = throughput.measure((50,), seconds=0.3, priorities=False, rounds=2)
    assert len(points.rows) == 6
    assert all((row[2] == "events") == (float(row[8]) > 0) for row in points.rows), "threads call no select"
    assert [figure.name for figure in figures] == [f"group-figure-{number}" for number in (1, 2, 3)]
    for figure in figures:
        assert {name: [x for x, _ in line] for name, line in figure.lines.items()} == {
            driver: [50] for driver in DRIVERS
        }
        for name, ((_, middle),) in figure.lines.items():
            ((least, most),) = figure.spreads[name]
            assert least <= middle <= most
        assert all(any(y > 0 for _, y in line) for line in figure.lines.values())
    assert [row[0] for row in saturation.rows] == [1, 2, 3]


def test_a_team_that_gives_up_is_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run goes on, and the table says what happened."""

    def give(self: team.Team, load: Load) -> list[Report]:
        del load
        self.processes[0].kill()
        self.processes[0].wait()
        return self.reports()

    monkeypatch.setattr(team.Team, "give", give)
    (points, _), _ = throughput.measure((50,), seconds=0.1, priorities=False)
    assert {row[4] for row in points.rows} == {0.0}
    assert all("has ended" in str(row[-1]) for row in points.rows)


def test_a_timeout_goes_before_a_message_and_the_clocks_before_others() -> None:
    """The queue is sorted by time, but a clock timeout that is due comes first (§4)."""
    queue = TimeoutQueue()
    queue.register({Timeout.ELECTION: 3.0, Timeout.DECIDER: 1.0, Timeout.CLOCK: 2.0})
    assert queue.wait_seconds(0.5) == 0.5
    assert [queue.take(2.5) for _ in range(3)] == [Timeout.CLOCK, Timeout.DECIDER, None]
    assert queue.wait_seconds(2.5) == 0.5
    assert queue.take(3.0) is Timeout.ELECTION
    assert queue.wait_seconds(4.0) is None


def test_a_timer_waits_for_its_time() -> None:
    """It is woken when the time is moved forward, and does not return before a time that was moved back."""
    timer = Timer()
    timer.set(time.monotonic() + 60)
    timer.set(time.monotonic() + 0.05)
    later = time.monotonic() + 0.15
    timer.set(later)
    timer.wait()
    assert time.monotonic() >= later


def test_no_two_threads_run_a_function_at_a_time() -> None:
    """The semaphore encloses each; without it, several would be inside."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        service = Service(0, peers=[], messages=sock, clients=sock, settings=Settings(team=1))
        driver = thread_based.Threads(service, priorities=False)
        inside: list[int] = []
        most: list[int] = []

        def function() -> None:
            inside.append(1)
            most.append(len(inside))
            time.sleep(0.001)
            inside.pop()

        def invoke_often() -> None:
            for _ in range(10):
                driver._invoke(function)

        threads = [threading.Thread(target=invoke_often) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert most == [1] * 50


def test_priorities_are_as_in_the_paper() -> None:
    """All six threads are scheduled first in, first out, the clock's with a higher priority; so is the event loop."""
    if not can_prioritize():
        with pytest.raises(PermissionError):
            thread_based.run(None, priorities=True)  # type: ignore[arg-type]
        return
    with team.running("threads", settings=SETTINGS, priorities=True) as members:
        pid = members.processes[0].pid
        found = scheduling(pid)
    assert len(found) == 7  # the main thread waits for the six
    assert sorted(found)[-2:] == [(1, 1), (1, 2)]
    with team.running("events", settings=SETTINGS, priorities=True) as members:
        assert scheduling(members.processes[0].pid) == [(1, 1)]


def scheduling(pid: int) -> list[tuple[int, int]]:
    """Of each thread, its policy and its priority."""
    return [
        (os.sched_getscheduler(int(thread)), os.sched_getparam(int(thread)).sched_priority)
        for thread in os.listdir(f"/proc/{pid}/task")
    ]


def test_micro_costs() -> None:
    """Of each row, all three are measured; C is there if there is a compiler, and then Python's share.

    A round takes a few milliseconds. One that is interrupted does not change the median of nine.
    """
    table = micro_costs.measure(count=400, rounds=9)
    names = [row[0] for row in table.rows]
    assert names[1] == "Python"
    assert len(names) == (4 if shutil.which("cc") else 2)
    for row in table.rows[:3]:
        assert all(float(value) > 0 for value in row[1:])
    python = dict(zip(table.columns, table.rows[1], strict=True))
    assert float(python["thread switch us"]) > float(python["select us"])


SOURCE = '''"""Text."""
import threading


def run():
    """More
    text."""
    # why
    lock = threading.Lock()
    with lock:
        lock.wait(
            1)
'''


def test_complexity_is_counted() -> None:
    """Lines without comments and docstrings; objects, uses and waits where there are threads."""
    counted = complexity.count(SOURCE)
    assert counted == complexity.Counted(lines=6, functions=1, objects=1, uses=2, waits=2)
    assert (complexity.states(1), complexity.states(2), complexity.states(6)) == (2, 8, 256)
    events, threads = complexity.measure().rows
    assert events[4:7] == (0, 0, 0)
    assert all(float(more) > float(less) for more, less in zip(threads[1:], events[1:], strict=True))


def test_the_experiment_has_every_item(tmp_path: Path) -> None:
    """All tables and figures come out of one run, and say how the threads were scheduled."""
    scale = experiment.QUICK._replace(seconds=0.05, rates=(50,), rate_seconds=0.1)
    tables, figures = experiment.measure(scale)
    assert [table.name for table in tables] == [
        "group-delivery", "group-stability", "group-messages", "group-latency", "group-throughput", "group-saturation",
        "group-micro-costs", "group-complexity",
    ]  # fmt: skip
    assert len(figures) == 3
    assert_readable("group", tables, tmp_path)
    assert "scheduled" in tables[0].title
