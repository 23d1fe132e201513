"""Reads event streams: server-sent events (HTML standard, 9.2), and lines of JSON with the same fields."""

from __future__ import annotations

import json
import re
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from conformance.adapter import Answer
from conformance.pushup import read_message
from conformance.registry import Failed
from conformance.wire import Body, Response, Wire

EVENTS = "text/event-stream"

LINES = "application/x-ndjson"

RAW = "raw"
"""The `format` in which the data of an event is text, and a string comes as it is."""

_LINE_END = re.compile(rb"\r\n|\r|\n")


class Event(NamedTuple):
    """An event; `data` is what its JSON says, and None without any. One without a name and data moves the cursor."""

    name: str = ""
    id: str = ""
    data: Any = None

    @property
    def is_message(self) -> bool:
        return not self.name and self.data is not None


class Reader(Protocol):
    """Finds the events in a body."""

    def feed(self, data: bytes) -> list[Event]:
        """The events that are complete with these bytes. Raises: Failed if it is something else."""


class _Lines:
    """Cuts bytes into lines, whichever way they end; a line that ends with CR need not wait for an LF."""

    def __init__(self) -> None:
        self._rest = b""
        self._after_cr = False

    def feed(self, data: bytes) -> list[str]:
        if self._after_cr and data:
            data, self._after_cr = data.removeprefix(b"\n"), False
        *lines, self._rest = _LINE_END.split(self._rest + data)
        self._after_cr = data.endswith(b"\r")
        try:
            return [line.decode() for line in lines]
        except UnicodeDecodeError:
            raise Failed(f"expected UTF-8 in a stream, and {data[:200]!r} came") from None


class ServerSentEvents:
    """Reads `text/event-stream`. Also returns what a browser does not show to its page: events without data.

    `decode`: what the data of an event says.
    """

    def __init__(self, decode: Callable[[str], Any] = lambda text: _json(text)) -> None:
        self._decode = decode
        self._lines = _Lines()
        self._is_first = True
        self._fields: dict[str, str] = {}

    def feed(self, data: bytes) -> list[Event]:
        return [event for line in self._lines.feed(data) if (event := self._line(line)) is not None]

    def _line(self, line: str) -> Event | None:
        if self._is_first:
            line, self._is_first = line.removeprefix("\ufeff"), False
        if line:
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if name == "data" and name in self._fields:
                value = f"{self._fields[name]}\n{value}"
            if name in ("event", "id", "data"):
                self._fields[name] = value
            return None
        fields, self._fields = self._fields, {}
        if not fields:
            return None
        return Event(
            fields.get("event", ""), fields.get("id", ""), self._decode(fields["data"]) if "data" in fields else None
        )


class LinesOfJson:
    """Reads `application/x-ndjson`."""

    def __init__(self) -> None:
        self._lines = _Lines()

    def feed(self, data: bytes) -> list[Event]:
        return [event for line in self._lines.feed(data) if line and (event := _from_line(line)) is not None]


READERS: dict[str, type[ServerSentEvents | LinesOfJson]] = {EVENTS: ServerSentEvents, LINES: LinesOfJson}


def media_type(response: Response) -> str:
    """The `Content-Type` of a response without its parameters."""
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


_TOLD = ("", "gap", "closed", "error")
"""Events that a check expects at a certain place. Others may be added to the protocol."""


class EventStream:
    """An open stream, read event by event; `cursor` is the last id that came."""

    def __init__(self, wire: Wire, head: Response, patience: float, form: str = "") -> None:
        """`form`: the parameter `format`. Raises: Failed if the response is no stream."""
        kind = media_type(head)
        if head.status != 200 or kind not in READERS:
            raise Failed(f"expected a stream, and {head.status} with the type {kind!r} came")
        self.head = head
        self.cursor = ""
        self.ticket: Event | None = None
        """The event with a ticket, if one has come. It is not among the others."""
        self._patience = patience
        self._body = Body(wire, head)
        self._reader: Reader = ServerSentEvents(str) if form == RAW else READERS[kind]()
        self._events: deque[Event] = deque()

    def piece(self, within: float = 0.0) -> bytes:
        """The next bytes of the body, whatever they are; nothing at its end. Raises: Failed if none come in time."""
        data = self._body.piece(time.monotonic() + (within or self._patience))
        self._events += self._reader.feed(data)
        return data

    def next(self, within: float = 0.0) -> Event:
        """The next event. `within`: seconds instead of `patience`. Raises: Failed if none comes in time."""
        event = self._next(time.monotonic() + (within or self._patience))
        if event is None:
            raise Failed("expected an event, and the stream ended")
        return event

    def named(self, name: str) -> Event:
        """The next gap, closing, error or message, which must have this name; empty: a message."""
        deadline = time.monotonic() + self._patience
        while (event := self._next(deadline)) is not None:
            if event.name in _TOLD and (event.name or event.is_message):
                break
        if event is None:
            raise Failed(f"expected {f'the event {name}' if name else 'a message'}, and the stream ended")
        if event.name != name:
            raise Failed(f"expected {f'the event {name}' if name else 'a message'}, and {event} came")
        return event

    def message(self) -> Any:
        """The data of the next message. Raises: Failed if something else comes."""
        return self.answer().data[0]

    def answer(self) -> Answer:
        """The next message as the answer of a poll, with the cursor after it."""
        event = self.named("")
        if not event.id:
            raise Failed(f"expected an id with each message, and {event} came")
        try:
            return Answer(event.id, (read_message(event.data),))
        except (KeyError, TypeError):
            raise Failed(f"expected a message with id, time, channels and data, and {event} came") from None

    def rest(self, within: float = 0.0) -> list[Event]:
        """The events up to the end of the stream. Raises: Failed if it does not end in time, or not as it should."""
        deadline, events = time.monotonic() + (within or self._patience), []
        while (event := self._next(deadline)) is not None:
            events.append(event)
        return events

    def _next(self, deadline: float) -> Event | None:
        while not self._events:
            try:
                data = self._body.piece(deadline)
            except Failed as error:
                raise Failed(str(error).replace("expected a response", "expected an event", 1)) from None
            if not data:
                return None
            self._events += self._reader.feed(data)
        event = self._events.popleft()
        self.cursor = event.id or self.cursor
        if event.name == "ticket":
            self.ticket = event
            return self._next(deadline)
        return event


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise Failed(f"expected JSON as the data of an event, and {text[:200]!r} came") from None


def _from_line(line: str) -> Event | None:
    value = _json(line)
    if not isinstance(value, dict):
        raise Failed(f"expected an object on each line, and {line[:200]!r} came")
    event = Event(value.get("event", ""), value.get("id", ""), value.get("data"))
    if not isinstance(event.name, str) or not isinstance(event.id, str):
        raise Failed(f"expected text as event and id, and {line[:200]!r} came")
    return event if event != Event() else None
