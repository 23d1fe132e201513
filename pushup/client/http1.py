"""A request and its response on a connection (RFC 9112). h11 writes the one and reads the other."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from typing import Any

import h11

from pushup.client.driver import Connection
from pushup.client.values import ClientError

HEAD_LIMIT_BYTES = 64 * 1024

ANSWER_LIMIT_BYTES = 32 * 1024 * 1024
"""Of the body of a response, and of a line of a stream. The largest answers are those to polls, of some 256 KiB; but a
server may be configured to take larger messages."""

RETRY_AFTER_LIMIT_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Request:
    """What to send; `body` is JSON. `may_repeat`: whether it does no harm if the server gets it twice."""

    method: str
    target: str
    body: Any = None
    headers: tuple[tuple[str, str], ...] = ()
    may_repeat: bool = True

    def with_header(self, name: str, value: str | None) -> Request:
        if value is None:
            return self
        return replace(self, headers=(*self.headers, (name, value)))

    def sent_later(self, seconds: float) -> Request:
        """The same, to be held by the server for less time if it is a poll."""
        if not isinstance(self.body, dict) or "timeout" not in self.body:
            return self
        return replace(self, body=self.body | {"timeout": max(0.0, self.body["timeout"] - seconds)})


class HttpConnection:
    """A connection for one request after another. Whoever gets an error from it must close it.

    Raises: OSError, also for what is not HTTP, and TimeoutError; Stopped; ClientError for a response that is too large.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_LIMIT_BYTES)
        self._has_ended = False
        self._unread = bytearray()  # of a line
        self.response = h11.Response(status_code=500, headers=[])
        self.idle_since = 0.0
        self.sent: str | None = None
        """The key or token that was sent."""

    @property
    def status(self) -> int:
        return self.response.status_code

    def close(self) -> None:
        self._connection.close()

    async def send(self, request: Request, host: str, until: float) -> None:
        """Send a request, and receive the head of the response."""
        if self._http.our_state is h11.DONE:
            self._http.start_next_cycle()
        headers = [("Host", host), *request.headers]
        body = b"" if request.body is None else _json(request.body)
        if body:
            headers += [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        try:
            head = h11.Request(method=request.method, target=request.target, headers=headers)
        except h11.LocalProtocolError as error:
            raise ValueError(f"the request is not valid: {error}") from None
        data = b"".join(self._http.send(event) or b"" for event in (head, h11.Data(data=body), h11.EndOfMessage()))
        try:
            await self._connection.send(data, until)
        except TimeoutError:
            raise
        except OSError:
            # A server may refuse a request before it has read all of it, and close the connection.
            with suppress(OSError):
                await self._receive_head(until)
                return
            raise
        await self._receive_head(until)

    async def _receive_head(self, until: float) -> None:
        while not isinstance(event := await self._next(until), h11.Response):  # 1xx are no responses
            pass
        self.response = event

    async def part(self, until: float) -> bytes:
        """Some bytes of the body; none at its end."""
        event = await self._next(until)
        return bytes(event.data) if isinstance(event, h11.Data) else b""

    async def _next(self, until: float) -> h11.Event:
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                data = await self._connection.receive(until)
                if not data and self._http.their_state is h11.SEND_RESPONSE:
                    raise ConnectionResetError("the server closed the connection")
                self._http.receive_data(data)
                self._has_ended = not data
        except h11.RemoteProtocolError as error:
            raise ConnectionError(f"the response is not valid: {error}") from None
        assert isinstance(event, h11.Event)  # PAUSED is for servers
        return event

    @property
    def may_be_used_again(self) -> bool:
        """Whether the response has been read, and neither side wants to close."""
        return self._http.our_state is self._http.their_state is h11.DONE and not self._has_ended

    async def line(self, until: float) -> bytes:
        """A line of the body; none at its end."""
        while b"\n" not in self._unread:
            part = await self.part(until)
            if not part:
                return b""
            self._unread += part
            if len(self._unread) > ANSWER_LIMIT_BYTES:
                raise _too_large()
        line, _, self._unread = self._unread.partition(b"\n")
        return bytes(line) + b"\n"

    async def read(self, until: float) -> Any:
        """The JSON in the response; {} if there is nothing, None if there is anything else."""
        body = bytearray()
        while part := await self.part(until):
            body += part
            if len(body) > ANSWER_LIMIT_BYTES:
                raise _too_large()
        try:
            return json.loads(body) if body else {}
        except (ValueError, RecursionError):
            return None

    def error(self, value: Any) -> ClientError:
        """The error that this response is, with this value."""
        problem = value if isinstance(value, dict) else {}
        if self.status < 400:
            hint = f"a redirect to {self._header(b'location')!r}; use the URL of the server"
        else:
            hint = "that is not PushUp's answer; does the URL lead to it, or did a proxy answer?"
        text = f"{self.status} {self.response.reason.decode('latin-1')}: {problem.get('detail', hint)}"
        return ClientError(text, self.status, problem, self._retry_after())

    def _header(self, name: bytes) -> str:
        return next((value.decode("latin-1") for each, value in self.response.headers if each == name), "")

    def _retry_after(self) -> float:
        """Seconds until a client should try again (RFC 9110 §10.2.3); a date is compared with that of the response."""
        text = self._header(b"retry-after")
        seconds = 0.0
        with suppress(ValueError, TypeError, OverflowError):
            if text.isdecimal():
                seconds = float(text)
            elif text:
                at, now = parsedate_to_datetime(text), parsedate_to_datetime(self._header(b"date"))
                seconds = (at - now).total_seconds()
        return min(max(0.0, seconds), RETRY_AFTER_LIMIT_SECONDS)


def _json(value: Any) -> bytes:
    """Not escaped: servers count, keep and deliver what they get, and escaped text is up to three times as long."""
    try:
        return json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # half a character, which a server refuses
        return json.dumps(value).encode()


def _too_large() -> ClientError:
    return ClientError(f"the response is larger than {ANSWER_LIMIT_BYTES} bytes", 200)
