"""What the log says while publishing is refused, and when it works again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from twisted.internet.task import Clock
from twisted.logger import ILogObserver, LogEvent, formatEvent, globalLogPublisher
from zope.interface import implementer

from pushup.broadcast.outage import REASONS_LIMIT, REPEAT_SECONDS, Outage


@pytest.fixture
def lines(logged_failures: list[str]) -> Iterator[list[str]]:
    """What is logged, errors too."""
    lines: list[str] = []

    observer = _Lines(lines)
    globalLogPublisher.addObserver(observer)
    yield lines
    globalLogPublisher.removeObserver(observer)
    logged_failures.clear()


@implementer(ILogObserver)
class _Lines:
    def __init__(self, lines: list[str]) -> None:
        self._lines = lines

    def __call__(self, event: LogEvent) -> None:
        self._lines.append(formatEvent(event))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def outage(clock: Clock) -> Outage:
    return Outage(clock, "refused: {}".format)


def test_it_is_told_when_it_begins_and_how_long_it_was_when_it_is_over(
    outage: Outage, clock: Clock, lines: list[str]
) -> None:
    """However often it is refused meanwhile; the end names the reason that it began with."""
    assert not outage.over()
    for _ in range(158):
        outage.refused("the disk is full")
        clock.advance(0.1)
    assert lines == ["refused: the disk is full"]
    assert outage.over()
    assert lines[1:] == ["publishing works again; it was refused for 15.8 s (the disk is full)"]
    assert not outage.over()
    assert len(lines) == 2


def test_each_reason_is_told_once(outage: Outage, clock: Clock, lines: list[str]) -> None:
    """Also where two take turns, as a connection that is refused and a reply that does not come."""
    for _ in range(10):
        outage.refused("connection refused")
        outage.refused("no reply")
        clock.advance(1.0)
    assert lines == ["refused: connection refused", "refused: no reply"]


def test_a_reason_is_told_again_after_a_minute(outage: Outage, clock: Clock, lines: list[str]) -> None:
    """Whoever looks at the log of an outage that lasts finds it."""
    for _ in range(100):
        outage.refused("no reply")
        clock.advance(REPEAT_SECONDS / 20)
    assert lines == ["refused: no reply"] * 5


def test_an_outage_that_comes_and_goes_does_not_fill_the_log(outage: Outage, clock: Clock, lines: list[str]) -> None:
    """One beginning and one end a minute, though it is refused and works by turns."""
    for _ in range(1200):
        outage.refused("OOM")
        clock.advance(0.05)
        outage.over()
        clock.advance(0.05)
    assert len(lines) == 4
    assert lines[1] == "publishing works again; it was refused for 0.1 s (OOM)"


def test_reasons_that_are_never_the_same_do_not_fill_the_log(outage: Outage, clock: Clock, lines: list[str]) -> None:
    """Some have a place or a port in them."""
    for n in range(1000):
        outage.refused(f"the log is at e-{n}")
        clock.advance(0.05)
    assert len(lines) == REASONS_LIMIT


def test_a_clock_that_is_set_back_does_not_silence_it(outage: Outage, clock: Clock, lines: list[str]) -> None:
    """And no outage was shorter than nothing."""
    clock.advance(10_000.0)
    outage.refused("no reply")
    clock.rightNow = 100.0
    outage.refused("no reply")
    outage.over()
    assert lines == ["refused: no reply"] * 2 + ["publishing works again; it was refused for 0.0 s (no reply)"]
