"""The log: one line an event on standard error, as text or as JSON, from a level on."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TextIO

from twisted.logger import (
    FilteringLogObserver,
    ILogObserver,
    LogEvent,
    LogLevel,
    LogLevelFilterPredicate,
    formatEvent,
    globalLogBeginner,
)
from zope.interface import implementer

LEVELS = ("debug", "info", "warn", "error")
FORMATS = ("text", "json")


def start_logging(level: str, log_format: str, stream: TextIO = sys.stderr) -> Callable[[str], None]:
    """From now on write the log; what was logged before comes first. Returns what sets another level.

    Twisted's own lines are written from warn on: below, each connection to the application is two of them.
    """
    observer = LineObserver(stream, as_json=log_format == "json")
    predicate = LogLevelFilterPredicate()

    def set_level(name: str) -> None:
        wanted = LogLevel.lookupByName(name)
        predicate.setLogLevelForNamespace("", wanted)
        predicate.setLogLevelForNamespace("twisted", max(wanted, LogLevel.warn))

    set_level(level)
    globalLogBeginner.beginLoggingTo([FilteringLogObserver(observer, [predicate])], redirectStandardIO=False)
    return set_level


@implementer(ILogObserver)
class LineObserver:
    """Writes each event as a line: time, level, where, what."""

    def __init__(self, stream: TextIO, *, as_json: bool) -> None:
        self._stream = stream
        self._as_json = as_json

    def __call__(self, event: LogEvent) -> None:
        time = datetime.fromtimestamp(event["log_time"], UTC).isoformat(timespec="milliseconds")
        level = event["log_level"].name
        text = formatEvent(event)
        failure = event.get("log_failure")
        if failure is not None:
            text = f"{text}\n{failure.getTraceback()}".strip()
        if self._as_json:
            line = {"time": time, "level": level, "where": event["log_namespace"], "text": text}
            self._stream.write(json.dumps(line, ensure_ascii=False) + "\n")
        else:
            self._stream.write(f"{time} {level:5} {text}\n")
        self._stream.flush()
