"""HTTP as the simulated clients and the balancer speak it: enough of it, and independent of PushUp's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.simulation.network import End, Network
from tests.simulation.world import Process


class Message(NamedTuple):
    """A request or a response."""

    first_line: str
    headers: dict[str, str]
    body: bytes
    raw: bytes

    @property
    def status(self) -> int:
        return int(self.first_line.split(" ")[1])

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Reader:
    """Makes messages of bytes."""

    def __init__(self) -> None:
        self._data = b""

    def feed(self, data: bytes) -> list[Message]:
        self._data += data
        messages: list[Message] = []
        while True:
            head, end, rest = self._data.partition(b"\r\n\r\n")
            if not end:
                return messages
            line, *fields = head.decode("latin-1").split("\r\n")
            headers = {name.lower(): value for name, value in (field.split(": ", 1) for field in fields)}
            size = int(headers.get("content-length", "0"))
            if len(rest) < size:
                return messages
            whole = len(head) + 4 + size
            messages.append(Message(line, headers, rest[:size], self._data[:whole]))
            self._data = self._data[whole:]


def request(method: str, target: str, body: Any = None, **headers: str) -> bytes:
    data = b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {target} HTTP/1.1", "Host: push.example.org"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    if data:
        lines += ["Content-Type: application/json", f"Content-Length: {len(data)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


class HttpClient:
    """A client that makes one request at a time, on a connection that it keeps if it can."""

    def __init__(self, network: Network, process: Process) -> None:
        self._network = network
        self._process = process
        self._end: End | None = None
        self._host = ""
        self._request = 0
        self._on_reply: Callable[[Message | None], None] | None = None

    @property
    def is_busy(self) -> bool:
        return self._on_reply is not None

    def ask(
        self, host: str, data: bytes, timeout: float, on_reply: Callable[[Message | None], None], slow: float = 0.0
    ) -> None:
        """Send a request, and call back once: with None if no reply came in time, or none at all.

        `slow`: seconds before it reads the reply.
        """
        assert self._on_reply is None, "one at a time"
        self._request += 1
        number = self._request
        self._on_reply = on_reply
        self._process.later(timeout, lambda: self._give_up(number))
        if self._end is not None and self._end.is_open and self._host == host:
            self._send(self._end, data, slow)
            return
        self.drop()
        self._on_reply = on_reply
        self._host = host

        def made(end: End) -> None:
            if number != self._request or self._on_reply is None:
                end.close()
                return
            self._end = end
            reader = Reader()
            end.on_data = lambda data: self._received(end, reader, data)
            end.on_end = end.on_lost = lambda: self._lost(end)
            self._send(end, data, slow)

        self._network.connect(self._process.name, self._process, host, made, lambda: self._failed(number))

    def _send(self, end: End, data: bytes, slow: float) -> None:
        end.send(data)
        if slow:
            end.read(False)
            self._process.later(slow, end.read)

    def drop(self) -> None:
        """Close the connection, whatever is under way; nobody is told."""
        self._on_reply = None
        end, self._end = self._end, None
        if end is not None:
            end.on_data = lambda data: None
            end.on_end = end.on_lost = lambda: None
            end.reset()

    def _received(self, end: End, reader: Reader, data: bytes) -> None:
        for message in reader.feed(data):
            if end is self._end:
                if message.headers.get("connection") == "close":
                    end.close()
                    self._end = None
                self._tell(message)

    def _lost(self, end: End) -> None:
        end.close()
        if end is self._end:
            self._end = None
            self._tell(None)

    def _failed(self, number: int) -> None:
        if number == self._request:
            self._tell(None)

    def _give_up(self, number: int) -> None:
        if number == self._request and self._on_reply is not None:
            on_reply = self._on_reply
            self.drop()
            on_reply(None)

    def _tell(self, message: Message | None) -> None:
        on_reply, self._on_reply = self._on_reply, None
        if on_reply is not None:
            on_reply(message)
