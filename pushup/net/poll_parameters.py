"""The parameters of a poll, from a query string or from JSON. A new one is added to `_read` and to `_PollBody`.

    channel=a&channel=b&cursor=k3f9-41&timeout=25&limit=100&from=<time>&to=<time>
    {"channels": ["a", "b"], "cursor": "k3f9-41", "timeout": 25, "limit": 100, "from": <time>, "to": <time>}

A time is in seconds since the epoch or RFC 3339; `from` is inclusive, `to` exclusive.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from datetime import datetime
from urllib.parse import unquote_to_bytes

import msgspec
from msgspec import Struct

from pushup.core import wire
from pushup.core.cursor import parse_cursor
from pushup.core.errors import BadRequest
from pushup.core.poll import Poll, Selection

REMEMBERED = 512
"""Query strings and selections remembered: those who wait for the same next message ask in the same
words, one soon after the other. Few enough to stay in the processor's cache."""


class PollLimits(Struct, frozen=True, kw_only=True):
    """The limits of a poll. A client that asks for more time or messages gets the maximum."""

    poll_timeout_seconds: float = 25.0
    """Default wait when a poll gives no timeout."""
    poll_timeout_limit_seconds: float = 60.0
    """Maximum wait."""
    poll_channels_limit: int = 100
    """Maximum number of channels in one poll."""
    poll_limit: int = 100
    """Maximum number of messages in one answer."""
    poll_body_limit_bytes: int = 64 * 1024
    """Maximum size of the body of a poll, or of a call that creates or renews a channel. 100 names of 255 bytes fit."""

    def mistakes(self) -> Iterator[tuple[str, str]]:
        """Each setting whose value cannot be used, and why."""
        if self.poll_timeout_seconds > self.poll_timeout_limit_seconds:
            yield "poll_timeout_seconds", "must not exceed poll_timeout_limit_seconds"


class _PollBody(Struct, forbid_unknown_fields=True):
    channels: tuple[str, ...]
    cursor: str = ""
    timeout: float | None = None
    limit: int | None = None
    from_: float | str | None = msgspec.field(default=None, name="from")
    to: float | str | None = None


_PARAMETERS = frozenset(("cursor", "timeout", "limit", "from", "to", "_"))
"""What may stand in a query string beside `channel`; libraries add `_` to defeat caches, and it says nothing."""

_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]{1,3})?|[+-]?\.[0-9]+", re.ASCII).fullmatch
"""A number as JSON and people write it; Python's `float` takes more."""

_body_decoder = msgspec.json.Decoder(_PollBody)


class PollReader:
    """Reads polls, and gives equal ones the same object, so that their answers are made once."""

    def __init__(self, limits: PollLimits) -> None:
        self._limits = limits
        self.body_limit_bytes = limits.poll_body_limit_bytes
        self._polls: dict[bytes, Poll] = {}
        self._selections: dict[tuple[object, ...], Selection] = {}

    def from_query(self, query: bytes) -> Poll:
        """Raises: BadRequest naming the parameter."""
        poll = self._polls.get(query)
        if poll is None:
            poll = self._read(query)
            if len(self._polls) >= REMEMBERED:
                self._polls.clear()
            self._polls[query] = poll
        return poll

    def from_body(self, body: bytes) -> Poll:
        """Raises: BadRequest naming the field."""
        given = wire.decode(body, _body_decoder)
        return self._poll(given.channels, "channels", given.cursor, given.timeout, given.limit, given.from_, given.to)

    def _read(self, query: bytes) -> Poll:
        channels: list[str] = []
        given: dict[str, str] = {}
        for name, _, value in _pairs(query):
            if name == "channel":
                channels.append(value)
            elif name not in _PARAMETERS:
                raise BadRequest(f"there is no parameter {name!r}", field=name)
            elif name in given:
                raise BadRequest(f"{name!r} is there twice", field=name)
            else:
                given[name] = value
        return self._poll(
            tuple(channels),
            "channel",
            given.get("cursor", ""),
            _number(given, "timeout") if "timeout" in given else None,
            _whole_number(given, "limit") if "limit" in given else None,
            given.get("from"),
            given.get("to"),
        )

    def _poll(
        self,
        channels: tuple[str, ...],
        channels_field: str,
        cursor: str,
        timeout: float | None,
        limit: int | None,
        start: float | str | None,
        end: float | str | None,
    ) -> Poll:
        limits = self._limits
        if not channels:
            raise BadRequest("a poll needs a channel", field=channels_field)
        if len(channels) > limits.poll_channels_limit:
            raise BadRequest(f"more than {limits.poll_channels_limit} channels in one poll", field=channels_field)
        for channel in channels:
            wire.check_name(channel, channels_field)
        if timeout is None:
            timeout = limits.poll_timeout_seconds
        elif not timeout >= 0:
            raise BadRequest("timeout is in seconds and not below 0", field="timeout")
        if limit is None:
            limit = limits.poll_limit
        elif limit < 1:
            raise BadRequest("limit is a number of messages and at least 1", field="limit")
        selection = self._selection(
            channels if len(channels) == 1 else tuple(dict.fromkeys(channels)),
            min(limit, limits.poll_limit),
            0.0 if start is None or start == "" else _time(start, "from"),
            math.inf if end is None or end == "" else _time(end, "to"),
        )
        return Poll(selection, parse_cursor(cursor), min(timeout, limits.poll_timeout_limit_seconds))

    def _selection(self, channels: tuple[str, ...], limit: int, start: float, end: float) -> Selection:
        key = (channels, limit, start, end)
        selection = self._selections.get(key)
        if selection is None:
            if len(self._selections) >= REMEMBERED:
                self._selections.clear()
            selection = self._selections[key] = Selection(channels, limit, start, end)
        return selection


def _pairs(query: bytes) -> list[tuple[str, str, str]]:
    """Name, `=` and value of the parameters in a query string (URL standard, application/x-www-form-urlencoded)."""
    try:
        if b"%" in query or b"+" in query:
            coded = [pair.partition(b"=") for pair in query.replace(b"+", b" ").split(b"&") if pair]
            return [(unquote_to_bytes(n).decode(), "=", unquote_to_bytes(v).decode()) for n, _, v in coded]
        return [pair.partition("=") for pair in query.decode().split("&") if pair]
    except UnicodeDecodeError:
        raise BadRequest("the query string is not UTF-8") from None


def _number(given: dict[str, str], name: str) -> float | None:
    text = given.get(name, "")
    if not text:
        return None
    if not _NUMBER(text):
        raise BadRequest(f"{name} is not a number", field=name)
    return float(text)


def _whole_number(given: dict[str, str], name: str) -> int | None:
    text = given.get(name, "")
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise BadRequest(f"{name} is not a whole number", field=name)
    return int(text)


def _time(value: float | str, field: str) -> float:
    """Seconds since the epoch, given so or as RFC 3339."""
    if isinstance(value, str) and not _NUMBER(value):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            moment = None
        if moment is None or moment.tzinfo is None:
            raise BadRequest(f"{field} is neither seconds since the epoch nor RFC 3339", field=field)
        time = moment.timestamp()
    else:
        time = float(value)
    if not math.isfinite(time):
        raise BadRequest(f"{field} is not a time", field=field)
    return max(time, 0.0)
