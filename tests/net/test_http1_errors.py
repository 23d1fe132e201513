"""The errors of the request parser say what is wrong and what to do."""

from __future__ import annotations

import pytest

from pushup.core.errors import PushUpError
from pushup.net.http1 import RequestParser
from tests.net.parser_readings import SMALL


@pytest.mark.parametrize(
    ("data", "detail"),
    [
        ("GET /v1/poll?channel=é HTTP/1.1\r\nHost: a\r\n\r\n", "percent-encode non-ASCII characters"),
        ("GET /\x01 HTTP/1.1\r\nHost: a\r\n\r\n", "malformed HTTP/1.1 request: Invalid char in url path"),
        ("GÉT / HTTP/1.1\r\nHost: a\r\n\r\n", "malformed HTTP/1.1 request: Invalid method encountered"),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "duplicate header 'host'"),
        ("GET / HTTP/1.1\r\nHost: a\r\nOrigin: b\r\nORIGIN: b\r\n\r\n", "duplicate header 'origin'"),
        ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", "unsupported HTTP version 2.0; use HTTP/1.1"),
        ("GET / HTTP/1.1\r\n\r\n", "the Host header is missing"),
        ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", "malformed Host header"),
        ("CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", "CONNECT is not supported: this server is not a proxy"),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "unsupported Transfer-Encoding"),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %s1\r\n\r\n" % (20 * "0"), "malformed Content-Length header"),
        ("GET / HTTP/1.1\r\nHost: a\r\nExpect: b\r\n\r\n", "unsupported Expect header; use 100-continue or omit it"),
        ("GET /" + 30 * "x" + " HTTP/1.1\r\nHost: a\r\n\r\n", "the request target exceeds 30 bytes"),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: " + 120 * "y" + "\r\n\r\n", "the request headers exceed 120 bytes"),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 41\r\n\r\n", "the body of this request exceeds 40 bytes"),
    ],
)
def test_errors_say_what_is_wrong(data: str, detail: str) -> None:
    """They also say what to do, unless that is obvious."""
    with pytest.raises(PushUpError) as error:
        RequestParser(SMALL).feed(data.encode())
    assert error.value.detail.startswith(detail)


@pytest.mark.parametrize(
    "data",
    [
        b"GET /healthz\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/1.2\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\nHost: a\n\n",
        b"GET / HTTP/1.1\r\nHost : a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: a\x00b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n",
        b"GET / a HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET a HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GRAB / HTTP/1.1\r\nHost: a\r\n\r\n",
    ],
)
def test_a_malformed_request_is_refused_though_nothing_follows(data: bytes) -> None:
    """Its client waits for an answer."""
    with pytest.raises(PushUpError):
        RequestParser(SMALL).feed(data)


def test_tls_where_plain_http_is_expected() -> None:
    """The error names the cause, for the client's log and for the server's."""
    with pytest.raises(PushUpError, match="expects plain HTTP, not TLS"):
        RequestParser(SMALL).feed(b"\x16\x03\x01\x02\x00\x01")
