"""A blocking client with one connection, on the standard library. The command line uses it."""

from __future__ import annotations

import http.client
import json
import random
import time
import uuid
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, urlencode

from pushup.client.credentials import Credentials
from pushup.client.http_connection import ClientError, connection, read_reply

TIMEOUT_SECONDS = 10.0
"""How long a call may take by default, beyond the time for which it asks the server to hold a poll."""

HOLD_SECONDS = 80.0
"""Longer than a server holds a poll by default (`poll_timeout_limit_seconds`)."""

RETRY_SECONDS = (0.2, 10.0)
"""The first and the longest pause before a retry."""

LAST_SECONDS = 0.1
"""A publisher that has less time than this left does not try again."""

SILENCE_SECONDS = 45.0
"""A stream that is silent for this long is dead: by default a heartbeat comes every 15 s."""

RETURN_SECONDS = 0.5
"""After a stream has ended in order, the client returns within this time, at random."""


class Client:
    """A client of the server at `url`, such as http://127.0.0.1:8080 or unix:/run/pushup.sock.

    It has one connection: one thread at a time may use it, except for `stop`. `with Client(...) as client` closes it at
    the end. A call takes at most `timeout` seconds, from connecting to the last byte of the response. `retry_seconds`:
    the first and the longest pause before a retry.

    It sends a publish key (`key`) or a signed token: `token` is one, or a function that returns a new one. The function
    is called before the first request, before a token ends, and when one that was accepted is refused.
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        token: str | Callable[[], str] | None = None,
        timeout: float = TIMEOUT_SECONDS,
        retry_seconds: tuple[float, float] = RETRY_SECONDS,
    ) -> None:
        """Raises: ClientError if the URL is not valid; ValueError if there are a key and a token, or no valid token."""
        self._timeout = timeout
        self._retry_seconds = retry_seconds
        self._connection = connection(url)
        self._stopped = self._connection.stopped
        self._credentials = Credentials(key, token, self._stopped)
        self._url = url.rpartition("@")[2]  # for errors, without a password
        self._tickets: dict[frozenset[str], str] = {}

    def close(self) -> None:
        """Close the connection; the next call opens a new one."""
        self._connection.close()

    def stop(self) -> None:
        """End `follow` and `events` within a second, from any thread or a signal handler; every other call fails."""
        self._stopped.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def publish(
        self,
        channels: list[str],
        data: Any,
        *,
        event: str | None = None,
        ephemeral: bool = False,
        idempotency_key: str | None = None,
        ack: str | None = None,
        patience: float = 0.0,
    ) -> dict[str, Any]:
        """Publish one message; returns its `id`, `time` and `cursor`, and the `ack` reached if `ack` is given.

        `event` is a name that subscribers receive with it. An `ephemeral` message is kept for 5 s and then dropped
        without a gap.

        With `patience`, it tries again while the server cannot be reached or is unavailable; all tries together take at
        most `patience` seconds. Every try has the same idempotency key, so the message is published once. Servers
        remember no keys of ephemeral messages: a retry may publish one again.
        """
        headers = {"Idempotency-Key": idempotency_key or uuid.uuid4().hex}
        body = {"channels": channels, "data": data, **_given(event=event, ephemeral=ephemeral or None, ack=ack)}
        until, trouble = time.monotonic() + (patience or self._timeout), 0
        while True:
            left = min(until - time.monotonic(), self._timeout)
            try:
                return self.call("POST", "/v1/messages", body, headers, timeout=left)
            except ClientError as error:
                left = until - time.monotonic()
                if not (patience and error.may_pass) or left < LAST_SECONDS or self._stopped.is_set():
                    raise
            self._stopped.wait(min(left / 2, self._pause(trouble)))
            trouble += 1

    def cursor(self, timeout: float | None = None) -> str:
        """The present: a poll with this cursor gets whatever is published from now on. It takes at most `timeout` s."""
        found: str = self.call("GET", "/v1/cursor", timeout=timeout)["cursor"]
        return found

    def poll(
        self, channels: list[str], cursor: str = "", timeout: float | None = None, limit: int | None = None
    ) -> dict[str, Any]:
        """Poll once: the server holds the poll for up to `timeout` s, and the call takes the client's timeout longer.

        A ticket in the answer is sent with the next poll of the same channels.
        """
        longest = self._timeout + (HOLD_SECONDS if timeout is None else timeout)
        parameters: list[tuple[str, str]] = [("channel", channel) for channel in channels]
        parameters.append(("cursor", cursor))
        parameters += [(n, str(v)) for n, v in (("timeout", timeout), ("limit", limit)) if v is not None]
        target = "/v1/poll?" + urlencode(parameters)
        ticket = self._tickets.pop(frozenset(channels), None)
        try:
            answer = self.call("GET", target, headers={"PushUp-Ticket": ticket} if ticket else None, timeout=longest)
        except ClientError as error:
            if error.problem.get("type") != "urn:pushup:ticket-expired":
                raise
            ticket = None
            answer = self.call("GET", target, timeout=longest)
        self._credentials.accepted(answer.get("expires_in"))
        ticket = answer.get("ticket", ticket)
        if ticket is not None:
            self._tickets[frozenset(channels)] = ticket
        return answer

    def follow(
        self, channels: list[str], cursor: str = "", *, on_trouble: Callable[[ClientError, float], None]
    ) -> Iterator[dict[str, Any]]:
        """Poll repeatedly until `stop`, and yield each answer.

        While the server cannot be reached or is unavailable, retries with growing, random pauses, and calls
        `on_trouble` with the error and the pause. Raises: ClientError when the server refuses.
        """
        trouble = 0
        while not self._stopped.is_set():
            try:
                answer = self.poll(channels, cursor)
            except ClientError as error:
                self._wait(error, trouble, on_trouble)
                trouble += 1
            else:
                trouble = 0
                cursor = answer["cursor"]
                yield answer

    def events(
        self, channels: list[str], cursor: str = "", *, on_trouble: Callable[[ClientError, float], None]
    ) -> Iterator[dict[str, Any]]:
        """Open a stream, again whenever it ends, until `stop`, and yield each event: some of `event`, `id` and `data`.

        Retries, and raises, as `follow` does.
        """
        trouble = 0
        while not self._stopped.is_set():
            try:
                for event in self._stream(channels, cursor):
                    trouble = 0
                    cursor = event.get("id", cursor)
                    yield event
            except ClientError as error:
                if error.problem.get("type") == "urn:pushup:ticket-expired":
                    self._tickets.pop(frozenset(channels), None)  # without it the application is asked
                elif not self._credentials.may_retry(error):
                    self._wait(error, trouble, on_trouble)
                    trouble += 1
            else:
                self._stopped.wait(random.uniform(0, RETURN_SECONDS))  # noqa: S311  # no secret

    def _stream(self, channels: list[str], cursor: str) -> Iterator[dict[str, Any]]:
        """The events of one stream, until it ends. Raises: ClientError."""
        query = urlencode([*(("channel", channel) for channel in channels), ("cursor", cursor)])
        sent = {"Accept": "application/x-ndjson"}
        ticket = self._tickets.get(frozenset(channels))
        if ticket is not None:
            sent["PushUp-Ticket"] = ticket
        self._connection.allow(SILENCE_SECONDS)
        try:
            self._connection.request("GET", f"/v1/events?{query}", headers=sent | self._credentials.headers())
            response = self._connection.getresponse()
            if response.status != 200:
                read_reply(response)
            self._credentials.accepted()
            while line := response.readline():
                self._connection.allow(SILENCE_SECONDS)
                event: dict[str, Any] = json.loads(line)
                if event.get("event") == "ticket":
                    self._tickets[frozenset(channels)] = event["data"]["ticket"]
                elif event.get("event") == "expiry":
                    self._credentials.accepted(event["data"]["expires_in"])
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

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
        *,
        timeout: float | None = None,
    ) -> dict[str, Any]:
        """Make any call of the HTTP interface. It takes at most `timeout` seconds, or the client's timeout.

        Raises: ClientError.
        """
        self._connection.allow(self._timeout if timeout is None else timeout)
        sent = {"Content-Type": "application/json", **(headers or {})}
        data = None if body is None else json.dumps(body).encode()
        # The server may have closed an idle connection. Repeat the request on a new one if that is safe.
        tries = 2 if self._connection.sock is not None and (method == "GET" or "Idempotency-Key" in sent) else 1
        while True:
            try:
                self._connection.request(method, path, data, sent | self._credentials.headers())
                value = read_reply(self._connection.getresponse())
                self._credentials.accepted()
                return value
            except ClientError as error:
                if not self._credentials.may_retry(error):
                    raise
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()
                tries -= 1
                if tries == 0:
                    raise self._unreachable(error) from None

    def _wait(self, error: ClientError, trouble: int, on_trouble: Callable[[ClientError, float], None]) -> None:
        """Pause before a retry, after `trouble` failures in a row before this one; not after `stop`.

        Raises: ClientError if no retry can help.
        """
        if self._stopped.is_set():
            return
        if not error.may_pass:
            raise error
        pause = self._pause(trouble)
        on_trouble(error, pause)
        self._stopped.wait(pause)

    def _pause(self, trouble: int) -> float:
        """Seconds until the next try, after this many failures in a row before the last one."""
        first, longest = self._retry_seconds
        pause: float = min(longest, first * 2 ** min(trouble, 16)) * random.uniform(0.5, 1.0)  # noqa: S311  # no secret
        return pause

    def _unreachable(self, error: Exception) -> ClientError:
        return ClientError(f"cannot reach the server at {self._url}: {error or type(error).__name__}")


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
