"""The vectors of request smuggling, against the parser: each is refused, or read in the one right way."""

from __future__ import annotations

import pytest

from pushup.core.errors import PushUpError
from pushup.net.http1 import Request, RequestParser
from pushup.net.limits import RequestLimits
from pushup.net.problems import problem_type
from tests.net.smuggling_vectors import READ, REFUSED, SMUGGLED, chunked, get, post


def read(parts: list[bytes]) -> tuple[list[Request], PushUpError | None]:
    """The requests in these bytes, and the error at which reading ended, as a connection reads them."""
    parser = RequestParser(RequestLimits())
    requests: list[Request] = []
    for part in parts:
        try:
            requests += parser.feed(part)
        except PushUpError as error:
            return requests + parser.requests, error
        if parser.ended:
            break
    return requests, None


def in_bytes(data: bytes) -> list[bytes]:
    return [bytes([byte]) for byte in data]


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_ambiguous_is_refused(name: str) -> None:
    """An ambiguous request gets a 4xx, and neither it nor what follows is a request."""
    for parts in ([REFUSED[name] + SMUGGLED], [REFUSED[name], SMUGGLED], in_bytes(REFUSED[name] + SMUGGLED)):
        requests, error = read(parts)
        assert error is not None
        assert 400 <= problem_type(type(error)).status < 500
        assert requests == []


@pytest.mark.parametrize("name", READ)
def test_what_has_one_meaning_is_read(name: str) -> None:
    """A request that is only odd is read as RFC 9112 says, and the next begins right after it."""
    data, body = READ[name]
    for parts in ([data + SMUGGLED], [data, SMUGGLED], in_bytes(data + SMUGGLED)):
        requests, error = read(parts)
        assert error is None
        assert [request.body for request in requests] == [body, b""]
        assert requests[1].target == b"/smuggled"


def test_a_refused_request_leaves_those_before_it() -> None:
    """Complete requests before a bad one are still answered, and nothing after it."""
    good = post(b"Content-Length: 3", b"abc")
    requests, error = read([good + good + REFUSED["CL and TE"] + good])
    assert [request.body for request in requests] == [b"abc", b"abc"]
    assert error is not None


def test_trailers_are_headers_of_nothing() -> None:
    """A trailer is neither a header of its own request nor of the next one."""
    trailer = b"3\r\nabc\r\n0\r\nAuthorization: Bearer stolen\r\nX-Last: y\r\n\r\n"
    for parts in ([chunked(trailer) + SMUGGLED], in_bytes(chunked(trailer) + SMUGGLED)):
        requests, error = read(parts)
        assert error is None
        assert [sorted(request.headers) for request in requests] == [[b"host", b"transfer-encoding"], [b"host"]]


@pytest.mark.parametrize("last", [b"Connection: close", b"Connection: keep-alive, close", b"connection: CLOSE"])
def test_after_a_closing_request_comes_none(last: bytes) -> None:
    """What follows a request that closes the connection is not a request."""
    requests, _ = read([get(b"Host: a\r\n" + last) + SMUGGLED])
    assert [(request.target, request.keep_alive) for request in requests] == [(b"/", False)]


@pytest.mark.parametrize(
    "data",
    [
        get(b"Host: a\r\nConnection: Upgrade\r\nUpgrade: websocket"),
        get(b"Host: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQ"),
    ],
    ids=["websocket", "h2c"],
)
def test_a_tunnel_is_not_read(data: bytes) -> None:
    """After a request that would change the protocol nothing is read as HTTP, whatever it looks like."""
    for parts in ([data + SMUGGLED], [data, SMUGGLED], in_bytes(data + SMUGGLED)):
        requests, error = read(parts)
        assert error is None
        assert [request.keep_alive for request in requests] == [False]


@pytest.mark.parametrize(
    "length", [b"Content-Length: 3", b"Transfer-Encoding: chunked"], ids=["Content-Length", "chunked"]
)
def test_the_body_of_an_upgrade_request_is_its_body(length: bytes) -> None:
    """A POST that offers h2c, as Java's HttpClient and `curl --http2` send it, keeps its body (RFC 9110 §7.8)."""
    body = b"abc" if length.startswith(b"Content") else b"3\r\nabc\r\n0\r\n\r\n"
    data = post(
        b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQ\r\n" + length, body
    )
    for parts in ([data], in_bytes(data)):
        requests, error = read(parts)
        assert error is None
        assert [request.body for request in requests] == [b"abc"]
