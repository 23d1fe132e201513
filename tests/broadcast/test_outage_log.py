"""What the log says while publishing is refused, and when it works again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from twisted.internet.task import Clock
from twisted.logger import ILogObserver, LogEvent, formatEvent, globalLogPublisher
from zope.interface import implementer

from pushup.broadcast.outage_log import REASONS_LIMIT, REPEAT_SECONDS, OutageLog


@pytest.fixture
def lines(log: list[str]) -> Iterator[list[str]]:
    """What is logged, including errors."""
    lines: list[str] = []

    observer = _Lines(lines)
    globalLogPublisher.addObserver(observer)
    yield lines
    globalLogPublisher.removeObserver(observer)


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
def outage_log(clock: Clock) -> OutageLog:
    return OutageLog(clock, "refused: {reason}")


def test_the_beginning_and_the_duration_are_logged(outage_log: OutageLog, clock: Clock, lines: list[str]) -> None:
    """One line each, however many publications are refused; the last one repeats the first reason."""
    clock.advance(1000.0)
    outage_log.over()
    for _ in range(158):
        outage_log.refused("the disk is full")
        clock.advance(0.1)
    assert lines == ["refused: the disk is full"]
    outage_log.over()
    assert lines[1:] == ["publishing works again; it was refused for 15.8 s (the disk is full)"]
    outage_log.over()
    assert len(lines) == 2


def test_an_outage_lasts_until_publishing_works(outage_log: OutageLog, lines: list[str]) -> None:
    """It begins with the first refusal, logged or not."""
    states = [outage_log.has_open_outage]
    for number in range(2):
        assert outage_log.refused("the disk is full") is (number == 0), "whether it is logged"
        states.append(outage_log.has_open_outage)
        outage_log.over()
        states.append(outage_log.has_open_outage)
    assert states == [False, True, False, True, False]
    assert len(lines) == 2, "the second one is not logged, and neither is its end"


def test_each_reason_is_logged_once(outage_log: OutageLog, clock: Clock, lines: list[str]) -> None:
    """Even when two alternate, such as a refused connection and a missing reply."""
    for _ in range(10):
        outage_log.refused("connection refused")
        outage_log.refused("no reply")
        clock.advance(1.0)
    assert lines == ["refused: connection refused", "refused: no reply"]


def test_a_reason_is_logged_again_after_a_minute(outage_log: OutageLog, clock: Clock, lines: list[str]) -> None:
    """So that an operator finds a long outage in the log."""
    for _ in range(100):
        outage_log.refused("no reply")
        clock.advance(REPEAT_SECONDS / 20)
    assert lines == ["refused: no reply"] * 5


def test_an_intermittent_outage_does_not_fill_the_log(outage_log: OutageLog, clock: Clock, lines: list[str]) -> None:
    """One beginning and one end per minute, however often it changes."""
    for _ in range(1200):
        outage_log.refused("OOM")
        clock.advance(0.05)
        outage_log.over()
        clock.advance(0.05)
    assert len(lines) == 4
    assert lines[1] == "publishing works again; it was refused for 0.1 s (OOM)"


def test_ever_changing_reasons_do_not_fill_the_log(outage_log: OutageLog, clock: Clock, lines: list[str]) -> None:
    """Some reasons contain an offset or a port."""
    for n in range(1000):
        outage_log.refused(f"the log is at e-{n}")
        clock.advance(0.05)
    assert len(lines) == REASONS_LIMIT
