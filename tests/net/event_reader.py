"""Reads event streams as clients do: server-sent events by the rules of the HTML standard, and lines of JSON."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple


class Event(NamedTuple):
    """An event. `event` and `id` are empty and `data` is None where they are missing."""

    event: str
    id: str
    data: Any


def read_chunks(body: bytes) -> tuple[bytes, bool]:
    """The content of a body in chunks, and whether the last chunk has come."""
    content = b""
    while body:
        size, _, rest = body.partition(b"\r\n")
        length = int(size, 16)
        content += rest[:length]
        assert rest[length : length + 2] == b"\r\n", rest[:100]
        body = rest[length + 2 :]
        if length == 0:
            assert not body
            return content, True
    return content, False


def read_events(content: bytes) -> list[Event]:
    """All events; comments and `retry` are left out."""
    *blocks, rest = content.decode().split("\n\n")
    assert rest == "", f"incomplete: {rest!r}"
    return [event for block in blocks for event in _event(block)]


def _event(block: str) -> list[Event]:
    fields: dict[str, str] = {}
    for line in block.split("\n"):
        name, _, value = line.partition(":")
        if name in ("event", "id", "data"):
            assert name not in fields
            fields[name] = value.removeprefix(" ")
    data = json.loads(fields["data"]) if "data" in fields else None
    return [Event(fields.get("event", ""), fields.get("id", ""), data)] if fields else []


def read_raw(content: bytes) -> list[Event]:
    """All events with `format=raw`, their data as text, as the HTML standard says (9.2.6, "Interpreting an event
    stream"): an event without a line of data moves the cursor, and the page does not see it."""
    events, event, last, data = [], "", "", ""
    for line in re.split(r"\r\n|\r|\n", content.decode()):
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            event = value
        elif name == "data":
            data += value + "\n"
        elif name == "id" and "\0" not in value:
            last = value
        elif not line:
            if data:
                events.append(Event(event, last, data.removesuffix("\n")))
            event = data = ""
    return events


def read_lines(content: bytes) -> list[Event]:
    """All events of a stream of JSON; `retry` is left out."""
    *lines, rest = content.decode().split("\n")
    assert rest == "", f"incomplete: {rest!r}"
    values = [json.loads(line) for line in lines]
    return [Event(v.get("event", ""), v.get("id", ""), v.get("data")) for v in values if "retry" not in v]


def cursor_of(events: list[Event], cursor: str = "") -> str:
    """The last cursor in these events, or else the one before."""
    return next((event.id for event in reversed(events) if event.id), cursor)


def data_of(events: list[Event]) -> list[Any]:
    """The data of the messages."""
    return [event.data["data"] for event in events if event.data is not None and not event.event]
