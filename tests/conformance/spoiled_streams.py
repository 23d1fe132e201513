"""Ways to spoil event streams, event by event; `spoiled` passes a stream on through one of these."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from conformance.events import EVENTS, READERS, Event

Spoil = Callable[[Event], Iterable[Event]]
"""Gets an event, and returns what is sent in its place."""


class StreamFault(NamedTuple):
    """How the streams of a server are bad."""

    events: Callable[[], Spoil] | None = None
    """Makes what spoils the events of one stream."""
    late_seconds: float = 0.0
    """How late the body begins."""
    buffers: bool = False
    """Nothing is sent before the end."""
    pieces: Callable[[bytes], bytes] = lambda piece: piece
    """Changes the bytes that are sent at once, which are whole events."""
    breaks_off: bool = False
    """The connection ends without the last chunk."""

    def spoil(self, kind: str, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """The pieces of a body of this media type, spoilt. Lines that are no event, such as `retry`, stay."""
        if self.buffers:
            pieces = iter([b"".join(pieces)])
        pieces = map(self.pieces, pieces)
        if self.events is None:
            yield from pieces
            return
        change, rest = self.events(), b""
        end = b"\n\n" if kind == EVENTS else b"\n"
        for piece in pieces:
            *blocks, rest = (rest + piece).split(end)
            yield b"".join(_spoilt(kind, block + end, change) for block in blocks)


def _spoilt(kind: str, block: bytes, change: Spoil) -> bytes:
    events = READERS[kind]().feed(block)
    return b"".join(_encode(kind, new) for event in events for new in change(event)) if events else block


def _encode(kind: str, event: Event) -> bytes:
    if kind == EVENTS:
        data = "" if event.data is None else json.dumps(event.data)
        fields = (("event", event.name), ("id", event.id), ("data", data))
        return "".join(f"{name}: {value}\n" for name, value in fields if value).encode() + b"\n"
    value = {"event": event.name, "id": event.id, "data": event.data}
    return json.dumps({name: field for name, field in value.items() if field not in ("", None)}).encode() + b"\n"


# Ways to spoil.


def each(change: Callable[[Event], Event | None]) -> StreamFault:
    """Change each event by itself; None leaves it out."""
    return StreamFault(lambda: lambda event: [] if (new := change(event)) is None else [new])


def messages(change: Callable[[Event], Event | None]) -> StreamFault:
    """Change each message."""
    return each(lambda event: change(event) if event.is_message else event)


def without_third() -> Spoil:
    """The third message is left out."""
    seen = 0

    def spoil(event: Event) -> Iterable[Event]:
        nonlocal seen
        seen += event.is_message
        return [] if event.is_message and seen == 3 else [event]

    return spoil


def twice() -> Spoil:
    """Each message comes twice."""
    return lambda event: [event, event] if event.is_message else [event]


def turned_around() -> Spoil:
    """Of each two messages the second comes first."""
    waiting: list[Event] = []

    def spoil(event: Event) -> Iterable[Event]:
        if not event.is_message:
            return [event]
        if not waiting:
            waiting.append(event)
            return []
        return [event, waiting.pop()]

    return spoil


def one_behind() -> Spoil:
    """Each message comes with the next."""
    waiting: list[Event] = []

    def spoil(event: Event) -> Iterable[Event]:
        if not event.is_message:
            return [event]
        waiting.append(event)
        return [waiting.pop(0)] if len(waiting) > 1 else []

    return spoil


def asking() -> Spoil:
    """Each message is followed by the question whether it was read."""
    return lambda event: [event, Event("unread", "", {})] if event.is_message else [event]


def closings_last() -> Spoil:
    """Closings come behind the messages, with the cursor that ends them."""
    waiting: list[Event] = []

    def spoil(event: Event) -> Iterable[Event]:
        if event.name == "closed":
            waiting.append(event)
            return []
        if event.is_message:
            return [event]
        came = [*waiting, event]
        waiting.clear()
        return came

    return spoil


def without_heartbeats() -> Spoil:
    """Cursors without a message come once, at the beginning."""
    seen: list[Event] = []

    def spoil(event: Event) -> Iterable[Event]:
        seen.append(event)
        return [event] if len(seen) == 1 or event.name or event.is_message else []

    return spoil
