"""The bytes of an event stream: server-sent events (HTML standard, 9.2), or the same as lines of JSON.

An event has the fields `event`, `id` and `data`, any of which may be missing. `id` is the cursor after the event; one
without it does not move the cursor. docs/guide/streams.md lists them.

Events that go to many streams are encoded once.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from pushup.core.answer import Answer
from pushup.core.cursor import cursor_after, sequence_in
from pushup.net.api.bodies import write

MEDIA_RANGES_LIMIT = 32
"""Media ranges of an `Accept` that are read, and parameters of each; browsers send up to eight."""

RETRY_MILLISECONDS = 1000
"""How long a browser waits before it connects again."""


class _Format(Struct, frozen=True):
    """How events are written; `heartbeat` is written before the cursor when there is nothing else."""

    content_type: bytes
    start: bytes
    heartbeat: bytes
    event: Callable[[bytes, bytes, bytes], bytes]


def _server_sent(event: bytes, id: bytes, data: bytes) -> bytes:  # noqa: A002  # the field's name
    lines = [b"%b: %b\n" % field for field in ((b"event", event), (b"id", id), (b"data", data)) if field[1]]
    return b"%b\n" % b"".join(lines)


def _line(event: bytes, id: bytes, data: bytes) -> bytes:  # noqa: A002
    fields = []
    if event:
        fields.append(b'"event":"%b"' % event)
    if id:
        fields.append(b'"id":"%b"' % id)
    if data:
        fields.append(b'"data":%b' % data)
    return b"{%b}\n" % b",".join(fields)


_FORMATS = (
    _Format(b"text/event-stream", b":\nretry: %d\n\n" % RETRY_MILLISECONDS, b":\n", _server_sent),
    _Format(b"application/x-ndjson", b'{"retry":%d}\n' % RETRY_MILLISECONDS, b"", _line),
)
"""The first is used where the client has no preference."""


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
            parts.append(form.event(b"expiry", b"", write({"expires_in": expires_in})))
        if ticket:
            parts.append(form.event(b"ticket", b"", write({"ticket": ticket})))
        if cursor:
            parts.append(form.event(b"", cursor.encode(), b""))
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
            events += self._form.event(b"", answer.cursor.encode(), b"")
        return self._chunk(events)

    def error(self, problem: bytes) -> bytes:
        """The event that says why a stream ends; `problem`: a problem document."""
        return self._chunk(self._form.event(b"error", b"", problem))

    def _events(self, answer: Answer) -> bytes:
        """Gaps and closings come first: who continues at any later `id` is not told of them again."""
        event = self._form.event
        parts = [event(b"gap", b"", write(gap)) for gap in answer.gaps]
        parts += [event(b"closed", b"", write({"channel": name})) for name in answer.closed]
        data_at = {cursor_after(message.id, answer.cursor): write(message) for message in answer.messages}
        if answer.gaps:
            data_at = _with_ends(answer, data_at)
        for cursor, data in data_at.items():
            if b"\n" in data or b"\r" in data:  # between two tokens of JSON: in a string they are escaped
                data = data.replace(b"\r", b" ").replace(b"\n", b" ")
            parts.append(event(b"", cursor.encode(), data))
        if not answer.tells_something:
            parts.append(self._form.heartbeat)
        if self._ends_with_cursor(answer):
            parts.append(event(b"", answer.cursor.encode(), b""))
        return b"".join(parts)

    def _ends_with_cursor(self, answer: Answer) -> bool:
        """Whether an event of its own has the cursor of the answer; else the last message has it, or an earlier one."""
        return bool(answer.gaps or answer.closed or not answer.messages)

    def _chunk(self, data: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(data), data) if self.is_chunked else data


def _with_ends(answer: Answer, data_at: dict[str, bytes]) -> dict[str, bytes]:
    """The same with an event without data where a gap ends, if no message has that cursor.

    A gap that reaches beyond the answer is reported again by the next.
    """
    last = sequence_in(answer.cursor)
    ends = {gap.until: b"" for gap in answer.gaps if sequence_in(gap.until) < last}
    return dict(sorted((ends | data_at).items(), key=lambda item: sequence_in(item[0])))


class EventEncodings:
    """Every format, each with what it has encoded last."""

    def __init__(self) -> None:
        self._all = {
            (form.content_type.decode(), chunked): EventEncoding(form, chunked=chunked)
            for form in _FORMATS
            for chunked in (True, False)
        }

    def find(self, accept: str, *, chunked: bool) -> EventEncoding | None:
        """The encoding that suits a client best; `accept`: its header field of this name. None if none does."""
        content_type = _preferred(accept)
        return None if content_type is None else self._all[content_type, chunked]


def _preferred(accept: str) -> str | None:
    """The content type that has the highest quality in an `Accept` field (RFC 9110 §12.5.1)."""
    qualities: dict[str, float] = {}
    for part in (accept or "*/*").lower().split(",", MEDIA_RANGES_LIMIT)[:MEDIA_RANGES_LIMIT]:
        media, *parameters = [text.strip() for text in part.split(";", MEDIA_RANGES_LIMIT)[:MEDIA_RANGES_LIMIT]]
        qualities[media] = min([_quality(text) for text in parameters], default=1.0)
    best, found = 0.0, None
    for form in _FORMATS:
        content_type = form.content_type.decode()
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
