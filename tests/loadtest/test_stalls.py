from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from threading import Timer

import pytest

from loadtest.beyond import stalls
from loadtest.beyond.stalls import Sizes
from loadtest.beyond.stalls_client import watch
from loadtest.beyond.stalls_probe import LongestTurn, TimedPoller, Turn
from loadtest.load.servers import running

pytestmark = pytest.mark.xdist_group("stalls")

TINY = Sizes(
    channels=50, messages=150, more_messages=300, publications=3, batch=5, closing=3, closing_messages=10
)  # fmt: skip

FROZEN_SECONDS = 0.5


def test_each_situation_is_measured() -> None:
    """A row for each: what was to happen has happened, and the server was asked all the time."""
    ((table,), _) = stalls.measure(TINY)
    assert [(str(row[0]).partition(",")[0], row[1]) for row in table.rows] == [
        ("start", "redis"),
        ("new epoch", "redis"),
        ("start", "redis"),
        ("backlog", "redis"),
        ("expiry", "redis"),
        ("opening", "redis"),
        ("start", "journal"),
        ("expiry", "journal"),
        ("opening", "journal"),
    ]
    for row in table.rows:
        turn, processor, poll, health, answers, done_after, peak = map(float, row[2:])
        assert turn >= processor > 0
        assert min(poll, health, done_after) > 0
        assert answers > 50
        assert peak > 20


def test_answers_are_late_while_the_server_is_stuck() -> None:
    """A poll and a GET /healthz that are sent meanwhile count with all of their time."""
    with running() as server:
        thaw = Timer(FROZEN_SECONDS, os.kill, (server.pid, signal.SIGCONT))

        def freeze() -> None:
            os.kill(server.pid, signal.SIGSTOP)
            thaw.start()

        waits = watch(server, target="/healthz", is_done=lambda seen: seen.status == 200, act=freeze)
        thaw.join()
    assert waits.poll > FROZEN_SECONDS / 2
    assert waits.health > FROZEN_SECONDS / 2


def test_what_does_not_happen_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the server never answers as expected, there is no result."""
    monkeypatch.setattr("loadtest.beyond.stalls_client.LIMIT_SECONDS", 0.2)
    with running() as server, pytest.raises(RuntimeError, match="GET /healthz"):
        watch(server, target="/healthz", is_done=lambda seen: seen.status == 418)


class _Process:
    """Two clocks and an epoll: each wait takes `wait` seconds by the clock and none of the processor's."""

    def __init__(self) -> None:
        self.wall = self.processor = 100.0
        self.wait = 0.0
        self.asked: list[tuple[float, int]] = []

    def poll(self, timeout: float, most: int) -> list[tuple[int, int]]:
        self.asked.append((timeout, most))
        self.wall += self.wait
        return [(7, 1)]

    def register(self, fd: int, mask: int) -> str:
        return f"{fd} registered for {mask}"

    def work(self, wall: float, processor: float) -> None:
        self.wall += wall
        self.processor += processor


@pytest.fixture
def longest(tmp_path: Path) -> Iterator[LongestTurn]:
    """As the experiment sees it."""
    longest = LongestTurn(tmp_path / "turns")
    yield longest
    longest.close()


@pytest.fixture
def process() -> _Process:
    return _Process()


@pytest.fixture
def poller(process: _Process, longest: LongestTurn, tmp_path: Path) -> Iterator[TimedPoller]:
    """As the server's reactor uses it; it has mapped the same file."""
    its_own = LongestTurn(tmp_path / "turns")
    yield TimedPoller(process, its_own, wall=lambda: process.wall, processor=lambda: process.processor)
    its_own.close()


def test_a_turn_is_the_time_between_two_waits(poller: TimedPoller, process: _Process, longest: LongestTurn) -> None:
    """What comes before the first wait does not count, and neither does waiting."""
    process.work(8, 8)
    process.wait = 64
    assert poller.poll(1.5, 3) == [(7, 1)]
    assert process.asked == [(1.5, 3)]
    assert longest.read() == Turn(0, 0)
    process.work(2, 1)
    assert longest.read() == Turn(0, 0)
    poller.poll(1, 1)
    assert longest.read() == Turn(2, 1)


def test_the_longest_turn_is_kept_until_it_is_reset(
    poller: TimedPoller, process: _Process, longest: LongestTurn
) -> None:
    """Of turns that took longer by the clock and on the processor, each maximum is kept."""
    poller.poll(0, 1)
    for wall, processor in ((4, 1), (2, 2), (1, 1)):
        process.work(wall, processor)
        poller.poll(0, 1)
    assert longest.read() == Turn(4, 2)
    longest.reset()
    assert longest.read() == Turn(0, 0)
    process.work(1, 1)
    poller.poll(0, 1)
    assert longest.read() == Turn(1, 1)


def test_everything_else_is_left_to_the_epoll(poller: TimedPoller) -> None:
    """The reactor registers its files through it."""
    assert poller.register(3, 1) == "3 registered for 1"
