"""The parameters of a poll, from a query string or from JSON.

They are read nowhere else. To add one, change `PARAMETERS` and `_read` (query string), `PollBody` and `from_body`
(JSON), and `poll`, which checks what comes from either.

    channel=a&channel=b&cursor=k3f9-41&timeout=25&limit=100&from=<time>&to=<time>&hidden=true&format=raw
    {"channels": ["a", "b"], "cursor": "k3f9-41", "timeout": 25, "limit": 100, "from": <time>, "to": <time>, ...}

A time is in seconds since the epoch or RFC 3339; `from` is inclusive, `to` exclusive.
"""

from __future__ import annotations

import math
import re
from datetime import datetime
from typing import cast, get_args
from urllib.parse import unquote_to_bytes

from pushup.core.cursor import Cursor, Start, parse_cursor
from pushup.core.errors import BadRequest
from pushup.core.memo import Memo
from pushup.core.poll import CHANNEL_OVERHEAD_BYTES, Poll, Selection
from pushup.net.api.bodies import BodyDecoder, check_name
from pushup.net.api.schemas import DEFAULT_FORMAT, Format, PollBody, PollLimits
from pushup.net.api.suggestions import shown_name, suggestion
from pushup.net.requests_and_responses import Request

REMEMBERED_BYTES = 256 * 1024
"""The memory of remembered query strings, and of remembered selections. Clients that wait for the same next message
send the same query string, one soon after the other. Some 500 fit, and stay in the processor's cache."""

REMEMBERED_WITHOUT_CURSOR_BYTES = 3 * 1024 * 1024
"""The memory of query strings remembered without their cursors: a client that polls again changes nothing else. 6,000
with one channel fit. If all clients of a process poll channels of their own, and fewer fitted, each query string would
be read as a whole again."""

POLL_BYTES = 240
"""The memory of a poll and its selection, beside its names."""

NAME_BYTES = 72
"""The memory of a name in a selection, beside its characters."""

_CURSOR_CHARACTERS = b"0123456789abcdefghijklmnopqrstuvwxyz-"

PARAMETERS = ("channel", "cursor", "timeout", "limit", "from", "to", "hidden")

NOT_OF_STREAMS = ("timeout", "limit")

ONLY_OF_STREAMS = ("format",)

IGNORED = "_"
"""A parameter that HTTP libraries add so that no cache answers. Its value is ignored."""

TIME_LIMIT = 64
"""Characters of a time; RFC 3339 with nanoseconds has 35."""

_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,18}", re.ASCII).fullmatch

_PERCENT, _PLUS = b"%+"  # as numbers, of which `in` finds one six times as fast

_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]{1,3})?|[+-]?\.[0-9]+", re.ASCII).fullmatch
"""A number as JSON and people write it; Python's `float` takes more."""

_FORMATS = ("", *get_args(Format))

_body = BodyDecoder(PollBody, '{"channels": ["news"]}', choices={"format": get_args(Format)})


class PollReader:
    """Reads polls. Equal polls become the same object, so that their answers are made once."""

    def __init__(self, limits: PollLimits, *, for_streams: bool = False) -> None:
        """`for_streams`: the polls of event streams, which have neither a timeout nor a limit."""
        self._limits = limits
        of_streams = (*(name for name in PARAMETERS if name not in NOT_OF_STREAMS), *ONLY_OF_STREAMS)
        self._parameters = of_streams if for_streams else PARAMETERS
        self.body_limit_bytes = limits.poll_body_limit_bytes
        self._polls: Memo[bytes, Poll] = Memo(REMEMBERED_BYTES)
        # A stream that connects again sends its cursor as a header field, if it is a browser's.
        self._without_cursor: Memo[bytes, Poll] = Memo(0 if for_streams else REMEMBERED_WITHOUT_CURSOR_BYTES)
        self._selections: Memo[tuple[object, ...], Selection] = Memo(REMEMBERED_BYTES)

    def from_query(self, query: bytes) -> Poll:
        """Raises: BadRequest naming the parameter."""
        poll = self._polls.get(query)
        if poll is None:
            poll = self._from_query_with_new_cursor(query)
            self._polls.add(query, poll, len(query) + _size(poll.selection))
        return poll

    def stream_from_query(self, query: bytes) -> tuple[Poll, Format]:
        """A stream's poll, and how its messages are sent. Raises: as `from_query`."""
        poll = self.from_query(query)
        form = next((value for name, _, value in query_pairs(query) if name == "format"), "")
        return poll, cast(Format, form or DEFAULT_FORMAT)

    def _from_query_with_new_cursor(self, query: bytes) -> Poll:
        """As `_read`. If only the cursor is new, only that is read."""
        before, _, rest = query.partition(b"cursor=")
        cursor, _, after = rest.partition(b"&")
        key = before + b"cursor=&" + after
        known = self._without_cursor.get(key)
        if known is not None and not cursor.translate(None, _CURSOR_CHARACTERS):
            return Poll(known.selection, parse_cursor(cursor.decode()), known.timeout)
        poll = self._read(query)
        if known is None and (before.endswith(b"&") or not before):  # else it is the end of a value
            self._without_cursor.add(key, Poll(poll.selection, timeout=poll.timeout), len(key) + _size(poll.selection))
        return poll

    def from_body(self, body: bytes) -> tuple[Poll, str | None, Format]:
        """The poll, the token in the body, if there is one, and how a stream's messages are sent.

        Raises: BadRequest naming the field.
        """
        given = _body.decode(body)
        for name in (*NOT_OF_STREAMS, *ONLY_OF_STREAMS):
            if getattr(given, name) is not None and name not in self._parameters:
                raise BadRequest(_misplaced(name), field=name)
        return self.poll(given, "channels"), given.token, given.format or DEFAULT_FORMAT

    def _read(self, query: bytes) -> Poll:
        channels: list[str] = []
        given: dict[str, str] = {}
        for name, _, value in query_pairs(query):
            if name == "channel":
                channels.append(value)
            elif name in self._parameters:
                if name in given:
                    raise BadRequest(f"duplicate parameter {name!r}", field=name)
                given[name] = value
            elif name != IGNORED:
                is_misplaced, name = name in NOT_OF_STREAMS or name in ONLY_OF_STREAMS, shown_name(name)
                text = _misplaced(name) if is_misplaced else unknown_parameter(name, value, self._parameters)
                raise BadRequest(text, field=name)
        if "format" in given and given["format"] not in _FORMATS:
            raise BadRequest(f"format must be one of {', '.join(get_args(Format))}", field="format")
        poll = PollBody(
            tuple(channels),
            given.get("cursor", ""),
            _timeout(given["timeout"]) if "timeout" in given else None,
            _limit(given["limit"]) if "limit" in given else None,
            given.get("from"),
            given.get("to"),
            hidden=_hidden(given.get("hidden", "")),
        )
        return self.poll(poll, "channel")

    def poll(self, given: PollBody, channels_field: str) -> Poll:
        """The poll with these parameters; an error calls its channels `channels_field`. Raises: BadRequest."""
        channels, timeout, limit, start, end = given.channels, given.timeout, given.limit, given.from_, given.to
        limits = self._limits
        if not channels:
            raise BadRequest("a poll needs at least one channel, such as ?channel=news", field=channels_field)
        if len(channels) > limits.poll_channels_limit:
            raise BadRequest(f"a poll can have at most {limits.poll_channels_limit} channels", field=channels_field)
        for channel in channels:
            check_name(channel, channels_field)
        if timeout is None:
            timeout = limits.poll_timeout_seconds
        elif not timeout >= 0:
            raise BadRequest("timeout must be a number of seconds, at least 0", field="timeout")
        if limit is None:
            limit = limits.poll_limit
        elif limit < 1:
            raise BadRequest("limit must be a number of messages, at least 1", field="limit")
        selection = self._selection(
            channels if len(channels) == 1 else tuple(dict.fromkeys(channels)),
            min(limit, limits.poll_limit),
            0.0 if start is None or start == "" else _time(start, "from"),
            math.inf if end is None or end == "" else _time(end, "to"),
            given.hidden,
        )
        return Poll(selection, parse_cursor(given.cursor), min(timeout, limits.poll_timeout_limit_seconds))

    def _selection(self, channels: tuple[str, ...], limit: int, start: float, end: float, hidden: bool) -> Selection:
        key = (channels, limit, start, end, hidden)
        selection = self._selections.get(key)
        if selection is None:
            selection = Selection(channels, limit, start, end, hidden)
            self._selections.add(key, selection, _size(selection))
        return selection


def _size(selection: Selection) -> int:
    """The memory of a poll with this selection, approximately."""
    return POLL_BYTES + selection.size - (CHANNEL_OVERHEAD_BYTES - NAME_BYTES) * len(selection.channels)


def _misplaced(name: str) -> str:
    """A parameter of polls in the request for a stream, or the other way round."""
    if name in ONLY_OF_STREAMS:
        return f"a poll takes no {name}; only event streams do (/v1/events)"
    return f"an event stream takes no {name}; it lasts until one side ends it"


def unknown_parameter(name: str, value: str = "", known: tuple[str, ...] = PARAMETERS) -> str:
    """What is wrong with a parameter of this name."""
    if name == "ticket":
        return f"unknown parameter {name!r}; send a ticket as the header field PushUp-Ticket"
    if name in ("token", "access_token"):
        return f"unknown parameter {name!r}; URLs are logged: send a token as Authorization: Bearer <token>"
    meant = suggestion(name, known)
    if meant is None:
        these = f"parameters are {', '.join(known)}" if len(known) > 1 else f"only parameter is `{known[0]}`"
        return f"unknown parameter {name!r}; the {these}"
    if meant == "channel" and ("," in value or name.startswith("channels")):
        return f"unknown parameter {name!r}; repeat `channel` for each channel: channel=a&channel=b"
    return f"unknown parameter {name!r}; did you mean {meant!r}?"


def read_parameters(query: bytes, known: tuple[str, ...]) -> dict[str, str]:
    """The parameters of a call that takes each of these once. Raises: BadRequest naming the parameter."""
    given: dict[str, str] = {}
    for name, _, value in query_pairs(query):
        if name not in known:
            raise BadRequest(unknown_parameter(shown_name(name), value, known), field=shown_name(name))
        if name in given and name != IGNORED:
            raise BadRequest(f"duplicate parameter {name!r}", field=name)
        given[name] = value
    return given


def query_pairs(query: bytes) -> list[tuple[str, str, str]]:
    """Name, `=` and value of each parameter in a query string (URL standard, application/x-www-form-urlencoded).

    Raises: BadRequest.
    """
    try:
        if _PERCENT in query or _PLUS in query:
            coded = [pair.partition(b"=") for pair in query.replace(b"+", b" ").split(b"&") if pair]
            return [(unquote_to_bytes(n).decode(), "=", unquote_to_bytes(v).decode()) for n, _, v in coded]
        return [pair.partition("=") for pair in query.decode().split("&") if pair]
    except UnicodeDecodeError:
        raise BadRequest(
            "the query string is not UTF-8; percent-encode names as UTF-8, such as channel=caf%C3%A9"
        ) from None


def begins_at(poll: Poll, request: Request) -> Cursor | Start:
    """Where a stream begins: as the header field says with which a browser connects again, or else as its poll does.

    Raises: BadRequest.
    """
    text = request.header(b"last-event-id")
    if not text:
        return poll.cursor
    try:
        return parse_cursor(text)
    except BadRequest as error:
        raise BadRequest(error.detail, field="Last-Event-ID") from None


def _timeout(text: str) -> float | None:
    """The seconds in a query string; None if it leaves them empty."""
    if not text:
        return None
    if not _NUMBER(text):
        raise BadRequest("timeout must be a number of seconds, such as timeout=25", field="timeout")
    return float(text)


def _hidden(text: str) -> bool:
    if text not in ("", "true", "false"):
        raise BadRequest("hidden must be true or false", field="hidden")
    return text == "true"


def _limit(text: str) -> int | None:
    """As `_timeout`."""
    if not text:
        return None
    if not _WHOLE_NUMBER(text):
        raise BadRequest("limit must be a whole number, such as limit=100", field="limit")
    return int(text)


def _time(value: float | str, field: str) -> float:
    """Seconds since the epoch, of a time in seconds or RFC 3339."""
    if isinstance(value, str) and (len(value) > TIME_LIMIT or not _NUMBER(value)):
        try:
            moment = datetime.fromisoformat(value[: TIME_LIMIT + 1])
        except ValueError:
            moment = None
        if moment is None or moment.tzinfo is None:
            raise BadRequest(_not_a_time(value, field), field=field)
        time = moment.timestamp()
    else:
        time = float(value)
    if not math.isfinite(time):
        raise BadRequest(f"{field} must be a time; {value!r} is not one", field=field)
    return max(time, 0.0)


def _not_a_time(text: str, field: str) -> str:
    if " " in text:  # it was 2027-01-15T08:00:00+01:00
        return f"{field} is not a time in RFC 3339; in a query string, write + as %2B"
    return f"{field} must be a time: seconds since the epoch, or RFC 3339 such as 2027-01-15T08:00:00Z"
