"""The parser of HTTP/1.1 requests (RFC 9112), on httptools (llhttp): bytes in, requests out, no I/O.

llhttp checks the grammar, strictly. Requests are smuggled through the differences between two servers, so this module
adds what llhttp leaves open: no HTTP/0.9 (llhttp accepts it, with a bare LF), one valid Host, no transfer coding but
`chunked` and none in HTTP/1.0, nothing after the last request, limits on all that grows, and `request_line`.
"""

from __future__ import annotations

from collections.abc import Callable

from httptools import (
    HttpParserCallbackError,
    HttpParserError,
    HttpParserInvalidURLError,
    HttpParserUpgrade,
    HttpRequestParser,
)

from pushup.core.errors import BadRequest, PushUpError
from pushup.net.edge_limits import RequestLimits
from pushup.net.http_errors import ExpectationFailed, HeadersTooLarge, RequestTooLarge, SpokeTls, TargetTooLong
from pushup.net.known_heads import KnownHeads
from pushup.net.request_line import is_host, is_usual, path_of, piece_end
from pushup.net.requests_and_responses import FIELD_OVERHEAD_BYTES, Request

LENGTH_DIGITS = 20
"""Of a Content-Length. llhttp accepts any number of leading zeros, and Python converts at most 4,300 digits."""

TLS_HANDSHAKE = b"\x16\x03"
"""The first bytes of a TLS connection (RFC 8446 §5.1)."""

PARSER_BYTES = 1600
"""The memory of a parser that has been fed a byte. Measured at 1,573 bytes."""

_ONCE = frozenset((b"host", b"content-length", b"transfer-encoding", b"authorization", b"idempotency-key", b"origin"))
"""Fields that must not be repeated, because it would be open which value counts."""

_RARE = frozenset((b"transfer-encoding", b"content-length", b"expect"))

_NO_PARSER = HttpRequestParser(object())
"""In the place of llhttp's parser in a `RequestParser` that is not used any more."""


class RequestParser:
    """Turns the bytes of a connection into requests.

    `wants_continue`: the client waits for `100 Continue` before it sends the body. `ended`: the last request was the
    last of its connection. `idle`: it is between two requests and keeps nothing, so the next bytes may be of another
    connection. A parser takes 1.5 KB, so held polls share one (`edge_context`).
    """

    def __init__(
        self, limits: RequestLimits, admit: Callable[[Request], int] | None = None, known: KnownHeads | None = None
    ) -> None:
        """`admit` returns the maximum size of a body in bytes, or raises a PushUpError to refuse the request. It is
        called for each request that announces a body, once its head is complete. Without it every body may have
        `body_limit_bytes`. `known` is shared by parsers with the same limits.
        """
        self._limits = limits
        self._admit = admit or (lambda request: limits.body_limit_bytes)
        self._known = known or KnownHeads(limits)
        self._parser = HttpRequestParser(self)
        self.requests: list[Request] = []
        self.wants_continue = False
        self.idle = True
        self.ended = False
        self._line_end = b""  # the last byte of a request line that is incomplete
        self._target = b""
        self._headers: dict[bytes, bytes] = {}
        self._size = 0
        self._fed = 0
        self._kept = 0  # bytes fed since the incomplete request began, or slightly more
        self._length = 0
        self.head: Request | None = None
        """The incomplete request, once its head is complete."""
        self._body_limit = 0
        self._body = bytearray()

    def feed(self, data: bytes) -> list[Request]:
        """The requests that these bytes complete.

        Raises: PushUpError; the requests before the bad one are in `requests`, and the parser must not be fed again.
        """
        is_first = self.idle and not self.ended
        if is_first and (request := self._known.find(data)) is not None and self._admits(request):
            return [request]
        requests: list[Request] = []
        self.requests = requests
        if not self.idle:
            self._fed += len(data)
        if self._line_end or not is_usual(data):
            failure = self._feed_pieces(data)
        else:
            failure = self._feed(data)
            if not self.idle and self.head is None:
                self._line_end = data[-1:]
        if failure is not None:
            raise failure  # here, so that it does not refer to llhttp's error, which refers to all our callers
        if not self.idle:
            self._kept += len(data)
            self._check_fed()
        elif is_first and len(requests) == 1 and not self.ended:
            self._known.remember(data, requests[0])
        self.requests = []
        return requests

    def _feed(self, data: bytes) -> Exception | None:
        """Let llhttp read; returns what is wrong."""
        while data:
            try:
                self._parser.feed_data(data)
                break
            except HttpParserUpgrade as upgrade:
                data = self._without_upgrade() + data[upgrade.args[0] :]
            except HttpParserError as error:
                return self._failure(error, data)
        if self.idle:
            self._target = b""  # it may contain a ticket
        return None

    def _feed_pieces(self, data: bytes) -> Exception | None:
        """The same for bytes that may have two spaces in a row in a request line, or end in one."""
        begin = 0
        while begin < len(data):
            before, is_line = self._line_end, self.idle or bool(self._line_end)
            end = piece_end(data, begin, self.body_left, is_idle=self.idle)
            piece = data[begin:end]
            failure = self._feed(piece)
            if failure is not None or self.ended:
                return failure
            if is_line and b"  " in before + piece:
                return BadRequest("two spaces in a row in the request line; write one")
            self._line_end = piece[-1:] if is_line and not self.idle and not piece.endswith(b"\n") else b""
            begin = end
        return None

    def _admits(self, request: Request) -> bool:
        """Whether a request whose head is known is accepted with its body. If not, llhttp has to say when."""
        if not request.body:
            return True
        try:
            return len(request.body) <= min(self._admit(request), self._limits.body_limit_bytes)
        except PushUpError:
            return False

    def _failure(self, error: HttpParserError, data: bytes) -> Exception | None:
        """What went wrong; None if it is what follows a last request, which does not matter."""
        if self.ended:
            return None
        if isinstance(error, HttpParserCallbackError):
            raised = error.__context__  # by a function below
            return raised if isinstance(raised, PushUpError) else error
        if data.startswith(TLS_HANDSHAKE):
            return SpokeTls("this port expects plain HTTP, not TLS: use http://, or put a TLS proxy in front")
        if isinstance(error, HttpParserInvalidURLError) and not data.isascii():
            return BadRequest("percent-encode non-ASCII characters in the request target")
        return BadRequest(f"malformed HTTP/1.1 request: {error}")

    @property
    def body_left(self) -> int:
        """Bytes of the body that are still to come; 0 when that is unknown, as for a chunked body."""
        return 0 if self.head is None else max(0, self._length - self._size)

    @property
    def size(self) -> int:
        """Its memory in bytes with the incomplete request."""
        return PARSER_BYTES + self._kept + FIELD_OVERHEAD_BYTES * len(self._headers)

    def discard(self) -> None:
        """Break the reference cycle with llhttp's parser. This one must not be fed again."""
        self._parser = _NO_PARSER
        self.requests = []

    def _without_upgrade(self) -> bytes:
        """The head of the last request again, without its offer to change protocols.

        We may ignore the offer (RFC 9110 §7.8), but llhttp reads no further after it, not even the body. So another
        parser gets the head without the offer. The request is the last of its connection, because a proxy that believes
        the protocol has changed forwards anything (websocket smuggling).
        """
        request = self.requests.pop()
        self.ended = False
        version = self._parser.get_http_version().encode()
        self._parser = HttpRequestParser(self)
        lines = [b"%b %b HTTP/%b" % (request.method, self._target, version)]
        lines += [b"%b: %b" % field for field in request.headers.items() if field[0] not in (b"upgrade", b"connection")]
        return b"\r\n".join((*lines, b"connection: close", b"", b""))

    def _check_fed(self) -> None:
        """Limit what llhttp keeps of a field or a trailer that does not end."""
        if self.head is None:
            if self._fed > self._limits.header_limit_bytes:
                raise self._headers_too_large()
        elif self._fed > self._limits.header_limit_bytes + 2 * self._body_limit:
            raise self._too_large()

    # Called by httptools. It turns an exception in here into an HttpParserCallbackError.

    def on_message_begin(self) -> None:
        if self.ended:
            raise HttpParserError  # llhttp goes on after HTTP/1.0 with `Connection: keep-alive`
        self.idle = False
        self._target = b""
        self._headers = {}
        self._size = self._fed = self._kept = self._length = 0
        self.head = None

    def on_url(self, part: bytes) -> None:
        self._target += part
        limit = self._limits.target_limit_bytes
        if len(self._target) > limit:
            raise TargetTooLong(f"the request target exceeds {limit} bytes; a POST takes many channels in its body")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.head is not None:
            return  # a trailer, in which no field that we use is allowed
        name = name.lower()
        headers = self._headers
        self._size += len(name) + len(value) + 4
        if self._size > self._limits.header_limit_bytes:
            raise self._headers_too_large()
        if name in headers:
            if name in _ONCE:
                raise BadRequest(f"duplicate header '{name.decode('latin-1')}'; send it once")
            value = headers[name] + b", " + value
        headers[name] = value

    def on_headers_complete(self) -> None:
        if self._size + len(self._target) > self._limits.header_limit_bytes:
            raise self._headers_too_large()
        headers, parser = self._headers, self._parser
        version = parser.get_http_version()
        if version == "1.1":
            host = headers.get(b"host")
            if host is None or not is_host(host):
                raise BadRequest("the Host header is missing" if host is None else "malformed Host header")
        elif version != "1.0":
            raise BadRequest(f"unsupported HTTP version {version}; use HTTP/1.1")
        method = parser.get_method()
        if method == b"CONNECT":
            raise BadRequest("CONNECT is not supported: this server is not a proxy")
        target = self._target
        if not target.startswith(b"/") and target != b"*":
            target = path_of(target, headers)
        self.head = Request(method, target, headers, version == "1.1", is_1_0=version == "1.0")
        self._size = 0
        if not _RARE.isdisjoint(headers):
            self._check_rare(self.head)

    def _check_rare(self, request: Request) -> None:
        """Check the fields that describe the body, which polls do not have."""
        headers = request.headers
        coding = headers.get(b"transfer-encoding")
        if coding is not None and (request.is_1_0 or coding.lower() != b"chunked"):
            raise BadRequest("unsupported Transfer-Encoding; use chunked, with HTTP/1.1")
        length = headers.get(b"content-length")
        if length is not None:
            if len(length) > LENGTH_DIGITS:
                raise BadRequest("malformed Content-Length header")
            self._length = int(length)
        if coding is not None or self._length:
            self._body_limit = min(self._admit(request), self._limits.body_limit_bytes)
            if self._length > self._body_limit:
                raise self._too_large()
        expect = headers.get(b"expect")
        if expect is not None:
            if expect.lower() != b"100-continue":
                raise ExpectationFailed("unsupported Expect header; use 100-continue or omit it")
            self.wants_continue = not request.is_1_0

    def on_body(self, part: bytes) -> None:
        self.wants_continue = False
        self._body += part
        self._size += len(part)
        if self._size > self._body_limit:
            raise self._too_large()

    def on_message_complete(self) -> None:
        request = self.head
        assert request is not None
        if self._body:
            request.body = bytes(self._body)
            self._body = bytearray()
        self.wants_continue = False
        # Only known now: llhttp also ends the connection for `Connection: close` in a trailer.
        request.keep_alive = request.keep_alive and self._parser.should_keep_alive()
        self.ended = not request.keep_alive
        self.requests.append(request)
        self.head = None
        self._headers = {}
        self.idle = True

    def _headers_too_large(self) -> HeadersTooLarge:
        return HeadersTooLarge(f"the request headers exceed {self._limits.header_limit_bytes} bytes")

    def _too_large(self) -> RequestTooLarge:
        return RequestTooLarge(f"the body of this request exceeds {self._body_limit} bytes")
