"""HTTP requests and responses: a request as the edge and the application see it, and the bytes of its response.

A response always has a length, unless it is a stream, and is never cached, unless it says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import formatdate
from http import HTTPStatus
from typing import NamedTuple

import msgspec

from pushup.core.answer import Answer

FIELD_OVERHEAD_BYTES = 100
"""The memory of a header field beside its bytes."""

REQUEST_OVERHEAD_BYTES = 250
"""The memory of a request beside its fields, target and body. Measured at 225 bytes."""

Header = tuple[bytes, bytes]

_encode = msgspec.json.Encoder().encode

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
"""For a client that waits for it before it sends a body (RFC 9110 §10.1.1)."""


class Request:
    """One request. Header names are in lower case; the values of a repeated field are joined by `, `.

    Requests may share their `headers`, which therefore never change.

    `url_ticket`: the value of the parameter `ticket` of an event stream; None: there is none. It is not in `target`, so
    that whatever logs, compares or remembers targets and query strings never sees it.

    `keep_alive`, whether another request may follow, is certain once the request is complete. `is_1_0`: the client
    speaks HTTP/1.0, and knows no chunks. `is_counted`: quotas have counted it.
    """

    __slots__ = ("body", "headers", "is_1_0", "is_counted", "keep_alive", "method", "target", "url_ticket")

    def __init__(
        self,
        method: bytes,
        target: bytes,
        headers: Mapping[bytes, bytes],
        keep_alive: bool,
        body: bytes = b"",
        is_1_0: bool = False,
    ) -> None:
        self.method = method
        self.url_ticket: bytes | None = None
        if method != b"POST" and target.find(b"ticket=") >= 0:  # `in` takes twice as long
            target, self.url_ticket = _without_ticket(target)
        self.target = target
        self.headers = headers
        self.keep_alive = keep_alive
        self.body = body
        self.is_1_0 = is_1_0
        self.is_counted = False

    @property
    def size(self) -> int:
        """Its memory in bytes, approximately."""
        fields = sum(len(name) + len(value) + FIELD_OVERHEAD_BYTES for name, value in self.headers.items())
        ticket = self.url_ticket or b""
        return REQUEST_OVERHEAD_BYTES + len(self.target) + len(ticket) + fields + len(self.body)

    def header(self, name: bytes) -> str:
        """The value of a header field as text; empty if it is missing."""
        return self.headers.get(name, b"").decode("latin-1")


def _without_ticket(target: bytes) -> tuple[bytes, bytes | None]:
    """The target of an event stream without its first parameter `ticket`, and the value of that. O(bytes)."""
    path, _, query = target.partition(b"?")
    before, found, rest = (b"&" + query).partition(b"&ticket=")
    if not found or path != b"/v1/events":
        return target, None
    ticket, _, after = rest.partition(b"&")
    return b"%b?%b" % (path, b"&".join([part for part in (before[1:], after) if part])), ticket


class Response(NamedTuple):
    """The response to a request."""

    status: int
    body: bytes = b""
    content_type: bytes = b"application/json"
    headers: tuple[Header, ...] = ()
    cache_control: bytes = b"no-store"


class ResponseOptions(NamedTuple):
    """How the response to one request is written, where that is not the usual way."""

    head_only: bool = False
    """The request was a HEAD: no body, but its length."""
    close: bool = False
    """It is the last response of its connection."""
    headers: tuple[Header, ...] = ()
    """Header fields that depend on the request (CORS)."""


def last(options: ResponseOptions | None) -> ResponseOptions:
    """The same options for the last response of a connection."""
    return ResponseOptions(close=True) if options is None else options._replace(close=True)


_STATUS_LINES = {s.value: f"HTTP/1.1 {s.value} {s.phrase}\r\n".encode() for s in HTTPStatus}
_BODYLESS = (204, 304)

_OF_STREAMS = b"no-store, no-transform"
"""A proxy that compresses may keep the end of an event until the next one comes (HAProxy 2.6 does)."""


class ResponseWriter:
    """Writes responses. Equal answers are encoded once, for a fan-out (docs/internals/architecture.md)."""

    def __init__(self) -> None:
        self._date = b""
        self._answer: Answer | None = None
        self._written: dict[ResponseOptions | None, bytes] = {}

    def set_time(self, now: float) -> None:
        """Set the Date header (RFC 9110 §6.6.1) to `now`, seconds since the epoch; call this every second."""
        self._date = b"Date: " + formatdate(now, usegmt=True).encode() + b"\r\n"
        self._answer = None

    def answer(self, answer: Answer, options: ResponseOptions | None) -> bytes:
        """The response that carries a poll's answer."""
        if answer is not self._answer:
            self._answer = answer
            self._written = {}
        data = self._written.get(options)
        if data is None:
            data = self._written[options] = self.response(Response(200, _encode(answer)), options)
        return data

    def stream_head(self, content_type: bytes, options: ResponseOptions | None, *, chunked: bool) -> bytes:
        """The head of a response that is a stream, as chunks or until the connection ends."""
        fields = [(b"X-Accel-Buffering", b"no")]  # nginx passes each event on at once
        if chunked:
            fields.append((b"Transfer-Encoding", b"chunked"))
        return self._bytes(Response(200, b"", content_type, tuple(fields), _OF_STREAMS), b"", options)

    def response(self, response: Response, options: ResponseOptions | None) -> bytes:
        """The bytes of any response."""
        length = b"" if response.status in _BODYLESS else b"Content-Length: %d\r\n" % len(response.body)
        return self._bytes(response, length, options)

    def _bytes(self, response: Response, more: bytes, options: ResponseOptions | None) -> bytes:
        """`more`: header fields of this kind of response."""
        head_only, close, headers = options or _USUAL
        if close:
            more += b"Connection: close\r\n"
        if fields := (*headers, *response.headers):
            more += b"".join([b"%b: %b\r\n" % field for field in fields])
        status = response.status
        return b"%b%b%bCache-Control: %b\r\n%b\r\n%b" % (
            _STATUS_LINES[status],
            self._date,
            b"" if status in _BODYLESS else b"Content-Type: %b\r\n" % response.content_type,
            response.cache_control,
            more,
            b"" if head_only else response.body,
        )


_USUAL = ResponseOptions()
