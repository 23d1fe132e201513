"""Captures what is logged while a test runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from twisted.logger import ILogObserver, LogEvent, formatEvent, globalLogPublisher
from zope.interface import implementer


@contextmanager
def logged_at(*levels: str) -> Iterator[list[str]]:
    """The lines logged at these levels (`debug`, `info` ...); the list grows while the test runs."""
    lines: list[str] = []

    @implementer(ILogObserver)
    def observe(event: LogEvent) -> None:
        if event["log_level"].name in levels:
            lines.append(formatEvent(event))

    globalLogPublisher.addObserver(observe)
    try:
        yield lines
    finally:
        globalLogPublisher.removeObserver(observe)
