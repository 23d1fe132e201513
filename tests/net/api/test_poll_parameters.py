"""The parameters of a poll, from a query string and from JSON."""

from __future__ import annotations

import json
import math
from urllib.parse import quote

import pytest

from pushup.core.cursor import Cursor, Start
from pushup.core.errors import BadRequest
from pushup.core.poll import Poll
from pushup.net.api.poll_parameters import PollReader
from pushup.net.api.schemas import PollLimits

LIMITS = PollLimits(poll_timeout_seconds=25, poll_timeout_limit_seconds=60, poll_channels_limit=3, poll_limit=100)


@pytest.fixture
def reader() -> PollReader:
    return PollReader(LIMITS)


def values(poll: Poll) -> tuple[object, ...]:
    selection = poll.selection
    return selection.channels, selection.limit, selection.start, selection.end, poll.cursor, poll.timeout


@pytest.mark.parametrize(
    ("query", "body", "wanted"),
    [
        (b"channel=a", {"channels": ["a"]}, (("a",), 100, 0.0, math.inf, Start.EARLIEST, 25.0)),
        (
            b"channel=a&channel=b&cursor=k3f9-41&timeout=1.5&limit=7&from=10&to=20.5",
            {"channels": ["a", "b"], "cursor": "k3f9-41", "timeout": 1.5, "limit": 7, "from": 10, "to": 20.5},
            (("a", "b"), 7, 10.0, 20.5, Cursor("k3f9", 41), 1.5),
        ),
        (
            b"channel=a&cursor=now&timeout=0&limit=1234567890&from=&to=&_=1234&_=5",
            {"channels": ["a"], "cursor": "now", "timeout": 0, "limit": 1000, "from": None, "to": None},
            (("a",), 100, 0.0, math.inf, Start.NOW, 0.0),
        ),
        (
            b"&channel=b&channel=a&&channel=b&cursor=earliest&timeout=1e9&",
            {"channels": ["b", "a", "b"], "cursor": "earliest", "timeout": 1e9},
            (("b", "a"), 100, 0.0, math.inf, Start.EARLIEST, 60.0),
        ),
        (
            b"channel=a&from=2027-01-15T08:00:00Z&to=2027-01-15T10:00:00.5%2B02:00",
            {"channels": ["a"], "from": "2027-01-15T08:00:00Z", "to": "2027-01-15T10:00:00.5+02:00"},
            (("a",), 100, 1_800_000_000.0, 1_800_000_000.5, Start.EARLIEST, 25.0),
        ),
        (
            b"channel=a&from=-5&to=1969-12-31T00:00:00Z&timeout=&limit=&cursor=",
            {"channels": ["a"], "from": -5, "to": "1969-12-31T00:00:00Z", "timeout": None, "limit": None, "cursor": ""},
            (("a",), 100, 0.0, 0.0, Start.EARLIEST, 25.0),
        ),
        (
            b"channel=tag:c%2B%2B&channel=a+b%20c&ch%61nnel=%C3%A9%26",
            {"channels": ["tag:c++", "a b c", "é&"]},
            (("tag:c++", "a b c", "é&"), 100, 0.0, math.inf, Start.EARLIEST, 25.0),
        ),
    ],
)
def test_query_and_json_are_the_same_poll(
    reader: PollReader, query: bytes, body: dict[str, object], wanted: tuple[object, ...]
) -> None:
    """A query string and the same values as JSON give the same poll, with the same defaults and limits."""
    assert values(reader.from_query(query)) == wanted
    assert values(reader.from_body(json.dumps(body).encode())[0]) == wanted
    assert reader.from_query(query).selection is reader.from_body(json.dumps(body).encode())[0].selection


@pytest.mark.parametrize(
    ("query", "field"),
    [
        (b"", "channel"),
        (b"cursor=now", "channel"),
        (b"channel=", "channel"),
        (b"channel=" + b"x" * 256, "channel"),
        (b"channel=" + quote("é" * 128).encode(), "channel"),
        (b"channel=a&channel=b&channel=c&channel=d", "channel"),
        (b"channel=a&cursor=nonsense", "cursor"),
        (b"channel=a&cursor=now&cursor=now", "cursor"),
        (b"channel=a&timeout=-1", "timeout"),
        (b"channel=a&timeout=soon", "timeout"),
        (b"channel=a&timeout=nan", "timeout"),
        (b"channel=a&timeout=1_0", "timeout"),
        (b"channel=a&limit=0", "limit"),
        (b"channel=a&limit=-1", "limit"),
        (b"channel=a&limit=1.5", "limit"),
        (b"channel=a&limit=1_0", "limit"),
        (b"channel=a&limit=" + b"9" * 5000, "limit"),
        (b"channel=a&limit=" + quote("٣").encode(), "limit"),
        (b"channel=a&from=yesterday", "from"),
        (b"channel=a&from=2027-01-15T08:00:00", "from"),
        (b"channel=a&from=2027-01-15", "from"),
        (b"channel=a&from=inf", "from"),
        (b"channel=a&from=1_0", "from"),
        (b"channel=a&to=nan", "to"),
        (b"channel=a&to=2027-13-01T00:00:00Z", "to"),
        (b"channel=a&chanel=b", "chanel"),
        (b"channel=a&x", "x"),
    ],
)
def test_bad_parameters_are_named(reader: PollReader, query: bytes, field: str) -> None:
    for _ in range(2):
        with pytest.raises(BadRequest) as caught:
            reader.from_query(query)
        assert caught.value.field == field


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "channels"),
        ({"channels": []}, "channels"),
        ({"channels": [""]}, "channels"),
        ({"channels": ["a"] * 4}, "channels"),
        ({"channels": "a"}, "channels"),
        ({"channels": [1]}, "channels[0]"),
        ({"channels": ["a"], "cursor": "nonsense"}, "cursor"),
        ({"channels": ["a"], "cursor": None}, "cursor"),
        ({"channels": ["a"], "timeout": -1}, "timeout"),
        ({"channels": ["a"], "timeout": "1"}, "timeout"),
        ({"channels": ["a"], "limit": 0}, "limit"),
        ({"channels": ["a"], "limit": 1.5}, "limit"),
        ({"channels": ["a"], "limit": True}, "limit"),
        ({"channels": ["a"], "from": "yesterday"}, "from"),
        ({"channels": ["a"], "to": []}, "to"),
        ({"channels": ["a"], "channel": "b"}, "channel"),
        ([], None),
    ],
)
def test_bad_fields_are_named(reader: PollReader, body: object, field: str | None) -> None:
    with pytest.raises(BadRequest) as caught:
        reader.from_body(json.dumps(body).encode())
    assert caught.value.field == field


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"null", b'{"channels": ["\xff"]}', b'{"channels": ["\\ud800"]}', b'{"channels":["a"]} {}',
     b'{"channels": ["a"], "from": 1' + b"0" * 400 + b"}", b'{"channels": ["a"], "timeout": NaN}',
     b"[" * 100_000,],
)  # fmt: skip
def test_invalid_json_is_refused(reader: PollReader, body: bytes) -> None:
    """A body that is not JSON in UTF-8, or has numbers out of range, is a bad request and nothing worse."""
    with pytest.raises(BadRequest):
        reader.from_body(body)


@pytest.mark.parametrize("query", [b"channel=%FF", b"channel=\xff", b"%C3=a", b"channel=%ed%a0%80"])
def test_a_query_is_utf8(reader: PollReader, query: bytes) -> None:
    with pytest.raises(BadRequest):
        reader.from_query(query)


def test_a_stray_percent_is_itself(reader: PollReader) -> None:
    """A percent sign that does not encode anything stands for itself (URL standard)."""
    assert reader.from_query(b"channel=100%&channel=%zz%4").selection.channels == ("100%", "%zz%4")


def test_equal_queries_are_one_poll(reader: PollReader) -> None:
    """Equal queries give the same poll object; polls that differ only in cursor and timeout share their selection."""
    first = reader.from_query(b"channel=a&channel=b")
    assert reader.from_query(b"channel=a&channel=b") is first
    for query in (b"channel=a&channel=b&cursor=e-1", b"channel=a&channel=b&timeout=3", b"channel=%61&channel=b"):
        other = reader.from_query(query)
        assert other is not first
        assert other.selection is first.selection
    for query in (b"channel=b&channel=a", b"channel=a", b"channel=a&channel=b&limit=3", b"channel=a&channel=b&from=1"):
        assert reader.from_query(query).selection is not first.selection


@pytest.mark.parametrize(
    "known",
    [
        b"channel=a&cursor=e-1&timeout=5",
        b"cursor=e-1&channel=a",
        b"channel=a&cursor=e-1",
        b"channel=a&cursor=&limit=3",
        b"channel=a&cursor=now",
        b"channel=cursor=e-1",
        b"channel=a",
        b"channel=a&",
    ],
)
@pytest.mark.parametrize(
    "cursor", ["e-2", "e2-17", "", "now", "earliest", "e-01", "E-1", "e%2D2", "e-2&cursor=e-3", "x", "%"]
)
def test_a_query_with_another_cursor_is_read_as_if_it_were_new(known: bytes, cursor: str) -> None:
    """Only the cursor is read then; poll or error, it is the same."""
    reader = PollReader(PollLimits())
    reader.from_query(known)
    for old in (b"cursor=e-1", b"cursor=now", b"cursor="):
        query = known.replace(old, b"cursor=" + cursor.encode())
        assert _outcome(reader, query) == _outcome(PollReader(PollLimits()), query)


def _outcome(reader: PollReader, query: bytes) -> object:
    try:
        poll = reader.from_query(query)
    except BadRequest as error:
        return str(error), error.field
    selection = poll.selection
    return poll.cursor, poll.timeout, selection.channels, selection.limit, selection.start, selection.end
