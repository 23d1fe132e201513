"""HTTP/1.1 requests out of bytes (RFC 9112), by httptools (llhttp): bytes in, requests out, no I/O.

llhttp does the grammar, and strictly. What it leaves to us, because requests are smuggled through the differences
between two servers, is added here: no HTTP/0.9 (llhttp takes it, with a bare LF), one valid Host, no transfer coding
but `chunked` and none in HTTP/1.0, and limits on everything that grows.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NoReturn

from httptools import HttpParserCallbackError, HttpParserError, HttpParserUpgrade, HttpRequestParser
from msgspec import Struct

from pushup.core.errors import (
    BadRequest,
    ExpectationFailed,
    HeadersTooLarge,
    PushUpError,
    RequestTooLarge,
    SpokeTls,
    TargetTooLong,
)


class RequestLimits(Struct, frozen=True, kw_only=True):
    """The bounds of one request."""

    target_limit_bytes: int = 8 * 1024
    """The request target; nginx and HAProxy allow about as much."""
    header_limit_bytes: int = 16 * 1024
    """All header fields together, with the target."""
    body_limit_bytes: int = 1024 * 1024
    """A request body, of whatever call; that of a poll is smaller."""


LENGTH_DIGITS = 20
"""Of a Content-Length; llhttp takes any number of zeros before it, and Python makes no number of more than 4,300."""

TLS_HANDSHAKE = b"\x16\x03"
"""How a TLS connection begins (RFC 8446 §5.1)."""

FIELD_OVERHEAD_BYTES = 100
"""What a header field takes beside its bytes."""

REQUEST_OVERHEAD_BYTES = 250
"""What a request takes beside its fields, target and body. Measured at 225 bytes."""

PARSER_BYTES = 1600
"""What a parser takes that has been given a byte. Measured at 1,573 bytes."""


class Request(Struct, eq=False):
    """One request. Header names are in lower case; of a field that came twice the values are joined by `, `."""

    method: bytes
    target: bytes
    headers: dict[bytes, bytes]
    keep_alive: bool
    body: bytes = b""

    @property
    def size(self) -> int:
        """The bytes that it takes, about."""
        fields = sum(len(name) + len(value) + FIELD_OVERHEAD_BYTES for name, value in self.headers.items())
        return REQUEST_OVERHEAD_BYTES + len(self.target) + fields + len(self.body)

    def header(self, name: bytes) -> str:
        """A header field's value as text, empty if there is none."""
        return self.headers.get(name, b"").decode("latin-1")


_ONCE = frozenset((b"host", b"content-length", b"transfer-encoding", b"authorization", b"idempotency-key", b"origin"))
"""Fields of which two would leave open which one counts."""


_RARE = frozenset((b"transfer-encoding", b"content-length", b"expect"))

_HOST = re.compile(rb"(?:[A-Za-z0-9._~!$&'()*+;=%-]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]*)?").fullmatch
"""A host and port; may be empty (RFC 9112 §3.2, RFC 3986 §3.2.2). Without a comma, which joins two of them."""


class RequestParser:
    """Turns the bytes of a connection into requests.

    `feed` appends to `requests`; `wants_continue` tells that a client waits for `100 Continue` before its body. Between
    two requests (`idle`) it keeps nothing, so that one parser can serve many connections in turn: a held poll needs
    none, and a parser takes 1.5 KB.
    """

    def __init__(self, limits: RequestLimits, admit: Callable[[Request], int] | None = None) -> None:
        """`admit` is asked about each request that announces a body, once its head is complete: how many bytes the
        body may have. What it raises, a PushUpError, refuses the request. Without it `body_limit_bytes` holds for all.
        """
        self._limits = limits
        self._admit = admit or (lambda request: limits.body_limit_bytes)
        self._parser = HttpRequestParser(self)
        self.requests: list[Request] = []
        self.wants_continue = False
        self.idle = True
        self.ended = False
        self.since = 0.0
        """For whoever feeds it: when the request that has come in part began,"""
        self.kept_bytes = 0
        """and the bytes that were fed since, or about so."""
        self._error: PushUpError | None = None
        self._known_host = b""
        self._target = b""
        self._headers: dict[bytes, bytes] = {}
        self._size = 0
        self._fed = 0
        self._length = 0
        self._request: Request | None = None
        self._body_limit = 0
        self._body = bytearray()

    def feed(self, data: bytes) -> list[Request]:
        """The requests that these bytes complete.

        Raises: BadRequest and its like; the requests before the bad one are in `requests`, and the parser is done for.
        """
        requests: list[Request] = []
        self.requests = requests
        if not self.idle:
            self._fed += len(data)
        failure: Exception | None = None
        while data:
            try:
                self._parser.feed_data(data)
                break
            except HttpParserUpgrade as upgrade:
                data = self._without_upgrade() + data[upgrade.args[0] :]
            except HttpParserError as error:
                failure = self._failure(error, data)
                break
        if failure is not None:
            raise failure  # out here, so that it does not refer to llhttp's error, and that to all that called us
        if not self.idle:
            self._check_fed()
        return requests

    def _failure(self, error: HttpParserError, data: bytes) -> Exception | None:
        """What went wrong; None when it is what follows a last request, which is nothing to us."""
        if isinstance(error, HttpParserCallbackError):
            return self._error or error
        if self.ended:
            return None
        if data.startswith(TLS_HANDSHAKE):
            return SpokeTls("this port speaks plain HTTP, not TLS: use http://, or put a proxy with TLS in front")
        return BadRequest(f"this is not HTTP/1.1: {error}")

    @property
    def head(self) -> Request | None:
        """The request whose head has come, and whose body has not, or not yet."""
        return self._request

    @property
    def body_left(self) -> int:
        """Bytes of the body that are still to come, as far as is known: of a chunked one it is not."""
        return 0 if self._request is None else self._length - self._size

    @property
    def size(self) -> int:
        """The bytes that it takes with what has come of a request, about."""
        return PARSER_BYTES + self.kept_bytes + FIELD_OVERHEAD_BYTES * len(self._headers)

    def discard(self) -> None:
        """This parser is used up: let go of llhttp's, which refers back to this one."""
        del self._parser
        self._error = None
        self.requests = []

    def _without_upgrade(self) -> bytes:
        """The head of the last request again, without its offer to change protocols.

        It is ours to pass the offer over (RFC 9110 §7.8), but llhttp reads no further after it, not even the body. So
        another parser is given the head as if there had been none. The request is the connection's last: a proxy that
        believed in the change would pass on anything (websocket smuggling).
        """
        request = self.requests.pop()
        version = self._parser.get_http_version().encode()
        self._parser = HttpRequestParser(self)
        lines = [b"%b %b HTTP/%b" % (request.method, request.target, version)]
        lines += [b"%b: %b" % field for field in request.headers.items() if field[0] not in (b"upgrade", b"connection")]
        return b"\r\n".join((*lines, b"connection: close", b"", b""))

    def _check_fed(self) -> None:
        """Bound what llhttp holds of a field or a trailer that does not end."""
        limits = self._limits
        if self._request is None:
            if self._fed > limits.header_limit_bytes:
                raise self._headers_too_large()
        elif self._fed > limits.header_limit_bytes + 2 * self._body_limit:
            raise self._too_large()

    # What httptools calls. An exception in here comes out of `feed_data` as an HttpParserCallbackError.

    def on_message_begin(self) -> None:
        self.idle = False
        self._target = b""
        self._headers = {}
        self._size = self._fed = self._length = 0
        self._request = None

    def on_url(self, part: bytes) -> None:
        self._target += part
        if len(self._target) > self._limits.target_limit_bytes:
            self._fail(TargetTooLong(f"a request target has at most {self._limits.target_limit_bytes} bytes"))

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._request is not None:
            return  # a trailer: nothing that we know may stand there
        name = name.lower()
        headers = self._headers
        self._size += len(name) + len(value) + 4
        if self._size > self._limits.header_limit_bytes:
            self._fail(self._headers_too_large())
        if name in headers:
            if name in _ONCE:
                self._fail(BadRequest(f"{name.decode('latin-1')} is there twice"))
            value = headers[name] + b", " + value
        headers[name] = value

    def on_headers_complete(self) -> None:
        if self._size + len(self._target) > self._limits.header_limit_bytes:
            self._fail(self._headers_too_large())
        headers, parser = self._headers, self._parser
        version = parser.get_http_version()
        keep_alive = version == "1.1" and parser.should_keep_alive()
        if version == "1.1":
            host = headers.get(b"host")
            if host is None or (host != self._known_host and not _HOST(host)):
                self._fail(BadRequest("Host is missing" if host is None else "Host is malformed"))
            self._known_host = host
        elif version != "1.0":
            self._fail(BadRequest(f"HTTP/{version} is not spoken here"))
        method = parser.get_method()
        if method == b"CONNECT":
            self._fail(BadRequest("CONNECT is for proxies"))
        self._request = Request(method, self._target, headers, keep_alive)
        self._size = 0
        if not _RARE.isdisjoint(headers):
            self._check_rare(self._request, version)

    def _check_rare(self, request: Request, version: str) -> None:
        """The fields that say something about the body; polls have none of them."""
        headers = request.headers
        coding = headers.get(b"transfer-encoding")
        if coding is not None and (version == "1.0" or coding.lower() != b"chunked"):
            self._fail(BadRequest("the only transfer coding spoken here is chunked, in HTTP/1.1"))
        length = headers.get(b"content-length")
        if length is not None:
            if len(length) > LENGTH_DIGITS:
                self._fail(BadRequest("Content-Length is malformed"))
            self._length = int(length)
        if coding is not None or self._length:
            self._body_limit = self._limit_of(request)
            if self._length > self._body_limit:
                self._fail(self._too_large())
        expect = headers.get(b"expect")
        if expect is not None:
            if expect.lower() != b"100-continue":
                self._fail(ExpectationFailed("the only expectation met here is 100-continue"))
            self.wants_continue = version == "1.1"

    def _limit_of(self, request: Request) -> int:
        try:
            return min(self._admit(request), self._limits.body_limit_bytes)
        except PushUpError as error:
            self._fail(error)

    def on_body(self, part: bytes) -> None:
        self.wants_continue = False
        self._body += part
        self._size += len(part)
        if self._size > self._body_limit:
            self._fail(self._too_large())

    def on_message_complete(self) -> None:
        request = self._request
        assert request is not None
        if self._body:
            request.body = bytes(self._body)
            self._body = bytearray()
        self.wants_continue = False
        self.ended = not request.keep_alive  # llhttp takes nothing more then (HPE_CLOSED_CONNECTION)
        self.requests.append(request)
        self._request = None
        self._headers = {}
        self.idle = True

    def _fail(self, error: PushUpError) -> NoReturn:
        self._error = error
        raise error

    def _headers_too_large(self) -> HeadersTooLarge:
        return HeadersTooLarge(f"headers have at most {self._limits.header_limit_bytes} bytes")

    def _too_large(self) -> RequestTooLarge:
        return RequestTooLarge(f"the body of this request has at most {self._body_limit} bytes")
