"""The log: one line per event on standard error, as text or JSON, from the configured level up."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TextIO

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

FIELD_LIMIT = 1000
"""Characters of a field in a JSON line."""


def start_logging(
    level: str, log_format: str, stream: TextIO = sys.stderr, *, process: str = ""
) -> Callable[[str], None]:
    """Start writing the log, beginning with what was logged before. Returns a function that changes the level.

    `process`: its name in each line, if there are several.
    Of Twisted's own events only warnings and errors are logged: it logs two lines for each connection at level info.
    """
    observer = LineObserver(stream, as_json=log_format == "json", process=process)
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
    """Writes each event as one line: time, level and text; as JSON, also its namespace (`where`) and its fields."""

    def __init__(self, stream: TextIO, *, as_json: bool, process: str = "") -> None:
        self._stream = stream
        self._as_json = as_json
        self._process = process

    def __call__(self, event: LogEvent) -> None:
        time = datetime.fromtimestamp(event["log_time"], UTC).isoformat(timespec="milliseconds")
        level = event["log_level"].name
        text = formatEvent(event)
        failure = event.get("log_failure")
        if failure is not None:
            text = f"{text}\n{failure.getTraceback()}".strip()
        if self._as_json:
            line = {"time": time, "level": level, "where": event["log_namespace"], "text": text}
            # What it was logged with: entries of Twisted's own begin with `log_`.
            if fields := {name: _plain(value) for name, value in event.items() if not name.startswith("log_")}:
                line["fields"] = fields
            if self._process:
                line["process"] = self._process
            self._stream.write(json.dumps(line) + "\n")
        else:
            process = f"{self._process}: " if self._process else ""
            self._stream.write(f"{time} {level:5} {process}{text}\n")
        self._stream.flush()


def _plain(value: object) -> Any:
    """A value as JSON has it; anything that JSON does not know as text."""
    if value is None or isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if type(value) is list:
        return [_plain(each) for each in value]
    if type(value) is dict:
        return {str(name): _plain(each) for name, each in value.items()}
    text = str(value)
    return text if len(text) <= FIELD_LIMIT else text[:FIELD_LIMIT] + "..."
