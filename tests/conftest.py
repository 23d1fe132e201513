"""Fixtures for all tests: whatever was logged as a failure, or lost in a Deferred, fails the test that did it."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator

import pytest
from twisted.logger import ILogObserver, LogEvent, LogLevel, formatEvent, globalLogPublisher
from zope.interface import implementer

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell runs the tests in the background. What they start is to be interrupted all the same.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def logged_failures() -> Iterator[list[str]]:
    """What was logged at level error or above. A test that means to cause some clears the list."""
    observer = _Failures()
    globalLogPublisher.addObserver(observer)
    yield observer.seen
    gc.collect(0)  # a lost Deferred logs its failure when it is let go
    globalLogPublisher.removeObserver(observer)
    assert not observer.seen, "\n".join(observer.seen)


@implementer(ILogObserver)
class _Failures:
    def __init__(self) -> None:
        self.seen: list[str] = []

    def __call__(self, event: LogEvent) -> None:
        if event["log_level"] >= LogLevel.error:
            failure = event.get("log_failure")
            self.seen.append(formatEvent(event) + ("\n" + failure.getTraceback() if failure else ""))
