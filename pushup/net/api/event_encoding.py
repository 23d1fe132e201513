"""The bytes of an event stream: server-sent events (HTML standard, 9.2), or the same as lines of JSON.

An event has the fields `event`, `id` and `data`, any of which may be missing. `id` is the cursor after the event; one
without it does not move the cursor. docs/guide/streams.md lists them.

With `format=raw`, a page's library reads the events without knowing PushUp: a message is its data, under its own name
(docs/internals/decisions/0032-raw-events.md).

Events that go to many streams are encoded once.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec import Struct

from pushup.core.answer import Answer, Received
from pushup.core.cursor import cursor_after, sequence_in
from pushup.net.api.bodies import write
from pushup.net.api.schemas import Format

MEDIA_RANGES_LIMIT = 32
"""Media ranges of an `Accept` that are read, and parameters of each; browsers send up to eight."""

RETRY_MILLISECONDS = 1000
"""How long a browser waits before it connects again."""

_QUOTATION_MARK, _BACKSLASH = b'"\\'

_text = msgspec.json.Decoder(str).decode


class _Format(Struct, frozen=True):
    """How events are written; `heartbeat` is written before the cursor when there is nothing else.

    Templates: `event`, of a name and data, and `cursor`, of an `id`, for an event that only moves the cursor.
    """

    content_type: bytes
    start: bytes
    heartbeat: bytes
    event: bytes
    cursor: bytes
    message: Callable[[bytes, Received], bytes]


def _message(id: bytes, message: Received) -> bytes:  # noqa: A002  # the field's name
    return b"id: %b\ndata: %b\n\n" % (id, _on_one_line(message))


def _line(id: bytes, message: Received) -> bytes:  # noqa: A002
    return b'{"id":"%b","data":%b}\n' % (id, _on_one_line(message))


def _on_one_line(message: Received) -> bytes:
    # Between two tokens of JSON: in a string they are escaped.
    return write(message).replace(b"\r", b" ").replace(b"\n", b" ")


def _raw(id: bytes, message: Received) -> bytes:  # noqa: A002
    """A string as it is, anything else as JSON. There is always a `data` line: without one, browsers fire no event."""
    view = memoryview(message.data)
    is_text = view[0] == _QUOTATION_MARK
    data = bytes(view[1:-1] if is_text else view)
    if is_text and _BACKSLASH in data:
        data = _text(view).encode()
    data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"\n", b"\ndata: ")
    if message.event:
        return b"event: %b\nid: %b\ndata: %b\n\n" % (message.event.encode(), id, data)
    return b"id: %b\ndata: %b\n\n" % (id, data)


_EVENT = b"event: %b\ndata: %b\n\n"

_TEXT_START = b":\nretry: %d\n\n" % RETRY_MILLISECONDS

_FORMATS: dict[Format, tuple[_Format, ...]] = {
    "json": (
        _Format(b"text/event-stream", _TEXT_START, b":\n", _EVENT, b"id: %b\n\n", _message),
        _Format(
            b"application/x-ndjson",
            b'{"retry":%d}\n' % RETRY_MILLISECONDS,
            b"",
            b'{"event":"%b","data":%b}\n',
            b'{"id":"%b"}\n',
            _line,
        ),
    ),
    "raw": (
        # A library may ignore the `id` of an event without data, and show one that has no name.
        _Format(b"text/event-stream", _TEXT_START, b":\n", _EVENT, b"event: cursor\nid: %b\ndata: {}\n\n", _raw),
    ),
}
"""By the parameter `format`. The first of several is used where the client has no preference."""


class EventEncoding:
    """One format, in chunks (RFC 9112 §7.1) or, for HTTP/1.0, without."""

    def __init__(self, form: _Format, *, chunked: bool) -> None:
        self.content_type = form.content_type
        self._form = form
        self.is_chunked = chunked
        self.end = b"0\r\n\r\n" if chunked else b""
        """What follows the last event."""
        self.count = 0
        """How many streams use it."""
        self.forget()

    def forget(self) -> None:
        """Keep nothing of the last answer."""
        self._answer: Answer | None = None
        self._written = b""

    def start(self, cursor: str, ticket: str, expires_in: int | None) -> bytes:
        """The beginning of a stream, with the client's cursor and its ticket, where these are new to it.

        `expires_in`: for how many seconds the client's token is valid; None: it has none.
        """
        form = self._form
        parts = [form.start]
        if expires_in is not None:
            parts.append(form.event % (b"expiry", write({"expires_in": expires_in})))
        if ticket:
            parts.append(form.event % (b"ticket", write({"ticket": ticket})))
        if cursor:
            parts.append(form.cursor % cursor.encode())
        return self._chunk(b"".join(parts))

    def answer(self, answer: Answer) -> bytes:
        """The events that tell a client what a poll would have told it; at least the heartbeat."""
        if answer is not self._answer:
            self._answer = answer
            self._written = self._chunk(self._events(answer))
        return self._written

    def first_answer(self, answer: Answer) -> bytes:
        """As `answer`, for a client that had no cursor. It always gets the cursor of the answer.

        Messages of other channels, after the last one here, may have been dropped before it came: it misses none of
        these. With the cursor of that message it would.
        """
        events = self._events(answer)
        if not self._ends_with_cursor(answer) and cursor_after(answer.messages[-1].id, answer.cursor) != answer.cursor:
            events += self._form.cursor % answer.cursor.encode()
        return self._chunk(events)

    def unread(self) -> bytes:
        """The event that asks a client to say what it has seen."""
        return self._chunk(self._form.event % (b"unread", b"{}"))

    def error(self, problem: bytes) -> bytes:
        """The event that says why a stream ends; `problem`: a problem document."""
        return self._chunk(self._form.event % (b"error", problem))

    def _events(self, answer: Answer) -> bytes:
        """Gaps and closings come first: who continues at any later `id` is not told of them again."""
        form = self._form
        parts = [form.event % (b"gap", write(gap)) for gap in answer.gaps]
        parts += [form.event % (b"closed", write({"channel": name})) for name in answer.closed]
        events = {}
        for message in answer.messages:
            cursor = cursor_after(message.id, answer.cursor)
            events[cursor] = form.message(cursor.encode(), message)
        if answer.gaps:
            events = self._with_ends(answer, events)
        parts += events.values()
        if not answer.tells_something:
            parts.append(form.heartbeat)
        if self._ends_with_cursor(answer):
            parts.append(form.cursor % answer.cursor.encode())
        return b"".join(parts)

    def _with_ends(self, answer: Answer, events: dict[str, bytes]) -> dict[str, bytes]:
        """The same with a cursor where a gap ends, if no message has that cursor.

        A gap that reaches beyond the answer is reported again by the next.
        """
        last = sequence_in(answer.cursor)
        ends = {
            gap.until: self._form.cursor % gap.until.encode() for gap in answer.gaps if sequence_in(gap.until) < last
        }
        return dict(sorted((ends | events).items(), key=lambda item: sequence_in(item[0])))

    def _ends_with_cursor(self, answer: Answer) -> bool:
        """Whether an event of its own has the cursor of the answer; else the last message has it, or an earlier one."""
        return bool(answer.gaps or answer.closed or not answer.messages)

    def _chunk(self, data: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(data), data) if self.is_chunked else data


class EventEncodings:
    """Every format, each with what it has encoded last."""

    def __init__(self) -> None:
        self._all = {
            (name, form.content_type.decode(), chunked): EventEncoding(form, chunked=chunked)
            for name, forms in _FORMATS.items()
            for form in forms
            for chunked in (True, False)
        }

    def find(self, accept: str, form: Format, *, chunked: bool) -> EventEncoding | None:
        """The encoding that suits a client best; None if none does.

        `accept`: its header field of this name; `form`: the parameter `format`.
        """
        content_type = _preferred(accept, [form.content_type.decode() for form in _FORMATS[form]])
        return None if content_type is None else self._all[form, content_type, chunked]


def _preferred(accept: str, content_types: list[str]) -> str | None:
    """The content type that has the highest quality in an `Accept` field (RFC 9110 §12.5.1)."""
    qualities: dict[str, float] = {}
    for part in (accept or "*/*").lower().split(",", MEDIA_RANGES_LIMIT)[:MEDIA_RANGES_LIMIT]:
        media, *parameters = [text.strip() for text in part.split(";", MEDIA_RANGES_LIMIT)[:MEDIA_RANGES_LIMIT]]
        qualities[media] = min([_quality(text) for text in parameters], default=1.0)
    best, found = 0.0, None
    for content_type in content_types:
        ranges = (content_type, content_type.partition("/")[0] + "/*", "*/*")
        quality = next((qualities[name] for name in ranges if name in qualities), 0.0)
        if quality > best:
            best, found = quality, content_type
    return found


def _quality(parameter: str) -> float:
    """That of `q=0.5`; 1 for anything else."""
    name, _, value = parameter.partition("=")
    try:
        return float(value) if name.strip() == "q" else 1.0
    except ValueError:
        return 1.0
