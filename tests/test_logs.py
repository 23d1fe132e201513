"""The lines of the log: as text, and as JSON with the fields of each event."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from twisted.logger import Logger, LogPublisher

from pushup.host.logs import FIELD_LIMIT, LineObserver
from pushup.net.application_interface import Client


class Log:
    """A log in memory; each line is removed by the call that returns it."""

    def __init__(self, *, as_json: bool = True, process: str = "") -> None:
        self._stream = StringIO()
        observer = LineObserver(self._stream, as_json=as_json, process=process)
        self.logger = Logger("pushup.some.module", observer=LogPublisher(observer))

    def text(self) -> str:
        text = self._stream.getvalue()
        self._stream.seek(0)
        self._stream.truncate()
        assert text.count("\n") >= 1
        return text

    def line(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.text(), parse_constant=pytest.fail)
        return found


def test_fields_beside_the_text() -> None:
    """The values of the text, as what they are; numbers are rounded only in the text."""
    log = Log(process="worker 2")
    log.logger.info("took {seconds:.1f} s, {count} times; {ok} {nothing}", seconds=1.25, count=3, ok=True, nothing=None)
    line = log.line()
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "info",
        "where": "pushup.some.module",
        "text": "took 1.2 s, 3 times; True None",
        "fields": {"seconds": 1.25, "count": 3, "ok": True, "nothing": None},
        "process": "worker 2",
    }


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (Client("192.0.2.7", 4711), "192.0.2.7:4711"),
        (OSError(2, "No such file"), "[Errno 2] No such file"),
        (float("inf"), "inf"),
        (float("nan"), "nan"),
        (["a", 1, b"\xff"], ["a", 1, "b'\\xff'"]),
        ({"app": 2, 3: b"\xff"}, {"app": 2, "3": "b'\\xff'"}),
        ("x" * FIELD_LIMIT, "x" * FIELD_LIMIT),
        ("x" * (FIELD_LIMIT + 1), "x" * FIELD_LIMIT + "..."),
        ("two\nlines", "two\nlines"),
    ],
)
def test_any_value(value: object, field: object) -> None:
    """What JSON has no word for is text, of a bounded length."""
    log = Log()
    log.logger.warn("{value}", value=value)
    assert log.line()["fields"] == {"value": field}


def test_letters_beyond_ascii() -> None:
    """They are escaped, so that any locale has them, and none ends a line or controls a terminal."""
    log = Log()
    channels = ["caf\u00e9", "a\u2028b", "a\x9b31m", "\U0001f600"]
    log.logger.info("published on {channels}", channels=channels)
    text = log.text()
    assert text.isascii()
    assert json.loads(text)["fields"] == {"channels": channels}


def test_names_of_the_line_are_free() -> None:
    """A field may be called like a part of the line."""
    log = Log()
    log.logger.info("{text}, {where}", text="a", where="b")
    line = log.line()
    assert (line["text"], line["where"]) == ("a, b", "pushup.some.module")
    assert line["fields"] == {"text": "a", "where": "b"}


def test_without_fields() -> None:
    """A line that has none does not mention them; nor does a line of text."""
    log = Log()
    log.logger.info("stopped")
    assert log.line().keys() == {"time", "level", "where", "text"}
    log = Log(as_json=False, process="worker 2")
    log.logger.error("cannot {what}", what="listen")
    assert log.text().partition(" ")[2] == "error worker 2: cannot listen\n"


def test_a_failure() -> None:
    """Its traceback is part of the text."""
    log = Log()
    try:
        int("mistake")
    except ValueError:
        log.logger.failure("could not do {what}", what="it")
    line = log.line()
    assert line["text"].startswith("could not do it\nTraceback")
    assert line["text"].endswith("invalid literal for int() with base 10: 'mistake'")
    assert line["fields"] == {"what": "it"}
