"""An event stream as a simulated client reads it: server-sent events in chunks, independent of PushUp's own code."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.simulation.http import request
from tests.simulation.network import End, Network
from tests.simulation.world import Process


class Event(NamedTuple):
    """The fields of an event; `data` is None if there are none."""

    event: str
    id: str
    data: Any


class EventStream:
    """One connection with one stream, until it ends, breaks, or is dropped."""

    def __init__(
        self,
        network: Network,
        process: Process,
        *,
        silence: float,
        slow: Callable[[], float],
        on_events: Callable[[list[Event]], None],
        on_end: Callable[[str], None],
    ) -> None:
        """`silence`: seconds without anything, after which it is dead; `slow`: seconds before it reads what came.

        `on_events` is called with those of each chunk: what a poll would have been answered with.
        `on_end` is called once, with the reason; empty if the stream has ended in order.
        """
        self._network = network
        self._process = process
        self._silence = silence
        self._slow = slow
        self._on_events = on_events
        self._on_end = on_end
        self._end: End | None = None
        self._data = b""
        self._status = 0
        self._heard = 0
        self.is_open = True

    def open(self, host: str, target: str, headers: dict[str, str] | None = None) -> None:
        self._headers = headers or {}
        self._network.connect(
            self._process.name,
            self._process,
            host,
            lambda end: self._made(end, target),
            lambda: self._over("no server"),
        )
        self._listen()

    def drop(self) -> None:
        """Close it; nobody is told."""
        self.is_open = False
        if self._end is not None:
            self._end.on_data = lambda data: None
            self._end.on_end = self._end.on_lost = lambda: None
            self._end.reset()

    def _made(self, end: End, target: str) -> None:
        if not self.is_open:
            end.close()
            return
        self._end = end
        end.on_data = self._received
        end.on_end = end.on_lost = lambda: self._over("the connection has ended")
        end.send(request("GET", target, Accept="text/event-stream", **self._headers))
        self._rest()

    def _rest(self) -> None:
        """Read nothing for a while."""
        end = self._end
        slow = self._slow()
        if slow and end is not None:
            end.read(False)
            self._process.later(slow, end.read)

    def _listen(self) -> None:
        """Notice if nothing comes for too long."""
        self._heard += 1
        heard = self._heard
        self._process.later(self._silence, lambda: self._over("silence") if heard == self._heard else None)

    def _over(self, why: str) -> None:
        if self.is_open:
            self.drop()
            self._on_end(why)

    def _received(self, data: bytes) -> None:
        self._listen()
        self._data += data
        if not self._status:
            head, end, rest = self._data.partition(b"\r\n\r\n")
            if not end:
                return
            self._status = int(head.split(b" ")[1])
            self._data = rest
        if self._status != 200:
            self._over(f"{self._status} {self._data.decode(errors='replace')}")
            return
        while self.is_open:
            size, end, rest = self._data.partition(b"\r\n")
            if not end or len(rest) < int(size, 16) + 2:
                break
            length = int(size, 16)
            events = _events(rest[:length])
            self._data = rest[length + 2 :]
            if events:
                self._on_events(events)
            if length == 0:
                self._over("")
        self._rest()


def _events(chunk: bytes) -> list[Event]:
    """Those that have a name or an id. No event is spread over two chunks."""
    blocks = chunk.decode().split("\n\n")
    assert blocks.pop() == "", chunk
    events = []
    for block in blocks:
        fields = dict(line.split(": ", 1) for line in block.split("\n") if not line.startswith(":"))
        data = json.loads(fields["data"]) if "data" in fields else None
        events.append(Event(fields.get("event", ""), fields.get("id", ""), data))
    return [event for event in events if event.event or event.id]
