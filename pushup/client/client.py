"""A blocking client with one connection, on the standard library. The command line uses it."""

from __future__ import annotations

import http.client
import json
import random
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, urlencode, urlsplit

TIMEOUT_SECONDS = 90.0
"""Longer than the longest time for which a server holds a poll by default (`poll_timeout_limit_seconds`)."""

RETRY_SECONDS = (0.2, 10.0)
"""The first and the longest pause before a retry."""

SILENCE_SECONDS = 45.0
"""A stream that is silent for this long is dead: by default a heartbeat comes every 15 s."""

RETURN_SECONDS = 0.5
"""After a stream has ended in order, the client returns within this time, at random."""


class ClientError(Exception):
    """The server cannot be reached, or refused; then `status` is the HTTP status and `problem` the response's body."""

    def __init__(self, text: str, status: int = 0, problem: dict[str, Any] | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.problem = problem or {}

    @property
    def may_pass(self) -> bool:
        """Whether a retry may succeed."""
        return self.status == 0 or self.status in (429, 502, 503, 504)


class Client:
    """A client of the server at `url`, such as http://127.0.0.1:8080 or unix:/run/pushup.sock.

    It has one connection: one thread at a time may use it. `with Client(...) as client` closes it at the end.
    """

    def __init__(self, url: str, key: str | None = None) -> None:
        """Raises: ClientError if the URL is not valid."""
        self._key = key
        self._connection = _connection(url)
        self._url = url.rpartition("@")[2]  # for errors, without a password
        self._tickets: dict[frozenset[str], str] = {}

    def close(self) -> None:
        """Close the connection; the next call opens a new one."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def publish(
        self,
        channels: list[str],
        data: Any,
        *,
        idempotency_key: str | None = None,
        ack: str | None = None,
        patience: float = 0.0,
    ) -> dict[str, Any]:
        """Publish one message; returns its `id`, `time` and `cursor`, and the `ack` reached if `ack` is given.

        While the server cannot be reached or is unavailable, it tries again for `patience` seconds: with an idempotency
        key, so the message is published once.
        """
        key = idempotency_key or (uuid.uuid4().hex if patience else "")
        headers = {"Idempotency-Key": key} if key else {}
        body = {"channels": channels, "data": data, **_given(ack=ack)}
        until, trouble = time.monotonic() + patience, 0
        while True:
            try:
                return self.call("POST", "/v1/messages", body, headers)
            except ClientError as error:
                left = until - time.monotonic()
                if not error.may_pass or left <= 0:
                    raise
                time.sleep(min(left, _pause(trouble)))
                trouble += 1

    def cursor(self) -> str:
        """The present: a poll with this cursor gets whatever is published from now on."""
        found: str = self.call("GET", "/v1/cursor")["cursor"]
        return found

    def poll(
        self, channels: list[str], cursor: str = "", timeout: float | None = None, limit: int | None = None
    ) -> dict[str, Any]:
        """Poll once. A ticket in the answer is sent with the next poll of the same channels."""
        parameters: list[tuple[str, str]] = [("channel", channel) for channel in channels]
        parameters.append(("cursor", cursor))
        parameters += [(n, str(v)) for n, v in (("timeout", timeout), ("limit", limit)) if v is not None]
        target = "/v1/poll?" + urlencode(parameters)
        same = frozenset(channels)
        ticket = self._tickets.pop(same, None)
        try:
            answer = self.call("GET", target, headers={"PushUp-Ticket": ticket} if ticket else None)
        except ClientError as error:
            if error.problem.get("type") != "urn:pushup:ticket-expired":
                raise
            ticket = None
            answer = self.call("GET", target)
        ticket = answer.get("ticket", ticket)
        if ticket is not None:
            self._tickets[same] = ticket
        return answer

    def follow(
        self, channels: list[str], cursor: str = "", *, on_trouble: Callable[[ClientError, float], None]
    ) -> Iterator[dict[str, Any]]:
        """Poll repeatedly, without end, and yield each answer.

        While the server cannot be reached or is unavailable, retries with growing, random pauses, and calls
        `on_trouble` with the error and the pause. Raises: ClientError when the server refuses.
        """
        trouble = 0
        while True:
            try:
                answer = self.poll(channels, cursor)
            except ClientError as error:
                _wait(error, trouble, on_trouble)
                trouble += 1
            else:
                trouble = 0
                cursor = answer["cursor"]
                yield answer

    def events(
        self, channels: list[str], cursor: str = "", *, on_trouble: Callable[[ClientError, float], None]
    ) -> Iterator[dict[str, Any]]:
        """Open a stream, again whenever it ends, and yield each event: a dict with some of `event`, `id` and `data`.

        Retries, and raises, as `follow` does.
        """
        trouble = 0
        while True:
            try:
                for event in self._stream(channels, cursor):
                    trouble = 0
                    cursor = event.get("id", cursor)
                    yield event
            except ClientError as error:
                _wait(error, trouble, on_trouble)
                trouble += 1
            else:
                time.sleep(random.uniform(0, RETURN_SECONDS))  # noqa: S311  # no secret

    def _stream(self, channels: list[str], cursor: str) -> Iterator[dict[str, Any]]:
        """The events of one stream, until it ends. Raises: ClientError."""
        query = urlencode([*(("channel", channel) for channel in channels), ("cursor", cursor)])
        sent = {"Accept": "application/x-ndjson"}
        ticket = self._tickets.get(frozenset(channels))
        if ticket is not None:
            sent["PushUp-Ticket"] = ticket
        try:
            self._connection.request("GET", f"/v1/events?{query}", headers=sent)
            response = self._connection.getresponse()
            if response.status != 200:
                _read(response)
            if self._connection.sock is not None:
                self._connection.sock.settimeout(SILENCE_SECONDS)
            while line := response.readline():
                event: dict[str, Any] = json.loads(line)
                if event.get("event") == "ticket":
                    self._tickets[frozenset(channels)] = event["data"]["ticket"]
                elif event.get("event") == "error":
                    problem = event["data"]
                    raise ClientError(f"{problem['status']} {problem['detail']}", problem["status"], problem)
                elif "retry" not in event:
                    yield event
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._unreachable(error) from None
        finally:
            self._connection.close()

    def create(self, name: str | None = None, ttl: float | None = None) -> dict[str, Any]:
        """Create a channel; returns its `id`, `name` and `expires`."""
        return self.call("POST", "/v1/channels", _given(name=name, ttl=ttl))

    def renew(self, channel: str, ttl: float | None = None) -> dict[str, Any]:
        return self.call("POST", f"/v1/channels/{quote(channel, safe='')}/renew", _given(ttl=ttl))

    def close_channel(self, channel: str) -> None:
        self.call("DELETE", f"/v1/channels/{quote(channel, safe='')}")

    def channel(self, channel: str) -> dict[str, Any]:
        return self.call("GET", f"/v1/channels/{quote(channel, safe='')}")

    def channels(self) -> Iterator[dict[str, Any]]:
        """All open channels, by id."""
        after = 0
        more = True
        while more:
            page = self.call("GET", f"/v1/channels?after={after}")
            yield from page["channels"]
            more = page["more"]
            after = page["channels"][-1]["id"] if more else after

    def call(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> dict[str, Any]:
        """Make any call of the HTTP interface.

        Raises: ClientError.
        """
        sent = {"Content-Type": "application/json", **(headers or {})}
        if self._key:
            sent["Authorization"] = f"Bearer {self._key}"
        data = None if body is None else json.dumps(body).encode()
        # The server may have closed an idle connection. Repeat the request on a new one if that is safe.
        tries = 2 if self._connection.sock is not None and (method == "GET" or "Idempotency-Key" in sent) else 1
        while True:
            try:
                self._connection.request(method, path, data, sent)
                return _read(self._connection.getresponse())
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()
                tries -= 1
                if tries == 0:
                    raise self._unreachable(error) from None

    def _unreachable(self, error: Exception) -> ClientError:
        return ClientError(f"cannot reach the server at {self._url}: {error or type(error).__name__}")


def _read(response: http.client.HTTPResponse) -> dict[str, Any]:
    """The JSON object in a response. Raises: ClientError for an error or anything else; OSError, HTTPException."""
    text = response.read()
    try:
        value = json.loads(text) if text else {}
    except ValueError:
        value = {}
    if response.status >= 400 or not isinstance(value, dict):
        detail = value.get("detail", "") if isinstance(value, dict) else ""
        raise ClientError(f"{response.status} {response.reason}: {detail}", response.status, value)
    return value


def _wait(error: ClientError, trouble: int, on_trouble: Callable[[ClientError, float], None]) -> None:
    """Pause before a retry, after `trouble` failures in a row before this one. Raises: ClientError if none can help."""
    if not error.may_pass:
        raise error
    pause = _pause(trouble)
    on_trouble(error, pause)
    time.sleep(pause)


def _pause(trouble: int) -> float:
    """Seconds until the next try, after this many failures in a row before the last one."""
    first, longest = RETRY_SECONDS
    pause: float = min(longest, first * 2**trouble) * random.uniform(0.5, 1.0)  # noqa: S311  # no secret
    return pause


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _connection(url: str) -> http.client.HTTPConnection:
    if url.startswith("unix:"):
        return _UnixConnection(url.removeprefix("unix:"))
    parts = urlsplit(url)
    try:
        if parts.scheme in ("http", "https") and parts.hostname:
            kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
            return kind(parts.hostname, parts.port, timeout=TIMEOUT_SECONDS)
    except ValueError:
        pass  # the port is not valid
    raise ClientError(f"{url!r} is not a valid URL; write one such as http://127.0.0.1:8080 or unix:/run/pushup.sock")


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=TIMEOUT_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
