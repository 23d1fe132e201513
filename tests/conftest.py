"""Fixtures for all tests: whatever was logged as a failure, or lost in a Deferred, fails the test that did it."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from twisted.logger import LogEvent, LogLevel, formatEvent, globalLogPublisher


@pytest.fixture(autouse=True)
def logged_failures() -> Iterator[list[str]]:
    """What was logged at level error or above. A test that means to cause some clears the list."""
    seen: list[str] = []

    def observe(event: LogEvent) -> None:
        if event["log_level"] >= LogLevel.error:
            failure = event.get("log_failure")
            seen.append(formatEvent(event) + ("\n" + failure.getTraceback() if failure else ""))

    globalLogPublisher.addObserver(observe)
    yield seen
    gc.collect(0)  # a lost Deferred logs its failure when it is let go
    globalLogPublisher.removeObserver(observe)
    assert not seen, "\n".join(seen)
