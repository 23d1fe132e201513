"""Calls of the HTTP interface over an `http.client` connection, like those of a web backend or a browser."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import urlencode

from tests.server.raw_client import WAIT_SECONDS, connected_socket


class Reply(NamedTuple):
    """A response; `value` is its body parsed as JSON, or None if it is not JSON."""

    status: int
    headers: http.client.HTTPMessage
    text: str
    value: Any


class _Connection(http.client.HTTPConnection):
    """A connection to any kind of address that a server can listen on."""

    def __init__(self, address: str) -> None:
        super().__init__("localhost", timeout=WAIT_SECONDS)
        self._address = address

    def connect(self) -> None:
        self.sock: socket.socket = connected_socket(self._address)


class Caller:
    """A client with one connection, to an address or one that is passed in; it is reopened after it was closed."""

    def __init__(self, to: str | http.client.HTTPConnection) -> None:
        self._connection = _Connection(to) if isinstance(to, str) else to

    def begin(self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> None:
        """Send a request; get its reply from `finish`. A body of bytes is sent unchanged, any other as JSON."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        self._connection.request(method, path, data, dict(headers or {}))

    def finish(self) -> Reply:
        """The reply to the request sent by `begin`."""
        response = self._connection.getresponse()
        text = response.read().decode()
        value = json.loads(text) if "json" in response.headers.get("Content-Type", "") else None
        return Reply(response.status, response.headers, text, value)

    def call(self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> Reply:
        """Send a request and return its reply."""
        self.begin(method, path, body, headers)
        return self.finish()

    def publish(self, channels: Sequence[str], data: object, *, key: str | None = None) -> dict[str, Any]:
        """Publish one message, which must succeed."""
        headers = {"Idempotency-Key": key} if key else {}
        reply = self.call("POST", "/v1/messages", {"channels": list(channels), "data": data}, headers)
        assert reply.status == 201, reply
        value: dict[str, Any] = reply.value
        return value

    def begin_poll(self, *channels: str, **parameters: object) -> None:
        """Send a poll; get its answer from `answer`."""
        self.begin("GET", poll_path(*channels, **parameters))

    def answer(self) -> dict[str, Any]:
        """The answer to the poll that was sent, which must succeed."""
        reply = self.finish()
        assert reply.status == 200, reply
        value: dict[str, Any] = reply.value
        return value

    def poll(self, *channels: str, **parameters: object) -> dict[str, Any]:
        """Send a poll and return its answer, which must succeed."""
        self.begin_poll(*channels, **parameters)
        return self.answer()

    def cursor(self) -> str:
        """The current cursor, for messages from now on."""
        value: str = self.call("GET", "/v1/cursor").value["cursor"]
        return value

    def move_to(self, address: str) -> None:
        """From now on, call the server at another address."""
        self.close()
        self._connection = _Connection(address)

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def poll_path(*channels: str, **parameters: object) -> str:
    """The target of a poll; `from_` is the parameter `from`."""
    pairs = [("channel", channel) for channel in channels]
    return "/v1/poll?" + urlencode(pairs + [(name.rstrip("_"), str(value)) for name, value in parameters.items()])


def data_of(answer: dict[str, Any]) -> list[Any]:
    """The data of the messages in an answer."""
    return [message["data"] for message in answer["messages"]]


def gaps_of(answer: dict[str, Any]) -> list[tuple[str, str]]:
    """The channel and the reason of each gap in an answer."""
    return [(gap["channel"], gap["reason"]) for gap in answer["gaps"]]


def sequence(cursor: str) -> int:
    """The sequence in an id or a cursor."""
    return int(cursor.rpartition("-")[2])
